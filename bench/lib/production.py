# SPDX-License-Identifier: Apache-2.0
"""Production by `imas run` compared with preloading by hand: the cost of a malloc-heavy loop."""

import statistics

import figures
import instructions
import process
import stores
from figures import Row

WHAT = "production compared with preloading by hand"
FEW, MANY = 20_000, 60_000  # pairs, under cachegrind
TIMED = 6_000_000
ROUNDS = 15
REPEATS = 3
SAME = 0.0005  # of the ratio, beyond the differences between runs of preloading by hand (jemalloc's random choices: 0.5 %)


def _by_run(place, store, count):
    return [place.imas, "run", "--", place.program("pairs"), "mixed", str(count)], place.environment(store)


def by_hand(place, variables, count):
    return [place.program("pairs"), "mixed", str(count)], {**place.environment(), **variables}


def per_pair(place, way):
    few, many = (instructions.count(place, *way(count)) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _counted(place, store, name, variables):
    run, hand = [], []
    for _ in range(REPEATS):
        run.append(per_pair(place, lambda count: _by_run(place, store, count)))
        hand.append(per_pair(place, lambda count: by_hand(place, variables, count)))
    middle, usual = statistics.median(run), statistics.median(hand)
    same = min(hand) * (1 - SAME) <= middle <= max(hand) * (1 + SAME)
    return Row(f"{WHAT}, {name}: instructions of the loop", "1.00",
               f"{middle / usual:.4f} ({middle:.2f} / {usual:.2f} a pair; by hand {min(hand):.2f} to {max(hand):.2f})",
               "yes" if same else "no")


def _timed(place, store, name, variables):
    """The loop alone: the cost of the same start with an empty loop is subtracted."""
    ways = {
        "run": _by_run(place, store, TIMED), "run, empty": _by_run(place, store, 0),
        "hand": by_hand(place, variables, TIMED), "hand, empty": by_hand(place, variables, 0),
    }
    levels = process.leveled({way: environment for way, (_, environment) in ways.items()})
    rounds = process.interleaved(lambda way: process.cpu_of(ways[way][0], levels[way]), ways, ROUNDS)
    ratio = figures.spread(rounds, lambda m: (m["run"] - m["run, empty"]) / (m["hand"] - m["hand, empty"]))
    return Row(f"{WHAT}, {name}: CPU time of the loop", "1.00", figures.shown(ratio, 3),
               "yes" if ratio.lo <= 1 <= ratio.hi else "open" if ratio.lo <= 1.01 else "no")


def run(place):
    """Two rows for each library of the default set: instructions and CPU time, `imas run` compared with
    preloading by hand."""
    command = [place.program("pairs"), "mixed", "1000"]
    store = stores.settled(place, "production.db", command)
    rows = []
    for name, variables in place.default_set().items():
        # Pinned, so that a change of the machine's load does not change the pick between runs; the way to
        # exec is the same.
        place.call("pin", command[0], name, store=store)
        rows.append(_counted(place, store, name, variables))
        rows.append(_timed(place, store, name, variables))
    return rows
