# SPDX-License-Identifier: Apache-2.0
"""Programs cannot see our handler of fatal signals: each ends and prints as it does untouched."""

import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import ALL_MODES, GUARD, HERE, LIB, WORK, check, compile_program, run, skipped, under, wanted

# What the page must note of each way of programs/handlers.c.
NOTED = {"chained": signal.SIGSEGV, "chained-raw": signal.SIGSEGV, "chained-jump": signal.SIGSEGV,
         "chained-raw-one": signal.SIGSEGV, "chained-abort": signal.SIGABRT, "one-argument": signal.SIGFPE,
         "default-again": signal.SIGSEGV, "default-sysv": signal.SIGSEGV, "raised-again": signal.SIGABRT,
         "reset-hand": signal.SIGBUS, "ignored-sent": 0, "ignored-fault": 0, "overflow-handled": 0,
         "overflow-default": signal.SIGSEGV, "blocked": 0, "reads": 0, "forked": 0, "vforked": signal.SIGABRT,
         "threads": signal.SIGFPE, "filtered-abort": signal.SIGABRT, "filtered-kill": signal.SIGFPE}


def without_page(allocator, command, **options):
    """Runs the command under a guard that has no page, as a child below --follow does."""
    libraries = [str(GUARD)] + ([] if allocator == "system" else [f"{LIB}/allocators/lib{allocator}.so"])
    environment = options.pop("env", os.environ)
    if "LD_PRELOAD" in environment:
        libraries.append(environment["LD_PRELOAD"])
    environment = {**environment, "LD_PRELOAD": ":".join(libraries), "IMAS_UNSET": "LD_PRELOAD"}
    return run(command, env=environment, **options)


def as_it_is(text):
    return text


def same(name, command, noted, allocators, plainly=as_it_is, **options):
    """Status, standard output and standard error are the untouched program's, and the page notes
    `noted`."""
    if not wanted(name):
        return
    seen = lambda outcome: (outcome.returncode, plainly(outcome.stdout), plainly(outcome.stderr))
    plain = run(command, **options)
    for allocator in allocators:
        for mode in ALL_MODES:
            outcome, left = under(mode, allocator, command, **options)
            check(f"{name} {mode} {allocator}", seen(outcome) == seen(plain), f"{outcome}\n  untouched: {plain}")
            check(f"{name} {mode} {allocator} noted", left["fatal_signal"] == noted, left["fatal_signal"])
        outcome = without_page(allocator, command, **options)
        check(f"{name} without a page {allocator}", seen(outcome) == seen(plain), f"{outcome}\n  untouched: {plain}")


# ---- C and Python --------------------------------------------------------------------------------------------


def handlers_of_c(allocators):
    if not wanted("handlers"):
        return
    compile_program("handlers")
    for way, noted in NOTED.items():
        same(f"handlers {way}", [WORK / "handlers", way], int(noted), allocators, timeout=60)


RESTORES = """import signal
def mine(*_): pass
old = signal.signal(signal.SIGABRT, mine)
print(old, signal.signal(signal.SIGABRT, old) is mine, signal.getsignal(signal.SIGSEGV))"""
FAULT = "import ctypes, faulthandler; {}; ctypes.string_at(8)"


def without_addresses(text):
    return re.sub(rb"0x[0-9a-f]+", b"0x", text)


def handlers_of_python(allocators):
    run_it = [sys.executable, "-c"]
    same("handlers python restores", [*run_it, RESTORES], 0, allocators)
    same("handlers python faults", [*run_it, FAULT.format("0")], int(signal.SIGSEGV), allocators)
    same("handlers python faulthandler", [*run_it, FAULT.format("faulthandler.enable()")], int(signal.SIGSEGV), allocators,
         plainly=without_addresses)
    same("handlers python aborts", [*run_it, "import faulthandler, os; faulthandler.enable(); os.abort()"], int(signal.SIGABRT),
         allocators, plainly=without_addresses)


# ---- Rust, Go, Java ------------------------------------------------------------------------------------------


