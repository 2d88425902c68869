# SPDX-License-Identifier: Apache-2.0
"""`imas trim` of the processes of a server, again and again, and what came of it."""

import collections
import itertools
import json
import statistics
import subprocess
import threading
import time

MIB = 1 << 20


def trim(place, pid, at_least=1):
    """The process's row of `imas trim --json`; None: it has ended."""
    words = [place.imas, "trim", str(pid), "--at-least", str(at_least), "--json"]
    done = subprocess.run(words, env=place.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rows = json.loads(done.stdout)["processes"] if done.stdout else []
    return rows[0] if rows else None


class Sum:
    """What came of many trims."""

    def __init__(self):
        self.done, self.promised, self.returned = 0, 0, 0
        self.stood_ms, self.took_ms, self.left_alone = [], [], collections.Counter()

    def add(self, row):
        """`row`: of the process, as `imas trim --json` has it."""
        if not row["thread"]:
            self.left_alone[row["why"]] += 1
            return
        self.done += 1
        self.promised += row["returnable_bytes"] or 0
        self.returned += row["returned_bytes"] or 0
        for times, key in ((self.stood_ms, "stood_ms"), (self.took_ms, "took_ms")):
            times.extend([row[key]] if row[key] is not None else [])

    def figures(self):
        """For a line of JSON."""
        return {"done": self.done, "promised_mib": self.promised / MIB, "returned_mib": self.returned / MIB,
                "stood_ms": spread(self.stood_ms), "took_ms": spread(self.took_ms), "left_alone": dict(self.left_alone)}


def spread(times):
    """Median, the time that 99 of 100 keep, and the longest one."""
    if not times:
        return None
    ordered = sorted(times)
    return {"median": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)], "most": ordered[-1]}


def reasons(left_alone, most=3):
    """The commonest reasons, with how often each was given."""
    return "; ".join(f"{count} x {why}" for why, count in collections.Counter(left_alone).most_common(most))


def write(options, row):
    """Adds a line of JSON to --out."""
    if options.out:
        with open(options.out, "a") as out:
            out.write(json.dumps(row) + "\n")


class Trimming:
    """Within `with`: one process after the other of a server is trimmed, at most so many a second."""

    def __init__(self, place, server, into, rate):
        self.place, self.server, self.into, self.between_s = place, server, into, 1 / rate
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _run(self):
        for turn in itertools.count():
            processes = self.server.processes()
            if self.over.is_set():
                return
            begun = time.monotonic()
            # With 0 a process that has nothing to give back is disturbed as well.
            row = trim(self.place, processes[turn % len(processes)], at_least=0)
            if row:
                self.into.add(row)
            self.over.wait(max(0, begun + self.between_s - time.monotonic()))
