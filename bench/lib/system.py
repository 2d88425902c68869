# SPDX-License-Identifier: Apache-2.0
"""The cost of libimas-preload.so in every process of a machine, and in those that it places.

LD_PRELOAD preloads the stub, with a run folder of the benchmark (IMAS_RUN): the same code on the same path, and the
machine's files are not touched. The time in which ld.so reads /etc/ld.so.preload is not included.
"""

import os
import subprocess

import figures
import instructions
import process
from figures import Row
from place import ROOT

ROUNDS, BLOCK = 60, 4
PROGRAMS = 100_000
LOOKUPS = 100_000
LOOKUP_US, STUB_MS, PLACED_MS = 30, 0.1, 0.5
FEW, MANY = 20_000, 120_000
FLIGHT = 8
TRUE = os.path.realpath("/bin/true")


class _Runs:
    """Run folders with an index each, by name."""

    def __init__(self, place):
        self.place = place
        self.library = place.library("mimalloc")
        subprocess.run(["cargo", "build", "-q", "--locked", "-p", "imas-testing", "--example", "publish"], cwd=ROOT, check=True)
        self.publish = ROOT / "target/debug/examples/publish"
        self.folders = {
            "absent": self._folder("absent"),
            "other": self._folder("other", "fill\t1"),
            "many": self._folder("many", f"fill\t{PROGRAMS}"),
            "placed": self._folder("placed", f"entry\t{TRUE}\tmimalloc\tflags={FLIGHT}"),
            "unwatched": self._folder("unwatched", f"entry\t{TRUE}\tmimalloc"),
            "trial": self._folder("trial", f"entry\t{TRUE}\tsystem\ttrial=mimalloc:1"),
        }

    def _folder(self, name, *lines):
        folder = self.place.scratch / "system" / name
        pages = folder / "state/u" / str(os.getuid())
        pages.mkdir(parents=True, mode=0o700)
        if lines:
            text = "\n".join([f"candidate\tmimalloc\t{self.library}", *lines])
            subprocess.run([self.publish, folder, self.place.lib], input=text, text=True, check=True)
        return folder

    def variables(self, name):
        """Variables by which a process finds the library and the run folder of that name."""
        return {"LD_PRELOAD": str(self.place.lib / "libimas-preload.so"), "IMAS_RUN": str(self.folders[name])}


def _ways(place, runs):
    true = [TRUE]
    page = runs.folders["trial"] / "state/u" / str(os.getuid()) / "0000000000000001.page"
    again = [place.program("untake"), str(page), TRUE]
    return {
        "plain": ({}, true),
        "absent": (runs.variables("absent"), true),
        "other": (runs.variables("other"), true),
        "many": (runs.variables("many"), true),
        "hand": ({"LD_PRELOAD": f"{place.guard}:{runs.library}"}, true),
        "unwatched": (runs.variables("unwatched"), true),
        "placed": (runs.variables("placed"), true),
        "through": (runs.variables("other"), again),
        "trial": (runs.variables("trial"), again),
    }


def _starts(place, runs):
    rounds = process.starts(place, _ways(place, runs), ROUNDS, BLOCK)
    values = [{name: both[0] * 1e3 for name, both in each.items()} for each in rounds]

    def row(what, way, base, bound=None):
        added = figures.spread(values, lambda m: m[way] - m[base], figures.decile)
        return Row(f"start of /bin/true: {what}", f"<= +{bound} ms" if bound else "-", figures.shown(added, 3, "ms", "+"),
                   figures.held(added, bound) if bound else "-")

    return [
        row("stub, no index", "absent", "plain", STUB_MS),
        row("stub, index without it", "other", "plain", STUB_MS),
        row(f"stub, index of {PROGRAMS:,} others", "many", "plain", STUB_MS),
        row("... compared with an index of one", "many", "other"),
        row("placed on mimalloc, compared with untouched", "placed", "plain", PLACED_MS),
        row("... compared with guard and mimalloc by hand", "placed", "hand"),
        row("... and without a flight page", "unwatched", "hand"),
        row("trial of mimalloc, compared with the stub doing nothing", "trial", "through"),
    ]


def _lookups(place, runs):
    index = str(runs.folders["many"] / "state/index")
    found = []
    for _ in range(20):
        done = subprocess.run([place.program("lookup"), "time", index, TRUE, str(LOOKUPS // 20)], stdout=subprocess.PIPE, text=True, check=True)
        found.append({"us": float(done.stdout.split()[0]) / 1e3})
    taken = figures.spread(found, lambda m: m["us"])
    return Row(f"lookup in an index of {PROGRAMS:,} programs, open to close", f"<= {LOOKUP_US} us", figures.shown(taken, 2, "us"),
               figures.held(taken, LOOKUP_US))


def _pairs(place, runs):
    def per_pair(variables):
        few, many = (instructions.count(place, [place.program("pairs"), "same", str(count)], {**place.environment(), **variables})
                     for count in (FEW, MANY))
        return (many - few) / (MANY - FEW)

    plain, stubbed = per_pair({}), per_pair(runs.variables("other"))
    return Row("system-wide, per malloc+free pair of a program that is not placed", "+0 instructions", f"{stubbed - plain:+.2f} over {plain:.2f}",
               "yes" if abs(stubbed - plain) < 0.005 else "no")


def run(place):
    """Rows of starts with and without the stub, of a lookup, and of a pair of malloc and free."""
    runs = _Runs(place)
    return [*_starts(place, runs), _lookups(place, runs), _pairs(place, runs)]