def missing(name, *tools):
    """Prints SKIPPED if a tool that the test needs is missing."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        skipped(name, f"{', '.join(absent)} not installed")
    return bool(absent)


def built(name, command, **options):
    """Whether the command, which builds a test's program, worked."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    return check(f"{name} builds", done.returncode == 0, done.stderr[-2000:])


def without_numbers(text):
    return re.sub(rb"\d+", b"N", text)


def handlers_of_rust(allocators):
    name = "handlers rust"
    if not wanted(name) or missing(name, "rustc"):
        return
    program, part = WORK / "crashes", WORK / "faults.o"
    subprocess.run(["gcc", "-c", "-O1", "-o", part, HERE / "programs/faults.c"], check=True)
    if not built(name, ["rustc", "-O", "-C", f"link-arg={part}", "-o", program, HERE / "programs/crashes.rs"]):
        return
    for way, noted in [("overflow", signal.SIGABRT), ("thread", signal.SIGABRT), ("abort", signal.SIGABRT), ("fine", 0)]:
        same(f"{name} {way}", [program, way], int(noted), allocators, plainly=without_numbers)
    same(f"{name} fault", [program], int(signal.SIGSEGV), allocators, env={**os.environ, "FAULT_AT_END": "1"})


def first_line(text):
    return text.split(b"\n")[0]


def handlers_of_go(allocators):
    name = "handlers go"
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not wanted(name):
        return
    if go is None:
        skipped(name, "go is not installed")
        return
    environment = {**os.environ, "CGO_ENABLED": "1", "GO111MODULE": "off", "GOFLAGS": ""}
    environment.setdefault("GOCACHE", str(WORK / "go-cache"))
    if built(name, [go, "build", "-o", WORK / "crash_go", HERE / "programs/crash.go"], env=environment):
        same(name, [WORK / "crash_go"], 0, allocators, plainly=first_line)
        crashing = {**os.environ, "GOTRACEBACK": "crash"}
        same(f"{name} as a crash", [WORK / "crash_go"], int(signal.SIGABRT), allocators, plainly=first_line, env=crashing)


def handlers_of_java(allocators):
    name = "handlers java"
    if not wanted(name) or missing(name, "java", "javac"):
        return
    if not built(name, ["javac", "-nowarn", "-d", WORK, HERE / "programs/Faults.java"]):
        return
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        report = pathlib.Path(folder) / "hs_err.log"
        command = ["java", "-Xmx64m", f"-XX:ErrorFile={report}", "-cp", WORK, "Faults"]
        same(f"{name} null pointers", [*command, "null"], 0, allocators)
        same(f"{name} crash", [*command, "crash"], int(signal.SIGABRT), allocators, plainly=lambda text: text[:40])
        watchers = sorted(pathlib.Path(os.path.realpath(shutil.which("java"))).parents[1].rglob("libjsig.so"))[:1]
        if not watchers:
            skipped(f"{name} with libjsig", "this Java has no libjsig.so")
        for watcher in watchers:
            chains = {**os.environ, "LD_PRELOAD": str(watcher)}
            same(f"{name} null pointers with libjsig", [*command, "null"], 0, allocators, env=chains)
            same(f"{name} crash with libjsig", [*command, "crash"], int(signal.SIGABRT), allocators, env=chains,
                 plainly=lambda text: text[:40])
        for allocator in allocators:
            for mode in ALL_MODES:
                report.unlink(missing_ok=True)
                under(mode, allocator, [*command, "crash"])
                text = report.read_text(errors="replace") if report.exists() else ""
                check(f"{name} report {mode} {allocator}", "SIGSEGV (0xb)" in text and "imas" not in signals_of(text), text[:300])


def signals_of(report):
    """The part of a report of Java's that lists the handlers of signals."""
    found = re.search(r"Signal Handlers:\n(.*?)\n\n", report, re.S)
    return found[1] if found else ""


def handlers(allocators, few):
    """`few` for the runtimes that take seconds to start or end."""
    core = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))  # Java's core files are large; endings() checks cores
    handlers_of_c(allocators)
    handlers_of_python(few)
    handlers_of_rust(few)
    handlers_of_go(few)
    handlers_of_java(few)
    resource.setrlimit(resource.RLIMIT_CORE, core)
