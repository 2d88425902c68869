# SPDX-License-Identifier: Apache-2.0
"""Every candidate of this machine beside glibc in one run: a pair of 64 bytes, and the start of a process."""

import figures
import process
from figures import Row

WHAT = "candidate"
TIMED = 2_000_000
ROUNDS = 9
STARTS, BLOCK = 25, 4


def _pairs(place, candidates):
    levels = process.leveled({name: {**place.environment(), **variables} for name, variables in candidates.items()})
    ways = {(name, count): [place.program("pairs"), "same", str(count)] for name in candidates for count in (0, TIMED)}
    return process.interleaved(lambda way: process.cpu_of(ways[way], levels[way[0]]), ways, ROUNDS)


def _starts(place, candidates):
    ways = {name: (variables, ["/bin/true"]) for name, variables in candidates.items()}
    return [{name: both[0] for name, both in each.items()} for each in process.starts(place, ways, STARTS, BLOCK)]


def run(place):
    candidates = {"glibc": {}, **place.candidates()}
    pairs, starts = _pairs(place, candidates), _starts(place, candidates)
    rows = []
    for name in candidates:
        cost = lambda m, of: (m[of, TIMED] - m[of, 0]) * 1e9 / TIMED  # noqa: E731
        ns = figures.spread(pairs, lambda m, of=name: cost(m, of))
        ratio = figures.spread(pairs, lambda m, of=name: cost(m, of) / cost(m, "glibc"))
        more = figures.spread(starts, lambda m, of=name: (m[of] - m["glibc"]) * 1e3, figures.decile)
        rows.append(Row(f"{WHAT} {name}: pair of 64 bytes; start", "-",
                        f"{ns.mid:.1f} ns, {figures.shown(ratio, 2)} of glibc's; {figures.shown(more, 2, 'ms', '+')}", "-"))
    return rows
