# SPDX-License-Identifier: Apache-2.0
"""One case under one candidate in one mode, compared with the untouched program. A difference must repeat
before it counts."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

import outcome
import start

SAME, SOMETIMES, DIFFERS = "same", "sometimes", "differs"
AGAIN = 2  # more runs after one that differs
SLOWER, LEAST_S, MOST_S = 12, 10, 150  # the deadline, from how long the untouched program took


@dataclasses.dataclass(frozen=True)
class Verdict:
    """result: SAME, SOMETIMES or DIFFERS. served: see start.served. slow: how many times the untouched run's
    time it took."""

    case: str
    candidate: str
    mode: str
    result: str
    detail: str
    served: str
    seconds: float
    plain_seconds: float


def untouched(case):
    """The untouched program, twice; a text instead of an outcome if the two differ: such a case cannot be
    compared."""
    most = case.seconds or 60
    runs = [outcome.run(start.untouched(case), start.environment(case), most, user=case.user, filters=case.filters)
            for _ in range(2)]
    if runs[0].status in ("hangs", "loops"):
        return f"untouched, it {runs[0].status}"
    differs = runs[1].difference(runs[0], case.stderr)
    return f"untouched, two runs differ: {differs}" if differs else max(runs, key=lambda run: run.seconds)


def deadline(case, plain):
    """When a run counts as hanging."""
    return case.seconds or min(MOST_S, max(LEAST_S, SLOWER * plain.seconds))


def _once(case, candidate, mode, plain):
    pages = Path(tempfile.mkdtemp(prefix="imas-compatibility-", dir=start.PAGES))
    try:
        if case.user:
            shutil.chown(pages, case.user)
        command = start.under(case, candidate, mode, pages / "first.page")
        ended = outcome.run(command, start.environment(case), deadline(case, plain), user=case.user, filters=case.filters)
        return ended, start.served(pages / "first.page")
    finally:
        shutil.rmtree(pages, ignore_errors=True)


def compare(case, candidate, mode, plain):
    """Runs and compares; three runs when the first differs."""
    runs = [_once(case, candidate, mode, plain) for _ in range(case.repeat)]
    details = [ended.difference(plain, case.stderr) for ended, _ in runs]
    if any(details):
        standing = sum(ended.status in ("hangs", "loops") for ended, _ in runs)
        for _ in range(AGAIN if not standing else 0):
            runs.append(_once(case, candidate, mode, plain))
            details.append(runs[-1][0].difference(plain, case.stderr))
    bad = [detail for detail in details if detail]
    result = SAME if not bad else DIFFERS if len(bad) == len(details) else SOMETIMES
    detail = (bad[0] + (f" ({len(bad)} of {len(details)} runs)" if result == SOMETIMES else "")) if bad else ""
    slowest = max(ended.seconds for ended, _ in runs)
    return Verdict(case.name, candidate["name"], mode, result, detail, runs[0][1], round(slowest, 2), round(plain.seconds, 2))
