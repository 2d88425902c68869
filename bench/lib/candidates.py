# SPDX-License-Identifier: Apache-2.0
"""Every candidate of this machine compared with glibc in one run: a pair of 64 bytes, and the start of a
process."""

import figures
import process
from figures import Row

WHAT = "candidate"
TIMED = 2_000_000
ROUNDS = 9
STARTS, BLOCK = 25, 4


def pairs(place, ways):
    """Rounds of {(name, pairs): CPU s} of the timed loop and of the empty one; ways: {name: variables}."""
    levels = process.leveled({name: {**place.environment(), **variables} for name, variables in ways.items()})
    commands = {(name, count): [place.program("pairs"), "same", str(count)] for name in ways for count in (0, TIMED)}
    return process.interleaved(lambda way: process.cpu_of(commands[way], levels[way[0]]), commands, ROUNDS)


def pair_cost(name):
    """The figure: ns of one pair under that candidate."""
    return lambda m: (m[name, TIMED] - m[name, 0]) * 1e9 / TIMED


def starts(place, ways):
    """Rounds of {name: s} of starting /bin/true."""
    commands = {name: (variables, ["/bin/true"]) for name, variables in ways.items()}
    return [{name: both[0] for name, both in each.items()} for each in process.starts(place, commands, STARTS, BLOCK)]


def costs(place, ways):
    """For each name, as text: a pair, and what a start takes beyond that under glibc."""
    timed, started = pairs(place, ways), starts(place, ways)
    for name in ways:
        cost = pair_cost(name)
        ns = figures.spread(timed, cost)
        ratio = figures.spread(timed, lambda m, of=cost: of(m) / pair_cost("glibc")(m))
        more = figures.spread(started, lambda m, of=name: (m[of] - m["glibc"]) * 1e3, figures.decile)
        yield name, f"{ns.mid:.1f} ns, {figures.shown(ratio, 2)} of glibc's", figures.shown(more, 2, "ms", "+")


def run(place):
    """One row a candidate, glibc first. No bounds: IMAS promises nothing about allocators."""
    ways = {"glibc": {}, **place.candidates()}
    return [Row(f"{WHAT} {name}: pair of 64 bytes; start", "-", f"{pair}; {start}", "-") for name, pair, start in costs(place, ways)]
