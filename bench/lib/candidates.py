# SPDX-License-Identifier: Apache-2.0
"""Every candidate with a library beside glibc in one run: a pair of 64 bytes, and the start of a process."""

import figures
import process
from figures import Row

WHAT = "candidate"
TIMED = 2_000_000
ROUNDS = 9
STARTS, BLOCK = 25, 4


def _pairs(place, libraries):
    def environment(library):
        return {**place.environment(), **({"LD_PRELOAD": library} if library else {})}

    levels = process.leveled({name: environment(library) for name, library in libraries.items()})
    ways = {(name, count): [place.program("pairs"), "same", str(count)] for name in libraries for count in (0, TIMED)}
    return process.interleaved(lambda way: process.cpu_of(ways[way], levels[way[0]]), ways, ROUNDS)


def _starts(place, libraries):
    ways = {name: ({"LD_PRELOAD": library} if library else {}, ["/bin/true"]) for name, library in libraries.items()}
    return [{name: both[0] for name, both in each.items()} for each in process.starts(place, ways, STARTS, BLOCK)]


def run(place):
    libraries = {"glibc": None, **place.candidates()}
    pairs, starts = _pairs(place, libraries), _starts(place, libraries)
    rows = []
    for name in libraries:
        cost = lambda m, of: (m[of, TIMED] - m[of, 0]) * 1e9 / TIMED  # noqa: E731
        ns = figures.spread(pairs, lambda m, of=name: cost(m, of))
        ratio = figures.spread(pairs, lambda m, of=name: cost(m, of) / cost(m, "glibc"))
        more = figures.spread(starts, lambda m, of=name: (m[of] - m["glibc"]) * 1e3, figures.decile)
        rows.append(Row(f"{WHAT} {name}: pair of 64 bytes; start", "-",
                        f"{ns.mid:.1f} ns, {figures.shown(ratio, 2)} of glibc's; {figures.shown(more, 2, 'ms', '+')}", "-"))
    return rows
