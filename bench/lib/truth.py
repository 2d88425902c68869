# SPDX-License-Identifier: Apache-2.0
"""The samples of a trial compared with exact figures of the same process: live bytes, and mean times of calls.

The hook is built twice more for this (hook/full.h). One build also adds up the usable size of every block, the
other also times every call. Sampling is the same code in all three.
"""

import json
import os
import shutil
import statistics
import struct
import subprocess
from typing import NamedTuple

import figures
import injection
import programs
from figures import Interval, Row
from place import OUT, ROOT
from programs import INPUTS, Program

WHAT_LIVE = "live bytes by samples compared with"
WHAT_TIME = "mean time by samples compared with every call timed"
LIVE_BOUND, TIME_BOUND = 0.05, 0.10
TIME_BOUND_NS = 2  # a tenth of what two readings of the clock cost: smaller differences cannot be measured
LIVE_ROUNDS, TIME_ROUNDS = 3, 4
OPS = ("malloc", "realloc", "memalign", "free")
FEWEST_SAMPLES = 1000  # of an operation class: a mean of fewer is not reliable
HEADER, MAPPED_HEADER = 8, 16  # bytes that glibc keeps before a block of its heap, and before a block with its own mapping
MOMENTS = 512
TIMES = 784  # bytes of a full_times


class Moment(NamedTuple):
    """See hook/full.h."""

    estimate: int
    exact: int
    blocks: int
    allocator: int
    cached: int
    mapped_blocks: int


class Times(NamedTuple):
    """By log2 of the ticks: weights, and weights times ticks; and both of those that enter a mean (hook/plausible.h)."""

    weight: tuple
    ticks: tuple
    plausible_weight: int
    plausible_ticks: int

    def mean(self):
        """Ticks a call, of those that enter the mean."""
        return self.plausible_ticks / max(self.plausible_weight, 1)

    def dropped(self):
        """Share of the calls that do not enter the mean."""
        return 1 - self.plausible_weight / max(sum(self.weight), 1)


class Record(NamedTuple):
    """A full_record (hook/full.h): times of all calls and of the sampled ones by operation, the allocator,
    the moments."""

    all: dict
    sampled: dict
    jemalloc: bool
    moments: list


def _times(data, at):
    def times(at):
        return Times(*(struct.unpack_from("=48Q", data, at + 384 * j) for j in (0, 1)), *struct.unpack_from("=2Q", data, at + 768))

    return {op: times(at + TIMES * i) for i, op in enumerate(OPS)}


def _read(path):
    data = path.read_bytes()
    end = 2 * len(OPS) * TIMES
    jemalloc, count = struct.unpack_from("=2Q", data, end + 16)
    moments = [Moment(*struct.unpack_from("=3q3Q", data, end + 32 + 48 * i)) for i in range(min(count, MOMENTS))]
    return Record(_times(data, 0), _times(data, len(OPS) * TIMES), bool(jemalloc), moments)


ENTRIES = 120_000


def _documents():
    """The same entries as JSON and as XML."""
    texts = [(f"name {i * 7919 % ENTRIES}", "a" * (i % 40), "b" * (i % 23)) for i in range(ENTRIES)]
    files = OUT / "keep.json", OUT / "keep.xml"
    files[0].write_text(json.dumps([{"id": i, "name": name, "words": words} for i, (name, *words) in enumerate(texts)]))
    lines = (f'<entry id="{i}"><name>{name}</name><w>{a}</w><w>{b}</w></entry>' for i, (name, a, b) in enumerate(texts))
    files[1].write_text("<entries>" + "\n".join(lines) + "</entries>")
    return files


def _programs():
    """Seven that keep many megabytes; malloc sees a part of them: Python's small objects and much of a compiler's tree
    are in separate mappings."""
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()
    source = OUT / "keep.ii"
    subprocess.run(["g++", "-E", "-P", "-o", source, INPUTS / "keep.cc"], check=True)
    as_json, as_xml = _documents()
    made = [
        Program("python3", ["/usr/bin/python3", str(INPUTS / "keep.py")], []),
        Program("sqlite3", ["/usr/bin/sqlite3", "-batch", "-init", str(INPUTS / "keep.sql"), ":memory:", ".quit"], []),
        Program("cc1plus", [compiler, "-quiet", "-O2", str(source), "-o", "/dev/null"], []),
        Program("perl", ["/usr/bin/perl", str(ROOT / "bench" / "programs" / "words.pl")], []),
        Program("jq", ["/usr/bin/jq", "length", str(as_json)], []),
        Program("xmllint", ["/usr/bin/xmllint", "--noout", str(as_xml)], []),
    ]
    there = [program for program in made if shutil.which(program.command[0])]
    if shutil.which("redis-server"):
        there.append(programs.redis_with_keys(300_000))
    return there


def build():
    """Builds the two hooks that measure everything."""
    subprocess.run(["make", "--no-print-directory", "-s", "-C", ROOT / "hook", f"BUILD={ROOT / 'build'}", "full"], check=True)


def _jemalloc():
    """Debian's library, which shows its statistics; ours does not."""
    found = subprocess.run(["gcc", "-print-file-name=libjemalloc.so.2"], capture_output=True, text=True, check=True)
    path = os.path.realpath(found.stdout.strip())
    return path if os.path.isabs(path) and os.path.exists(path) else None


