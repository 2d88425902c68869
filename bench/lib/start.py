# SPDX-License-Identifier: Apache-2.0
"""The cost of starting a process in each mode, from posix_spawn to its end.

Two programs are started: /bin/true, which never allocates, and one that allocates one block, as nearly every program
does. An allocator that initialises itself at the first call costs /bin/true nothing if preloaded by hand. Under the
guard it does, because the guard makes that first call (see allocator's settings in hook/guard.c).
"""

import figures
import injection
import instructions
import process
from figures import Row

ROUNDS, BLOCK = 60, 4
GUARD_MS, PASS_MS, ALLOCATOR_MS = 0.1, 0.15, 0.5


def ways_of(place, allocators, command, counted_by_valgrind=False):
    """By name: (variables, command). The ways `launch` and `trial` include making the page."""
    def tried(library, settings):
        return settings, injection.trial(place, library, command, counted_by_valgrind)

    def preloaded(*libraries):
        return {"LD_PRELOAD": ":".join(libraries)}, command

    ways = {
        "plain": ({}, command),
        "guard": preloaded(place.guard),
        "pass": ({**preloaded(place.hook)[0], "IMAS_DISABLE": "1"}, command),
        "launch": ({}, [place.program("launch"), "-p", str(place.scratch / "none.page"), "--", *command]),
        "trial": tried(None, {}),
    }
    for name, variables in allocators.items():
        library = variables["LD_PRELOAD"]
        settings = {variable: value for variable, value in variables.items() if variable != "LD_PRELOAD"}
        ways[f"hand:{name}"] = variables, command
        ways[f"guard:{name}"] = {**settings, **preloaded(place.guard, library)[0]}, command
        ways[f"trial:{name}"] = tried(library, settings)
    return ways


class _Starts:
    """Measurements of one program, and rows of the table."""

    def __init__(self, place, label, command):
        self.label = label
        self.allocators = place.default_set()
        self.rounds = process.starts(place, ways_of(place, self.allocators, command), ROUNDS, BLOCK)
        ways = ways_of(place, self.allocators, command, counted_by_valgrind=True)
        self.instructions = {way: instructions.count(place, argv, {**place.environment(), **variables})
                             for way, (variables, argv) in ways.items()}

    def _added(self, way, base, kind):
        values = [{name: both[kind] * 1e3 for name, both in each.items()} for each in self.rounds]
        return figures.spread(values, lambda m: m[way] - m[base], figures.decile)

    def row(self, what, way, base, bound_ms=None):
        """What `way` adds to `base`; held or not if there is a bound, in ms."""
        wall, cpu = self._added(way, base, 0), self._added(way, base, 1)
        more = (self.instructions[way] - self.instructions[base]) / 1000
        return Row(f"start of {self.label}: {what}", f"<= +{bound_ms} ms" if bound_ms else "-",
                   f"{figures.shown(wall, 3, 'ms', '+')}, CPU {cpu.mid:+.3f} ms, {more:+.0f} k instructions",
                   figures.held(wall, bound_ms) if bound_ms else "-")

    def untouched(self):
        """The time of a start with nothing preloaded."""
        values = [{"plain": each["plain"][0] * 1e3} for each in self.rounds]
        wall = figures.spread(values, lambda m: m["plain"], figures.decile)
        return Row(f"start of {self.label}: untouched", "-", figures.shown(wall, 3, "ms"), "-")

    def rows(self):
        """Every way of starting the program; of each allocator by hand and under the guard, then the trials.
        """
        rows = [
            self.untouched(),
            self.row("guard alone (a candidate of settings)", "guard", "plain", GUARD_MS),
            self.row("libimas doing nothing", "pass", "plain", PASS_MS),
        ]
        for name in self.allocators:
            rows.append(self.row(f"{name} by hand", f"hand:{name}", "plain"))
            rows.append(self.row(f"guard and {name}, compared with {name} by hand", f"guard:{name}", f"hand:{name}",
                                 GUARD_MS))
            rows.append(self.row(f"guard and {name}, compared with untouched", f"guard:{name}", "plain", ALLOCATOR_MS))
        rows.append(self.row("trial of system", "trial", "launch", ALLOCATOR_MS))
        rows += [self.row(f"trial of {name}", f"trial:{name}", "launch", ALLOCATOR_MS) for name in self.allocators]
        return rows


def run(place):
    """Rows of /bin/true, then of a program that allocates one block."""
    true = _Starts(place, "/bin/true", ["/bin/true"])
    allocating = _Starts(place, "a program that allocates", [place.program("pairs"), "same", "1"])
    return true.rows() + allocating.rows()
