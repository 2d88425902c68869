#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/arm/counted.py: instructions of a pair of malloc and free in production and in a trial, and of a start with and
without the guard. Cachegrind counts them, so that two kinds of machine can be compared, an emulated one too. Needs the hook
and mimalloc, built."""

import pathlib
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "tests/testing"), str(PROJECT / "bench/lib")]
sys.dont_write_bytecode = True

import instructions  # noqa: E402
import pair  # noqa: E402
import start  # noqa: E402
from imas_testing import Arguments, check, finish, skipped  # noqa: E402
from place import Place  # noqa: E402

STARTS = ["plain", "guard", "hand:mimalloc", "guard:mimalloc", "trial", "trial:mimalloc"]


def counted(place, mimalloc):
    """Pairs of a name and a number of instructions."""
    for kind in ("same", "mixed"):
        for name, library in (("system", None), ("mimalloc", mimalloc)):
            production, trial = pair.counted_per_pair(place, kind, library)
            yield f"a pair, {kind} sizes, {name}, production", production
            yield f"a pair, {kind} sizes, {name}, trial", trial
    ways = start.ways_of(place, {"mimalloc": {"LD_PRELOAD": mimalloc}}, [place.program("pairs"), "same", "1"], counted_by_valgrind=True)
    for way in STARTS:
        variables, command = ways[way]
        yield f"a start, {way}", instructions.count(place, command, {**place.environment(), **variables})


def main():
    Arguments(__doc__).parse_args()
    place = Place("imas")  # none is run
    mimalloc = place.lib / "allocators/libmimalloc.so"
    if not (place.lib / "libimas-guard.so").exists() or not mimalloc.exists():
        skipped("counted", "the hook or mimalloc is not built (make hook; allocators/build.sh mimalloc)")
        finish("counted")
    try:
        for name, count in counted(place, str(mimalloc)):
            print(f"{name}: {count:.1f} instructions", flush=True)
            check(name, count > 0, count)
    finally:
        place.close()
    finish("counted")


if __name__ == "__main__":
    main()