def _uninterrupted():
    """Runs under SCHED_FIFO: an interruption in a call would count as that call's time, in one of two sums or
    in both."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass


def _run(place, kind, program, library):
    """One trial; the page and the record."""
    path = place.scratch / "full"
    path.unlink(missing_ok=True)
    libraries = ":".join(filter(None, (str(OUT / "full" / kind / "libimas.so"), library)))
    command = [place.program("launch"), "-p", str(place.scratch / "trial.page"), "-l", libraries, "--", *program.command]
    child = subprocess.Popen(command, env={**place.environment(), "IMAS_FULL_FILE": str(path)}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             preexec_fn=_uninterrupted if kind == "time" else None)
    if program.drive:
        program.drive()
    if child.wait() != 0:
        raise RuntimeError(f"{command}: ended with {child.returncode}")
    page = injection.page.read(str(place.scratch / "trial.page"))
    if page["state"] != "TRIAL":
        raise RuntimeError(f"no trial: state {page['state']}, {page['pass_reason']}")
    return page, _read(path)


# ---- live bytes ----------------------------------------------------------------------------------------------------------


def _reported(record, moment):
    """Usable bytes of live blocks as the allocator reports them."""
    if record.jemalloc:
        return moment.allocator - moment.cached
    return moment.allocator - HEADER * moment.blocks - (MAPPED_HEADER - HEADER) * moment.mapped_blocks


def _live_once(place, program, library):
    """Differences as fractions, at the moment of most live bytes: of samples from the allocator's figure, of that from the
    exact sum; the bytes; whether it was jemalloc."""
    _, record = _run(place, "live", program, library)
    peak = max(record.moments, key=lambda moment: moment.exact)
    reported = _reported(record, peak)
    return peak.estimate / reported - 1, reported / peak.exact - 1, peak.exact, record.jemalloc


def _live_row(place, program, candidate, library):
    rounds = [_live_once(place, program, library) for _ in range(LIVE_ROUNDS)]
    off = sorted((row[0] for row in rounds), key=abs)
    name = "jemalloc's stats.allocated" if rounds[0][3] else "mallinfo2"
    mean = sum(abs(value) for value in off) / len(off)
    reported = sum(row[1] for row in rounds) / len(rounds)
    measured = (f"{mean:.1%} on average, worst {off[-1]:+.1%} of {len(rounds)} runs at the peak of {rounds[0][2] / 1e6:.1f} MB; "
                f"the allocator's figure is {reported:+.1%} of the exact sum")
    worst = abs(off[-1])
    return Row(f"{WHAT_LIVE} {name}, {program.name}, {candidate}", "within 5 %", measured, figures.held(Interval(mean, mean, worst), LIVE_BOUND))


# ---- time ----------------------------------------------------------------------------------------------------------------


def _ns_per_tick(page):
    return (page["ns_last"] - page["ns_start"]) / (page["ticks_last"] - page["ticks_start"])


def _time_rows(place, program, name, library):
    rounds = [_run(place, "time", program, library) for _ in range(TIME_ROUNDS)]
    rows = []
    for op in OPS:
        samples = sum(page["sampled"]["op"][op]["sampled"] for page, _ in rounds)
        if samples < FEWEST_SAMPLES * TIME_ROUNDS:
            continue
        taken = []
        for page, record in rounds:
            empty, ns = page["empty_pair_ticks_256"] / 256, _ns_per_tick(page)
            sampled = page["sampled"]["op"][op]
            product = sampled["ticks"] * 256 / max(sampled["weight"], 1)  # as imas_linux::ingest has it
            taken.append({"sampled": (product - empty) * ns, "all": (record.all[op].mean() - empty) * ns})
        mean = statistics.fmean(each["all"] for each in taken)
        # of the means, not the medians: the promise is about means
        off = figures.spread(taken, lambda m: m["sampled"] - m["all"], statistics.fmean)
        least, most = sorted((abs(off.lo), abs(off.hi)))
        bound = max(TIME_BOUND * mean, TIME_BOUND_NS)
        least = 0 if off.lo <= 0 <= off.hi else least
        held = figures.held(Interval(least, abs(off.mid), most), bound)
        rows.append(Row(f"{WHAT_TIME}, {program.name}, {name}: {op}", "within 10 % or 2 ns",
                        f"{figures.shown(off, 1, 'ns', '+')} of {mean:.1f} ns ({samples // TIME_ROUNDS} samples a run)", held))
    return rows


def run(place):
    """Rows of each program, under system and Debian's jemalloc: live bytes, then times by operation."""
    build()
    rows, jemalloc = [], _jemalloc()
    libraries = {"system": None, **({"jemalloc": jemalloc} if jemalloc else {})}
    for program in _programs():
        for name, library in libraries.items():
            rows.append(_live_row(place, program, name, library))
            rows += _time_rows(place, program, name, library)
    if not jemalloc:
        rows.append(Row(f"{WHAT_LIVE} jemalloc's stats.allocated", "within 5 %", "libjemalloc2 is not installed", "-"))
    return rows
