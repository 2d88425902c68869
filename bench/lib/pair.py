# SPDX-License-Identifier: Apache-2.0
"""The cost that trial mode adds to one malloc and free."""

import figures
import injection
import instructions
import process
from figures import Row

WHAT = "trial mode, per malloc+free pair"
FEW, MANY = 20_000, 120_000  # pairs, under cachegrind
TIMED = 4_000_000
ROUNDS = 20
BOUND_NS = 4


def counted_per_pair(place, kind, library):
    """Instructions of a pair in production, and in a trial."""
    def per_pair(start):
        few, many = (instructions.count(place, start([place.program("pairs"), kind, str(count)]), place.environment())
                     for count in (FEW, MANY))
        return (many - few) / (MANY - FEW)

    plain = per_pair(lambda command: injection.production(place, library, command))
    counted = per_pair(lambda command: injection.trial(place, library, command, counted_by_valgrind=True))
    return plain, counted


def _timed(place, kind, library):
    """ns added; the cost of the same start with an empty loop is subtracted."""
    def command(count):
        return [place.program("pairs"), kind, str(count)]

    ways = {
        "production": injection.production(place, library, command(TIMED)),
        "production, empty": injection.production(place, library, command(0)),
        "trial": injection.trial(place, library, command(TIMED)),
        "trial, empty": injection.trial(place, library, command(0)),
    }
    environment = place.environment()
    rounds = process.interleaved(lambda way: process.cpu_of(ways[way], environment), ways, ROUNDS)
    ns = 1e9 / TIMED
    plain = figures.spread(rounds, lambda m: (m["production"] - m["production, empty"]) * ns)
    added = figures.spread(rounds, lambda m: (m["trial"] - m["trial, empty"] - m["production"] + m["production, empty"]) * ns)
    return plain, added


def run(place):
    """Rows of one size and of mixed ones, each under system and mimalloc: the cost of the trial, in ns and in
    instructions."""
    rows = []
    libraries = {"system": None, "mimalloc": place.library("mimalloc")}
    for kind, label in (("same", "64 bytes"), ("mixed", "16 to 271 bytes, random")):
        for name, library in libraries.items():
            plain, counted = counted_per_pair(place, kind, library)
            ns, added = _timed(place, kind, library)
            measured = (f"{figures.shown(added, 1, 'ns', '+')} over {ns.mid:.1f} ns; "
                        f"+{counted - plain:.1f} instructions over {plain:.1f}")
            rows.append(Row(f"{WHAT}, {label}, {name}", f"<= +{BOUND_NS} ns", measured, figures.held(added, BOUND_NS)))
    return rows
