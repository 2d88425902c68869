#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/arm/yama.py IMAS: who may look and trim under each kernel.yama.ptrace_scope. It sets that for the whole machine, the
last value for good, and so runs on a machine of its own alone: one of tests/arm/run.py."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests/testing"))
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
from imas_testing import Failed, case, finish, imas_of, run, skipped, until  # noqa: E402

SCOPE = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
NOBODY = 65534
HOLDER = (PROJECT / "tests/programs/holds_free.py").read_text()
# A thread that works pays for trims, which take a hundredth of its CPU time at most: of an emulated processor some minutes.
WORKS = "import threading\ndef work():\n    while True: pass\nthreading.Thread(target=work, daemon=True).start()\n"
LONGEST_S = 180  # and as many times more as the machine is slow


def as_nobody(words, home):
    """Words that run as a user without rights."""
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", f"HOME={home}", *words]


@contextlib.contextmanager
def held(words, **options):
    """The number of a process that is started so, and has filled its heap."""
    child = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    try:
        if child.stdout.readline() != "ready\n":
            raise Failed(f"{words}: {child.wait()}")
        yield child.pid
    finally:
        child.stdin.close()
        child.wait(imas_testing.TIMEOUT_S)


def trimmed(imas, pid, home, uid):
    words = [imas, "trim", str(pid), "--json"]
    return json.loads(run(*(words if uid == 0 else as_nobody(words, home))).stdout)["processes"][0]


def judged(imas, home, pid, uid, refusal):
    """It came back, or was refused with these words. A look has a limit of time, which an emulated processor may need twice."""
    row = {}

    def is_answered():
        nonlocal row
        row = trimmed(imas, pid, home, uid)
        return "took too long" not in (row["why"] or "") and "later try" not in (row["why"] or "")

    until(is_answered)
    if refusal is None and not (row["why"] is None and row["returned_bytes"] > 40 << 20):
        raise Failed(f"not trimmed: {row}")
    if refusal is not None and (row["returned_bytes"] is not None or refusal not in (row["why"] or "")):
        raise Failed(f"not refused with '{refusal}': {row}")


def by_hand(imas, home, uid, refusal):
    """A process that is no child of imas."""
    with held(as_nobody(["python3", "-c", HOLDER, "blocked"], home)) as pid:
        judged(imas, home, pid, uid, refusal)


def by_parent(imas, home):
    """`imas run --trim` is the parent of what it trims, and has no other right."""
    log = home / "said"
    words = [imas, "run", "--trim=1s", "--candidate", "system", "-v", "--", "python3", "-c", WORKS + HOLDER, "blocked"]
    with open(log, "w", encoding="utf-8") as errors, held(as_nobody(words, home), stderr=errors):
        said = until(lambda: [line for line in log.read_text().splitlines() if " back: " in line], LONGEST_S)
    if not said:
        raise Failed(f"not trimmed: {log.read_text()}")


def main():
    imas = imas_of(__doc__)
    if not SCOPE.exists():
        skipped("yama", "this kernel has no yama")
        finish("yama")
    with tempfile.TemporaryDirectory(prefix="imas-yama-") as folder:
        os.chmod(folder, 0o777)
        home = pathlib.Path(folder)
        for scope, of_owner in (("0", None), ("1", "ptrace_scope = 1"), ("2", "ptrace_scope = 2")):
            SCOPE.write_text(scope)
            case(f"scope {scope}: the owner", by_hand, imas, home, NOBODY, of_owner)
            case(f"scope {scope}: root", by_hand, imas, home, 0, None)
            if scope == "1":
                case(f"scope {scope}: a parent", by_parent, imas, home)
        SCOPE.write_text("3")
        case("scope 3: root", by_hand, imas, home, 0, "until the next boot")
    finish("yama")


if __name__ == "__main__":
    main()
