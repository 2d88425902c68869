# SPDX-License-Identifier: Apache-2.0
"""`imas run` itself: from its start to the exec of the program, with a small store and a large one.

Measured as the whole start by `imas run` less the whole start of the same program with the same environment set by
hand.
"""

import figures
import injection
import process
import stores
from figures import Row

WHAT = "imas run before exec"
BOUND_MS = 5
ROUNDS, BLOCK = 40, 4
FRESH_STORES, STARTS_EACH = 12, 3
PROGRAMS = 1000


def _command(place):
    """A program that has allocated and ends at once: /bin/true never allocates, so its trials have no
    figures."""
    return [place.program("pairs"), "same", "1000"]


def _settled(place, store, candidate, library):
    command = _command(place)
    place.call("pin", command[0], candidate, store=store)
    ways = {
        "without": ({"LD_PRELOAD": f"{place.guard}:{library}"} if library else {}, command),
        "with": (place.environment(store), [place.imas, "run", "--", *command]),
    }
    return process.starts(place, ways, ROUNDS, BLOCK)


def _trial_due(place):
    """Fewer starts than there are trials to make, in one new store after the other: each is a trial."""
    command, rounds = _command(place), []
    for number in range(FRESH_STORES):
        store = place.disk / f"fresh-{number}.db"
        place.call("run", "--retest", "0", "--", *command, store=store)
        ways = {
            "without": ({}, injection.trial(place, None, command)),
            "with": (place.environment(store), [place.imas, "run", "--retest", "0", "--", *command]),
        }
        rounds += process.starts(place, ways, STARTS_EACH, 3)
    return rounds


def _row(what, rounds):
    def added(kind):
        values = [{way: both[kind] * 1e3 for way, both in each.items()} for each in rounds]
        return figures.spread(values, lambda m: m["with"] - m["without"], figures.decile)

    wall, cpu = added(0), added(1)
    return Row(f"{WHAT}: {what}", f"<= {BOUND_MS} ms", f"{figures.shown(wall, 2, 'ms')}, CPU {cpu.mid:.2f} ms",
               figures.held(wall, BOUND_MS))


def run(place):
    """Rows of a store with one program and of one with many; the last is of a start that is a trial."""
    library = place.library("mimalloc")
    small = stores.settled(place, "of-1.db", _command(place))
    large = stores.enlarged(place, small, PROGRAMS)
    rows = []
    for label, store in (("1 program", small), (f"{PROGRAMS} programs of 30 trials", large)):
        rows.append(_row(f"{label}, system", _settled(place, store, "system", None)))
        rows.append(_row(f"{label}, mimalloc", _settled(place, store, "mimalloc", library)))
    rows.append(_row("a trial is due", _trial_due(place)))
    return rows
