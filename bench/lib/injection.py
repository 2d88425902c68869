# SPDX-License-Identifier: Apache-2.0
"""Starts a program in each mode, and checks which allocator served it.

tests/hook/launch.c starts both modes as `imas run` does after it has decided, so that a comparison contains nothing
but the modes.
"""

import sys

from place import ROOT

sys.path.insert(0, str(ROOT / "tests" / "hook"))
import page  # noqa: E402  (tests/hook/page.py)


def _libraries(first, library):
    return ":".join(filter(None, (first, library)))


def production(place, library, command):
    """Under the guard; the program untouched when there is no library."""
    launch = [place.program("launch")]
    if library:
        launch += ["-g", "-p", str(place.scratch / "flight.page"), "-l", _libraries(place.guard, library)]
    return [*launch, "--", *command]


def trial(place, library, command, counted_by_valgrind=False):
    """Under the hook, with a page."""
    libraries = _libraries(place.hook, library)
    if counted_by_valgrind:
        libraries += ":" + place.program("unveil.so")
    return [place.program("launch"), "-p", str(place.scratch / "trial.page"), "-l", libraries, "--", *command]


def check_trial(place, library):
    """The page of the latest trial; an error if nothing was counted or the wrong allocator served."""
    read = page.read(str(place.scratch / "trial.page"))
    expected = library.rsplit("/lib", 1)[1].removesuffix(".so") if library else "lib"
    if read["state"] != "TRIAL" or read["calls"]["malloc"] == 0 or not read["served"].startswith(expected):
        raise RuntimeError(f"no trial: state {read['state']}, {read['pass_reason']}, served by {read['served']!r}")
    return read
