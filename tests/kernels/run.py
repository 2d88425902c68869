#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kernels/run.py IMAS [-k PART]: kernels that lack system calls.

A seccomp filter answers ENOSYS, as Linux 5.10 and older do, for each of the calls below, and for all of them together.
Under it, programs start as untouched, each command of imas does its work or says what is missing, and `imas doctor` names
what is lost."""

import ctypes
import errno
import json
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "testing"))
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
from imas_testing import Failed, Skipped, case, finish, run, until  # noqa: E402

# Numbers of x86-64, of aarch64 (the same for all calls since 5.0), and the Linux that has them.
CALLS = {"statx": (332, 291, "4.11"), "rseq": (334, 293, "4.18"), "pidfd_send_signal": (424, 424, "5.1"), "clone3": (435, 435, "5.3"),
         "pidfd_open": (434, 434, "5.3"), "close_range": (436, 436, "5.9"), "openat2": (437, 437, "5.6"), "faccessat2": (439, 439, "5.8"),
         "epoll_pwait2": (441, 441, "5.11"), "memfd_create": (319, 279, "3.17"), "membarrier": (324, 283, "4.3"),
         "perf_event_open": (298, 241, "2.6.31"), "fchmodat2": (452, 452, "6.6")}
# Without them and perf_event_open something is lost, and `imas doctor` says what. In the place of the others libc and the
# allocators have another way.
NEEDED = {"pidfd_open", "openat2", "memfd_create"}
SETS = {**{name: [name] for name in CALLS}, "all": list(CALLS)}

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS

SQL = ("create table t(a); with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i from n; "
       "select count(*), sum(a) from t;")
WORK = ["sqlite3", ":memory:", SQL]


def instruction(code, if_true, if_false, value):
    return struct.pack("=HBBI", code, if_true, if_false, value)


def refuse(names):
    """In a child before exec: from now on these calls answer ENOSYS."""
    column = 0 if platform.machine() == "x86_64" else 1
    numbers = [CALLS[name][column] for name in names]
    lines = [instruction(LOAD, 0, 0, 0)]
    lines += [instruction(EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    lines += [instruction(RETURN, 0, 0, ALLOW), instruction(RETURN, 0, 0, REFUSE)]
    text = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("=HxxxxxxQ", len(lines), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def without(names, *words, **options):
    return run(*words, preexec_fn=lambda: refuse(names), **options)


def filter_works():
    ended = without(["memfd_create"], "python3", "-c", "import os; os.memfd_create('x')")
    if "Function not implemented" not in ended.stderr:
        raise Skipped(f"no seccomp filter can be set here: {ended}")


def commands(imas, names, variables):
    plain = run(*WORK, must=True)
    for candidate in ("mimalloc", "glibc:arena1"):
        ended = without(names, imas, "run", "--candidate", candidate, "--", *WORK, env=variables)
        if not (ended == plain and ended.stderr == ""):
            raise Failed(f"run under {candidate}: {ended}")
    ended = without(names, imas, "run", "--", *WORK, env=variables)
    if not (ended == plain and ended.stderr == ""):
        raise Failed(f"run: {ended}")
    if names == SETS["all"]:  # it takes long
        bench = without(names, imas, "bench", "--runs", "2", "--with", "mimalloc", "--", *WORK, env=variables)
        if bench.returncode != 0 or "mimalloc" not in bench.stdout:
            raise Failed(f"bench: {bench}")
        for words in (["list"], ["show"], ["doctor"], ["top", "--once"], ["advise"], ["explain", "sqlite3"]):
            ended = without(names, imas, *words, env=variables)
            if ended.returncode not in (0, 1) or "panicked" in ended.stderr:
                raise Failed(f"{words}: {ended}")


def findings(ended):
    """What `imas doctor --json` has found, by the thing that was looked at."""
    return {one["what"]: one for one in json.loads(ended.stdout)["findings"]}


def doctor(imas, names, variables):
    """What is lost is in a line, and nothing else is called lost or broken."""
    whole = findings(run(imas, "doctor", "--json", env=variables))
    ended = without(names, imas, "doctor", "--json", env=variables)
    found = findings(ended)
    calls = found["system calls"]
    if set(re.findall(r"without (\w+) ", calls["says"])) != NEEDED & set(names):
        raise Failed(f"missing calls: {calls}")
    if calls["state"] != ("note" if NEEDED & set(names) else "ok"):
        raise Failed(f"state of the missing calls: {calls}")
    if "perf_event_open" in names and found["hardware counters"]["state"] != "note":
        raise Failed(f"counters: {found['hardware counters']}")
    broken = {what for what, one in found.items() if one["state"] == "broken"}
    if broken - {what for what, one in whole.items() if one["state"] == "broken"}:
        raise Failed(f"broken: {broken}: {ended.stdout}")


def looked_at(imas, names, variables):
    """A running process, from outside."""
    sleeper = subprocess.Popen(["python3", "-c", "x = [str(i) for i in range(100000)]; print(flush=True); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        sleeper.stdout.readline()
        ended = without(names, imas, "explain", "--pid", str(sleeper.pid), env=variables)
        if ended.returncode != 0 or "MiB" not in ended.stdout:
            raise Failed(f"explain --pid: {ended}")
    finally:
        sleeper.kill()
        sleeper.wait()


def daemon(imasd, names, folder, library):
    """imasd of a user starts, publishes its index, and ends when it is asked to."""
    words = [imasd, "--user", "--run-dir", folder / "run", "--store", folder / "imas.db", "--lib-dir", library]
    process = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True, preexec_fn=lambda: refuse(names))
    index = folder / "run/state/index"
    errors = ""
    try:
        until(lambda: index.exists() or process.poll() is not None)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=imas_testing.LIMIT_S * imas_testing.SLOWNESS)
    if not index.exists() or process.returncode != 0 or "panicked" in errors:
        raise Failed(f"imasd: {process.returncode}: {errors[-1000:]}")


def main():
    parser = imas_testing.Arguments(__doc__)
    parser.add_argument("imas")
    options = parser.parse_args()
    imas = pathlib.Path(options.imas).resolve()
    library = os.environ.get("IMAS_LIB_DIR", HERE.parent.parent / "build/lib/imas")
    case("the filter", filter_works)
    for label, names in SETS.items():
        with tempfile.TemporaryDirectory(prefix="imas-kernels-") as folder:
            variables = {**os.environ, "IMAS_LIB_DIR": str(library), "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
            case(f"commands without {label}", commands, imas, names, variables)
            case(f"doctor without {label}", doctor, imas, names, variables)
            case(f"a process looked at without {label}", looked_at, imas, names, variables)
            case(f"imasd without {label}", daemon, imas.with_name("imasd"), names, pathlib.Path(folder), library)
    finish("kernels")


if __name__ == "__main__":
    main()
