# SPDX-License-Identifier: Apache-2.0
"""Trial mode compared with production, the same allocator in both: whole real programs."""

import figures
import injection
import instructions
import process
import programs
from figures import Interval, Row

WHAT = "trial compared with production"
BOUND = 1.03
ROUNDS = 30


def _counted(place, program, name, library):
    environment = place.environment()
    plain = instructions.count(place, injection.production(place, library, program.short), environment,
                               program.drive_short)
    counted = instructions.count(place, injection.trial(place, library, program.short, counted_by_valgrind=True),
                                 environment, program.drive_short)
    calls = injection.check_trial(place, library)["calls"]
    ratio = counted / plain
    note = f"{plain / 1e6:.0f} M, {sum(calls.values()) * 1e3 / plain:.2f} calls per 1000"
    return Row(f"{WHAT}, {program.name}, {name}: instructions", "<= 1.03", f"{ratio:.4f} ({note})",
               figures.held(Interval(ratio, ratio, ratio), BOUND))


def _timed(place, program, name, library):
    ways = {
        "production": injection.production(place, library, program.command),
        "trial": injection.trial(place, library, program.command),
    }
    environment = place.environment()
    rounds = process.interleaved(lambda way: process.cpu_of(ways[way], environment, program.drive), ways, ROUNDS)
    injection.check_trial(place, library)
    ratio = figures.spread(rounds, lambda m: m["trial"] / m["production"])
    least = figures.centres(rounds, figures.decile)
    note = f"{ROUNDS} pairs of {least['production']:.2f} s; of the deciles {least['trial'] / least['production']:.3f}"
    return Row(f"{WHAT}, {program.name}, {name}: user+sys CPU", "<= 1.03", f"{figures.shown(ratio, 3)} ({note})",
               figures.held(ratio, BOUND))


def run(place):
    """Two rows a program and library: instructions and CPU time. Programs that are not installed have a row
    that shows it."""
    rows = []
    there, missing = programs.available()
    rows += [Row(f"{WHAT}, {name}", "<= 1.03", "not installed", "-") for name in missing]
    libraries = {"system": None, "mimalloc": place.library("mimalloc")}
    for program in there:
        for name, library in libraries.items():
            rows.append(_counted(place, program, name, library))
            rows.append(_timed(place, program, name, library))
    return rows
