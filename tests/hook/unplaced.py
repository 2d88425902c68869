# SPDX-License-Identifier: Apache-2.0
"""Programs that libimas-preload.so does not place."""

import ctypes
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import harness
from harness import WORK, check, skipped, wanted
from stub import (BY_DESCRIPTOR, BY_NAME, FLIGHT, LEFT_OPEN, LIBRARIES, PID1, SHOWN, USER, entry, is_placed, left_alone, limit, pages, placed, publish,
                  switch, with_and_without, with_stub)


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]


def enter_seccomp():
    """A filter that kills at prctl and getpid, which ld.so does not call."""
    allowed = 0x7FFF0000
    killed = 0x80000000
    numbers = {"x86_64": [157, 39], "aarch64": [167, 172]}[harness.MACHINE]
    steps = [Filter(0x20, 0, 0, 0), *(Filter(0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)),
             Filter(0x06, 0, 0, allowed), Filter(0x06, 0, 0, killed)]
    array = (Filter * len(steps))(*steps)
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.byref(Program(len(steps), array)), 0, 0) == 0


def names():
    """Programs of one file are told apart by the name by which they are started."""
    links = {name: SHOWN.with_name(name) for name in ["server", "sentinel", "shown-2.1"]}
    for link in links.values():
        link.symlink_to(SHOWN)
    publish(entry(SHOWN, f"flags={BY_NAME}", candidate="system"), entry(SHOWN, f"flags={FLIGHT}", "name=server"))
    placed("name: its own entry", [links["server"]])
    left_alone("name: the file's is another program", [SHOWN])
    left_alone("name: unknown", [links["sentinel"]])
    publish(entry(SHOWN, f"flags={FLIGHT | BY_NAME}"), entry(SHOWN, "name=server", candidate="system"))
    placed("name: the file's own", [SHOWN])
    placed("name: with a version", [links["shown-2.1"]])
    left_alone("name: the server is settled", [links["server"]])
    left_alone("name: unknown beside the file's", [links["sentinel"]])
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    placed("name: not asked for", [links["sentinel"]])


def checkers():
    """A machine that preloads a memory checker keeps it. Another library there changes nothing."""
    publish(entry(WORK / "asks", f"flags={FLIGHT}"))
    for name in ["checker", "checker-rare"]:
        if wanted(name):
            outcome, left = with_stub([WORK / "asks"], str(WORK / f"lib{name}.so"))
            check(f"{name}: not placed", outcome.stderr == b"checked\n" and outcome.returncode == 0 and not left, f"{outcome} {left}")
    if wanted("another library"):
        outcome, left = with_stub([WORK / "asks"], str(WORK / "audit.so"))
        check("another library: placed", outcome.returncode == 0 and len(left) == 1, f"{outcome} {left}")


