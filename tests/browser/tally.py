# SPDX-License-Identifier: Apache-2.0
"""Counts the checks of a test of pages."""

import sys

passed = failed = 0


def check(name, holds, found=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {name} {found}")


def finish():
    """Prints the counts and ends the program."""
    print(f"browser: {passed} passed, {failed} failed")
    sys.exit(failed > 0)