def processes_left_alone():
    publish(entry(SHOWN, f"flags={FLIGHT}"), entry(WORK / "seven-static", f"flags={FLIGHT}"),
            *(entry(WORK / name, f"flags={FLIGHT}") for name in ["seven-32", "seven-musl", "bare"] if (WORK / name).exists()))
    left_alone("static", [WORK / "seven-static"])
    for name, status in [("seven-32", 7), ("seven-musl", 7), ("bare", 9)]:
        if wanted(name) and (WORK / name).exists():
            plain, outcome, _ = with_and_without([WORK / name])
            check(f"{name}: same", outcome == plain and outcome.returncode == status and outcome.stderr == b"", f"{outcome} {plain}")
    left_alone("switched off", [SHOWN], env={"IMAS_DISABLE": "1"})
    left_alone("address space", [SHOWN], preexec_fn=limit(resource.RLIMIT_AS, 8 << 30))
    left_alone("data", [SHOWN], preexec_fn=limit(resource.RLIMIT_DATA, 8 << 30))
    left_alone("file size", [SHOWN], preexec_fn=limit(resource.RLIMIT_FSIZE, 4096))
    left_alone("auditor", [SHOWN], env={"LD_AUDIT": str(WORK / "audit.so")})
    left_alone("own preload", [SHOWN], env={"LD_PRELOAD": str(WORK / "audit.so")})
    left_alone("own preload beside ours", [SHOWN], env={"LD_PRELOAD": f"{LIBRARIES}/libimas-preload.so:{WORK}/audit.so"})
    left_alone("another launcher", [SHOWN], env={"IMAS_WAS_A": "1", "A": "2"})
    left_alone("by ld.so", [harness.LOADER, SHOWN, "1"])
    left_alone("fexecve", [sys.executable, "-c", BY_DESCRIPTOR.format(path=SHOWN, more="")])
    left_alone("fexecve, left open", [sys.executable, "-c", BY_DESCRIPTOR.format(path=SHOWN, more=LEFT_OPEN)])
    left_alone("deleted", [sys.executable, "-c", BY_DESCRIPTOR.format(path="/run/gone", more="os.unlink('/run/gone')").replace(
        "import os", f"import os, shutil; shutil.copy('{SHOWN}', '/run/gone')", 1)])
    if shutil.which("strace"):
        left_alone("traced", ["strace", "-o", "/dev/null", SHOWN])
    else:
        skipped("traced", "strace is not installed")
    left_alone("process 1", ["unshare", "--pid", "--fork", "--mount-proc", SHOWN])
    publish(entry(SHOWN, f"flags={FLIGHT | PID1}"))
    if wanted("process 1, allowed"):
        plain, outcome, left = with_and_without(["unshare", "--pid", "--fork", "--mount-proc", SHOWN])
        check("process 1, allowed", outcome == plain and is_placed(outcome, left) and left[0]["pid"] == 1, f"{outcome.stderr} {left}")
    seccomp()
    privileged()
    no_proc()
    arguments_at_the_limit()


def seccomp():
    """The filter kills at a system call that the stub makes in a process without a filter."""
    for program in ["/bin/true", "/bin/cat"]:
        publish(entry(os.path.realpath(program), f"flags={FLIGHT}"))
        left_alone(f"seccomp {program}", [program], preexec_fn=enter_seccomp)


def no_proc():
    publish(entry(os.path.realpath("/bin/true"), f"flags={FLIGHT}"))
    left_alone("without /proc", ["unshare", "-m", "sh", "-c", f"mount -t tmpfs tmpfs /proc && exec {WORK}/execs /bin/true"])


def privileged():
    """AT_SECURE, by set-user-id and set-group-id programs and the machine's own."""
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    for name, mode in [("set-user-id", 0o4755), ("set-group-id", 0o2755)]:
        program = pathlib.Path(f"/run/{name}")
        shutil.copy(SHOWN, program)
        program.chmod(mode)
        publish(entry(program, f"flags={FLIGHT}"))
        left_alone(name, [*user, program, "1"], env={"IMAS_RUN": "/run/imas", "A": "1"})
        if wanted(name):
            check(f"{name}: no page", not pages(USER))
    for command in [["su", "--version"], ["passwd", "--help"], ["mount", "--version"], ["sudo", "--version"]]:
        path = shutil.which(command[0])
        if path is None:
            skipped(command[0], "it is not installed")
        else:
            publish(entry(os.path.realpath(path), f"flags={FLIGHT}"))
            left_alone(command[0], [*user, path, *command[1:]])


def arguments_at_the_limit():
    """Arguments that just fit into an exec do not fit with our variables: the program continues from the
    first exec."""
    if not wanted("arguments at the limit"):
        return
    publish(entry(os.path.realpath("/bin/true"), f"flags={FLIGHT}"))
    low, high = 0, 30000
    size = 120000
    fits = lambda count: run_quietly(["/bin/true", *["x" * size] * (count // 1000), "y" * (count % 1000 * 100 + 1)])
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    switch(True)
    ends = [fits(count) for count in range(max(low - 5, 0), low + 1)]
    switch(False)
    pages()
    check("arguments at the limit", low > 0 and all(ends), f"{low} {ends}")


def run_quietly(command):
    try:
        return subprocess.run(command, env={}, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False
