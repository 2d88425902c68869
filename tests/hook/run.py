#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every test of the hook and the guard.

usage: run.py [-k PART] [-a ALLOCATOR]...    only checks with PART in their name; only these allocators (and system)

Every program runs untouched, under the guard and under a trial, with the system's allocator and with each one found in
build/lib/imas/allocators; exit status and output must be the same, and the page must name the allocator that served.
"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True  # writes nothing into the source tree

import page
from again import again
from interfaces import interfaces
from harness import (ALL_MODES, CORE, GUARD, HERE, HOOK, LIB, LOADER, MACHINE, PAGE, PAGES, WORK, build, check, compile_program, finish,
                     imas_testing, launch_command, preloaded, run, same_everywhere, served_by, skipped, try_compile, under, wanted)
from counting import counts, interrupted, killed, live, memory, nothing, split
from followed import children_that_cannot_load
from settings import SETTINGS, settings
from handlers import handlers
from wrapped import wrapped

# ---- what the libraries are ----------------------------------------------------------------------------------

FAMILY = """malloc calloc realloc free memalign posix_memalign aligned_alloc valloc pvalloc malloc_usable_size cfree
free_sized free_aligned_sized mallopt mallinfo mallinfo2 malloc_trim""".split()
DISPOSITIONS = "sigaction signal bsd_signal sysv_signal __sysv_signal sigset sigignore".split()
STARTS = "execve execv execvp execvpe execl execlp execle fexecve posix_spawn posix_spawnp".split()
BOTH = {"dlopen", "dlmopen", "_exit", "_Exit", "__register_atfork", *DISPOSITIONS, *STARTS}
EXPORTS = {HOOK: {*FAMILY, *BOTH, "prctl", "syscall"}, GUARD: {*BOTH, "syscall"},
           SETTINGS: {"getenv", "secure_getenv"}}
# Of the program or of libc, whichever comes first; of the compiler; and those that the guard and the hook look for.
NAMES = {"environ", "__environ", "_environ", "_r_debug", "malloc", "free", "__errno_location",
         "__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}


# On arm64 what is to become read-only, and what may be written, begin at 64 KiB: the largest page that there is.
MOST_BYTES = {"x86_64": 110 << 10, "aarch64": (110 + 3 * 64) << 10}[MACHINE]


def tool(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def libraries():
    for library, exports in EXPORTS.items():
        name = library.name
        defined = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", library).splitlines()}
        check(f"{name} exports", defined == exports, defined ^ exports)
        dynamic = tool("readelf", "-dW", library)
        check(f"{name} needs libc only", re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"], dynamic)
        check(f"{name} binds now", "BIND_NOW" in dynamic and "TEXTREL" not in dynamic, dynamic)
        segments = tool("readelf", "-lW", library)
        tls = re.search(r"^ +TLS +\S+ \S+ \S+ \S+ (0x[0-9a-f]+)", segments, re.M)
        check(f"{name} TLS", (int(tls[1], 16) if tls else 0) <= 128, tls and tls[1])
        check(f"{name} stack not executable", re.search(r"GNU_STACK.* RW ", segments) is not None)
        check(f"{name} relro", "GNU_RELRO" in segments)
        check(f"{name} size", library.stat().st_size < MOST_BYTES, library.stat().st_size)
        check(f"{name} no __tls_get_addr", "__tls_get_addr" not in tool("nm", "-D", library))
        own = defined & set(re.findall(r"(?:GLOB_DA|JUMP_SL)\w* +[0-9a-f]+ (\w+)", tool("readelf", "-rW", library)))
        check(f"{name} calls its own functions", not own, own)
        asked = {line.split()[1].split("@")[0] for line in tool("nm", "-D", "--undefined-only", library).splitlines()}
        if MACHINE == "x86_64":  # elsewhere the compiler's runtime asks for more
            check(f"{name} asks for few names (hook/libc.h)", asked <= NAMES, asked - NAMES)
        for opens in ("dlopen", "dlmopen") if library in (HOOK, GUARD) else ():
            code = tool("objdump", "-d", "--no-show-raw-insn", f"--disassemble={opens}", library)
            body = code[code.index(f"<{opens}>:"):]
            jumps, calls = (r"jmp +\*", r"call +\*") if MACHINE == "x86_64" else (r"\tbr\t", r"\tblr\t")
            check(f"{name} {opens} ends in a jump", not re.search(calls, body) and re.search(jumps, body) is not None, body)
    # musl's loader ends a program whose preload asks for a name that it does not have.
    musl = LIB / "musl/libimas-guard.so"
    asked = {line.split()[-1] for line in tool("nm", "-D", "--undefined-only", musl).splitlines()}
    check("musl guard asks for names that every libc has", asked == {"environ", "malloc", "free"}, asked)
    check("musl guard needs no library", "NEEDED" not in tool("readelf", "-dW", musl))


CACHE_LINE = 64
CLOCKS = ("rdtsc", "cntvct_el0")


def timed_calls():
    """Between two readings of the clock is the call alone, in one cache line, with any compiler (hook/call.c
    gives the reason)."""
    for name in ("clocked_malloc", "clocked_calloc", "clocked_realloc", "clocked_free"):
        code = tool("objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", HOOK)
        lines = [(int(at, 16), what) for at, what in re.findall(r"^ *([0-9a-f]+):\t(.*)$", code, re.M)]
        looks = [number for number, (_, what) in enumerate(lines) if any(clock in what for clock in CLOCKS)]
        if not check(f"{name} looks at the clock twice", len(looks) == 2, code):
            continue
        first, last = looks
        begin, end = lines[first][0], lines[last + 1][0] - 1  # the last byte of the second look
        check(f"{name} is timed within one cache line", begin // CACHE_LINE == end // CACHE_LINE, f"{begin:x} to {end:x}")
        between = [what for _, what in lines[first:last]]
        calls = [what for what in between if re.match(r"(call|blr?\b)", what)]
        check(f"{name} times one call and no jump", len(calls) == 1 and not any(what.startswith("j") for what in between), between)


# ---- whole programs ------------------------------------------------------------------------------------------


def programs(allocators):
    for allocator in allocators:
        threads = "20000" if allocator in CORE else "2000"
        same_everywhere("threads", [WORK / "threads", threads], [allocator])
    for name in ["early", "pool", "late", "forks", "jumps", "semantics", "dlsym_fails", "deepbind", "pointers", "clones"]:
        same_everywhere(name, [WORK / name], allocators)
    same_everywhere("huge", [WORK / "huge"], allocators)
    core = [name for name in allocators if name in CORE]
    same_everywhere("fork handlers", [WORK / "handlers", "short"], core)
    for space in ("base", "new"):
        same_everywhere(f"deepbind by dlmopen {space}", [WORK / "deepbind", space], allocators)
    same_everywhere("spawns", [WORK / "spawns"], allocators)
    same_everywhere("python", ["python3", "-c", "import json, threading; print(len(json.dumps(list(range(100000)))))"], CORE,
                    clean=False)
    same_everywhere("perl", ["perl", "-e", "print join(',', map { $_ * 2 } 1 .. 10000)"], allocators)


def foreign():
    """Allocators that are not ours: with the whole malloc family, and with half of it."""
    if not wanted("foreign"):
        return
    _, left = under("trial", WORK / "libforeign.so", [WORK / "holes"])
    check("foreign mallinfo2 is not believed", left["split_moments"] > 0 and left["split_reported"] == 0, left["split_reported"])
    for program in ["semantics", "dlsym_fails", "late"]:
        plain = run([WORK / program])
        for mode in ALL_MODES:
            outcome, left = under(mode, WORK / "libforeign.so", [WORK / program])
            check(f"foreign {program} {mode}", outcome == plain, f"{outcome} {plain}")
            check(f"foreign {program} {mode} served", left["served"] == "libforeign.so", left["served"])
        outcome, left = under("trial", WORK / "libpartial.so", [WORK / program])
        check(f"foreign half a family {program}", outcome == plain, f"{outcome} {plain}")
        check(f"foreign half a family {program} noted", (left["state"], left["pass_reason"]) == ("PASS", "NO_ALLOCATOR"),
              left["state"])


def foreign_fork():
    """A foreign allocator's fork handlers are ordered, too, although it registers them late: preloaded by
    hand it hangs."""
    if not wanted("foreign fork handlers"):
        return
    command = [WORK / "handlers", "short", "unsignalled"]  # it locks in a fork of one thread, too
    plain = run(command)
    for mode in ALL_MODES:
        outcome = run(launch_command(mode, WORK / "liblocks.so", command))
        check(f"foreign fork handlers {mode}", outcome == plain, f"{outcome} {plain}")


def nested_fork():
    """A signal handler that forks does not run between the prepare handlers and the others of an allocator that locks."""
    if not wanted("nested fork"):
        return
    plain = run([WORK / "nested_fork"])
    environment = {**os.environ, "SIGNAL_IN_FORK": "1"}
    for mode in ALL_MODES:
        command = launch_command(mode, WORK / "liblocks.so", [WORK / "nested_fork"])
        outcome = run(command, env=environment, timeout=100)
        check(f"nested fork {mode}", outcome == plain, f"{outcome} {plain}")


# ---- programs with OpenBLAS ----------------------------------------------------------------------------------

BLAS = """
import os, multiprocessing, sys
import numpy
a = numpy.ones((300, 300))
def work(n):
    return float((a @ a)[0, 0]) + n
good = 0
for i in range(5):
    work(i)
    child = os.fork()
    if child == 0:
        os._exit(0 if work(0) == 300 else 1)
    good += os.waitpid(child, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(good, pool.map(work, range(6)))
"""
MCLAPPLY = """
library(parallel)
a <- matrix(1, 300, 300)
work <- function(n) (a %*% a)[1, 1] + n
for (i in 1:3) { work(i); print(unlist(mclapply(1:4, work, mc.cores = 2))) }
"""


def scientific(allocators):
    """OpenBLAS ends its threads in a prepare handler: forks after its work, in C, in numpy and in R, if they
    are installed."""
    os.environ["OPENBLAS_NUM_THREADS"] = "2"
    library = WORK / "blas"
    if wanted("blas") and try_compile("blas", "-l:libopenblas.so.0"):
        same_everywhere("blas", [library], allocators)
    elif wanted("blas"):
        skipped("blas", "libopenblas.so.0 is not installed")
    # The distribution's interpreter: another one has another numpy.
    for name, ask, command in [("numpy", ["/usr/bin/python3", "-c", "import numpy"], ["/usr/bin/python3", "-c", BLAS]),
                               ("mclapply", ["Rscript", "--version"], ["Rscript", "--vanilla", "-e", MCLAPPLY])]:
        if not wanted(name):
            continue
        if shutil.which(ask[0]) is None or run(ask).returncode != 0:
            skipped(name, f"{' '.join(ask)} does not work here")
            continue
        # Both start through other programs or end in unusual ways: their behaviour is compared, not the page.
        same_everywhere(name, command, allocators, clean=False)
    del os.environ["OPENBLAS_NUM_THREADS"]


# ---- the environment -----------------------------------------------------------------------------------------

VARIABLES = {"PATH": os.environ["PATH"], "A": "1", "EMPTY": "", "LONG": "x" * 5000, "MALLOC_CONF": "dirty_decay_ms:0", "Z": "last"}


def auxiliary(allocators):
    """The kernel's auxiliary vector is found, whatever number of variables was added and taken away again."""
    name = "env auxiliary vector"
    plain = run([WORK / "auxiliary"])
    check(f"{name} untouched", plain.returncode == 0, plain)
    settings = ("-s", "A_SETTING=1", "-s", "B_SETTING=1", "-s", "C_SETTING=1")
    for flags in [settings[:2 * count] + more for count in range(4) for more in ((), ("-f",))]:
        for variables in (VARIABLES, {**VARIABLES, "LD_PRELOAD": str(WORK / "libearly.so"), "A_SETTING": "0"}):
            for mode in ALL_MODES:
                outcome, _ = under(mode, allocators[-1], [WORK / "auxiliary"], flags, env=variables)
                check(f"{name} {mode} {' '.join(flags)} {len(variables)}", outcome == plain, outcome)


def environment(allocators):
    for name, variables in [("env", VARIABLES), ("env with a preload", {**VARIABLES, "LD_PRELOAD": str(WORK / "libearly.so")})]:
        if not wanted(name):
            continue
        plain = run(["env", "-0"], env=variables)
        settings = ("-s", "MALLOC_CONF=narenas:1", "-s", "GLIBC_TUNABLES=glibc.malloc.arena_max=1")
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome, _ = under(mode, allocator, ["env", "-0"], settings, env=variables)
                check(f"{name} {mode} {allocator}", outcome == plain, f"{outcome} {plain}")
                outcome, _ = under(mode, allocator, [WORK / "execs", "env", "-0"], settings, env=variables)
                check(f"{name} after exec {mode} {allocator}", outcome == plain, f"{outcome} {plain}")
                outcome, _ = under(mode, allocator, ["sh", "-c", "env -0; exit 0"], settings, env=variables)
                shell = run(["sh", "-c", "env -0; exit 0"], env=variables)
                check(f"{name} in a child {mode} {allocator}", outcome == shell, f"{outcome} {shell}")
    if wanted("env auxiliary vector"):
        auxiliary(allocators)
    if wanted("env follow"):
        for mode in ALL_MODES:
            outcome, _ = under(mode, "system", ["env"], ("-f",), env=VARIABLES)
            text = outcome.stdout.decode()
            check(f"env follow {mode}", "IMAS_PAGE=" not in text and "libimas" in text and "IMAS_FOLLOW=1" in text, text)
    if wanted("env disabled"):
        for mode in ALL_MODES:
            variables = {**VARIABLES, "IMAS_DISABLE": "1"}
            outcome, left = under(mode, "system", ["env", "-0"], env=variables)
            check(f"env disabled {mode}", outcome == run(["env", "-0"], env=variables), outcome)
            check(f"env disabled {mode} noted", left["pass_reason"] == "DISABLED" if mode == "trial" else left["state"] == "ARMED",
                  f"{left['state']} {left['pass_reason']}")


# ---- how programs end ----------------------------------------------------------------------------------------

SIGNALS = {"segv": signal.SIGSEGV, "fpe": signal.SIGFPE, "ill": signal.SIGILL, "bus": signal.SIGBUS, "kill": signal.SIGSEGV,
           "abort": signal.SIGABRT, "reset": signal.SIGABRT}
QUIET_ENDS = {"stack": signal.SIGSEGV, "term": signal.SIGTERM, "in-vain": signal.SIGKILL}
EXITS = {"handled": 33, "ignored": 6, "child": int(signal.SIGABRT), "exit": 21, "quick": 22, "_exit": 23, "_Exit": 24}


def endings(allocators):
    """Same wait status as untouched, core dump included, and the correct page."""
    for way in [*SIGNALS, *QUIET_ENDS, *EXITS]:
        if not wanted(f"ends by {way}"):
            continue
        plain = run(["bash", "-c", f"ulimit -c unlimited; exec {WORK}/launch -w -- {WORK}/dies {way}"], cwd=WORK, timeout=120)
        for allocator in allocators:
            for mode in ALL_MODES:
                PAGE.unlink(missing_ok=True)
                command = " ".join(str(part) for part in launch_command(mode, allocator, [WORK / "dies", way], ("-w",)))
                outcome = run(["bash", "-c", f"ulimit -c unlimited; exec {command}"], cwd=WORK, timeout=120)
                left = page.read(PAGE)
                label = f"ends by {way} {mode} {allocator}"
                check(label, outcome == plain, f"{outcome} {plain}")
                check(f"{label} noted signal", left["fatal_signal"] == SIGNALS.get(way, 0), left["fatal_signal"])
                expected = (1, -1 if way == "quick" else EXITS[way]) if way in EXITS else (0, -1)
                check(f"{label} noted exit", (left["clean_exit"], left["exit_status"]) == expected,
                      f"{left['clean_exit']} {left['exit_status']}")
    for core in WORK.glob("core*"):
        core.unlink()


# ---- children ------------------------------------------------------------------------------------------------


def children(allocators):
    if wanted("children count nothing for the parent"):
        for allocator in allocators:
            _, left = under("trial", allocator, [WORK / "clones"])
            check(f"clone counts nothing for the parent {allocator}", left["calls"]["malloc"] < 1000, left["calls"])
            check(f"clone frees nothing of the parent {allocator}", left["sampled"]["live_bytes"] >= 16 << 20, left["sampled"])
            check(f"clone dies for itself {allocator}", left["fatal_signal"] == 0 and left["clean_exit"] == 1)
            _, none = under("trial", allocator, [WORK / "children", 0])
            _, left = under("trial", allocator, [WORK / "children", 40])
            check(f"children count nothing for the parent {allocator}", left["calls"] == none["calls"], f"{left['calls']} {none['calls']}")
            _, left = under("trial", allocator, [WORK / "dies", "vforked"])
            check(f"vfork child's _exit is not ours {allocator}", left["clean_exit"] == 0, left["exit_status"])
            _, left = under("trial", allocator, [WORK / "forks"])
            check(f"forks are counted {allocator}", left["forks"] == 120, left["forks"])
    if wanted("tree"):
        for allocator in allocators:
            tree(allocator)


def tree(allocator):
    directory = PAGES / f"imas-hook-tree-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    usual = launch_command("trial", allocator, [])
    command = [WORK / "launch", "-t", "-p", directory / "first.page", *usual[usual.index("-l"):], WORK / "execs",
               "sh", "-c", f"{WORK}/counts 1000; ({WORK}/execs true); {WORK}/dies abort; exit 3"]
    outcome = run(command)
    pages = {path.name: page.read(path) for path in directory.glob("*.page")}
    check(f"tree status {allocator}", outcome.returncode == 3, outcome)
    programs_seen = sorted(pathlib.Path(left["program"]).name for left in pages.values())
    shell = pathlib.Path(os.path.realpath(shutil.which("sh"))).name
    check(f"tree pages {allocator}", all(name in programs_seen for name in ["counts", "execs", "dies", "true", shell]), programs_seen)
    first = pages["first.page"]
    check(f"tree same trial {allocator}", {left["trial_id"] for left in pages.values()} == {first["trial_id"]})
    images = [left for left in pages.values() if left["pid"] == first["pid"]]
    check(f"tree exec in the same pid {allocator}", len(images) >= 2, [left["program"] for left in images])
    check(f"tree all count {allocator}", all(left["state"] == "TRIAL" and served_by(left, allocator) for left in pages.values()))
    counted = [left for left in pages.values() if left["program"].endswith("/counts")]
    check(f"tree counts {allocator}", len(counted) == 1 and counted[0]["calls"]["malloc"] >= 3000)
    check(f"tree forked {allocator}", all((left["forked"] == 1) == (left["program"].endswith(f"/{shell}") and left["pid"] != first["pid"])
                                          for left in pages.values()), [(left["program"], left["forked"]) for left in pages.values()])
    died = [left for left in pages.values() if left["fatal_signal"] != 0]
    check(f"tree death {allocator}", [left["fatal_signal"] for left in died] == [int(signal.SIGABRT)] and
          died[0]["program"].endswith("/dies"), died)
    pattern = {name: rf"{left['pid']}-{left['process_start_ticks']}-\d+\.page|first\.page" for name, left in pages.items()}
    check(f"tree names {allocator}", all(re.fullmatch(pattern[name], name) for name in pages), list(pages))
    shutil.rmtree(directory)


# ---- programs left alone ------------------------------------------------------------------------------------------


def own_malloc(allocators):
    """A program with its own malloc runs as without IMAS, however it is started."""
    if not wanted("own malloc"):
        return
    script = WORK / "own.script"
    script.write_text(f"#!{WORK}/own_malloc\n")
    script.chmod(0o755)
    ways = {"by path": [WORK / "own_malloc", "a", "b"], "by name": ["own_malloc", "c"], "as interpreter": [script, "d"],
            "by the loader": [LOADER, WORK / "own_malloc", "e"],
            "by a link": [WORK / "own_link", "f"]}
    (WORK / "own_link").unlink(missing_ok=True)
    (WORK / "own_link").symlink_to("own_malloc")
    variables = {**os.environ, "PATH": f"{WORK}:{os.environ['PATH']}"}
    for way, command in ways.items():
        plain = run(command, env=variables)
        for allocator in allocators:
            for mode in ALL_MODES:
                label = f"own malloc {way} {mode} {allocator}"
                outcome, left = under(mode, allocator, command, env=variables)
                if mode == "guard" and allocator == "system":
                    check(f"{label} untouched", outcome.returncode == 4, outcome)
                    continue
                check(label, outcome == plain and outcome.stderr == plain.stderr, f"{outcome} {plain}")
                check(f"{label} noted", (left["state"], left["pass_reason"]) == ("PASS", "OWN_MALLOC"),
                      f"{left['state']} {left['pass_reason']}")
    outcome, _ = under("trial", "system", [WORK / "own_malloc"], ("-f",))
    check("own malloc with follow", outcome.returncode == 4 and b"injected 0" in outcome.stdout, outcome)


def checkers(allocators):
    """A child below --follow that somebody on the way has given a memory checker runs as without IMAS."""
    if not wanted("checker"):
        return
    for name, order in itertools.product(["checker", "checker-rare"], ["{0}:$LD_PRELOAD", "$LD_PRELOAD:{0}", "$LD_PRELOAD {0}"]):
        library = WORK / f"lib{name}.so"
        command = ["sh", "-c", f"LD_PRELOAD='{library}' exec {WORK}/asks"]
        plain = run(command)
        check(f"{name} is asked", plain.stderr == b"checked\n", plain)
        command[-1] = f'LD_PRELOAD="{order.format(library)}" exec {WORK}/asks'
        for allocator, mode in itertools.product(allocators, ALL_MODES):
            outcome, _ = under(mode, allocator, command, ("-f",))
            check(f"{name} {order} {mode} {allocator}", outcome == plain and outcome.stderr == plain.stderr, f"{outcome} {plain}")
    ours = f'LD_PRELOAD="{library}:$LD_PRELOAD" exec env'
    outcome, _ = under("guard", "mimalloc", ["sh", "-c", ours], ("-f",))
    check("checker stays for children", f"LD_PRELOAD={library}\n".encode() in outcome.stdout, outcome)


SANITIZERS = {"address": [], "thread": [], "leak": [], "address static": ["-static-libasan"], "thread static": ["-static-libtsan"]}


def sanitizers(allocators):
    """Programs built with a sanitizer run as without IMAS."""
    for kind, flags in SANITIZERS.items():
        name = f"sanitizer {kind}"
        if not wanted(name):
            continue
        try:
            compile_program("sanitized", f"-fsanitize={kind.split()[0]}", *flags)
        except subprocess.CalledProcessError:
            skipped(name, "the compiler has no such runtime")
            continue
        plain = run([WORK / "sanitized"])
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome, left = under(mode, allocator, [WORK / "sanitized"])
                check(f"{name} {mode} {allocator}", outcome == plain and plain.returncode == 5, f"{outcome} {plain}")
                reason = left["pass_reason"]
                fits = reason in ("SANITIZER", "OWN_MALLOC") or ("static" in kind and mode == "guard" and allocator == "system")
                check(f"{name} {mode} {allocator} noted", fits, reason)


def passes(allocators):
    limited = ["bash", "-c", 'ulimit -v 8000000; exec "$@"', "-"]
    for allocator in allocators:
        if wanted("pass RLIMIT_AS"):
            PAGE.unlink(missing_ok=True)
            command = launch_command("trial", allocator, [WORK / "counts", "10"])
            run([*limited, *command])
            left = page.read(PAGE)
            check(f"pass RLIMIT_AS {allocator}", (left["state"], left["pass_reason"]) == ("PASS", "RLIMIT_AS"), left["state"])
            check(f"pass counts nothing {allocator}", sum(left["calls"].values()) == 0)
        audited = {**VARIABLES, "LD_AUDIT": "/nonexistent/audit.so"}
        # ld.so reserves less thread storage under LD_AUDIT; what jemalloc needs it then refuses
        if wanted("pass LD_AUDIT") and run(preloaded(allocator, ["env", "-0"]), env=audited).returncode == 0:
            outcome, left = under("trial", allocator, ["env", "-0"], env=audited)
            check(f"pass LD_AUDIT {allocator}", (left["state"], left["pass_reason"]) == ("PASS", "LD_AUDIT") and
                  b"LD_PRELOAD" not in outcome.stdout, f"{left['state']} {left['pass_reason']}")
        if wanted("refused"):
            _, left = under("trial", allocator, [WORK / "semantics"])
            check(f"refused are counted {allocator}", left["refused"] >= 5 and left["bytes_requested"] < 1 << 26, left["refused"])
        if wanted("pass without a page"):
            plain = run([WORK / "semantics"])
            libraries_here = launch_command("trial", allocator, [])
            preload = libraries_here[libraries_here.index("-l") + 1]
            outcome = run([WORK / "semantics"], env={**os.environ, "LD_PRELOAD": preload})
            check(f"pass without a page {allocator}", outcome == plain, outcome)
            outcome = run([WORK / "semantics"], env={**os.environ, "LD_PRELOAD": preload, "IMAS_PAGE": "/nonexistent/page"})
            check(f"pass without a page to open {allocator}", outcome == plain, outcome)
    if wanted("pass valgrind") and not shutil.which("valgrind"):
        skipped("pass valgrind", "valgrind is not installed")
    elif wanted("pass valgrind"):
        outcome = run(launch_command("trial", "system", ["valgrind", "-q", WORK / "counts", "10"], ("-f",)))
        check("pass valgrind", outcome.returncode == 0 and outcome.stdout == b"counted\n", outcome)


def unseen_filter(way):
    """A filter set by an instruction of the program's own: a trial steps aside where it finds that, or says where it died."""
    if not wanted(f"seccomp unseen {way}"):
        return
    outcome, left = under("trial", "system", [WORK / "sandboxed-raw", way])
    check(f"seccomp unseen {way} trial", outcome.stdout == b"sandboxed\n" and left["pass_reason"] == "OWN_FILTER", outcome)
    outcome, left = under("trial", "system", [WORK / "sandboxed-computed", way])
    check(f"seccomp unseen {way} trial, not found", outcome.returncode == -31 and left["own_calls"] == 1, left["own_calls"])
    outcome, _ = under("guard", "system", [WORK / "sandboxed-computed", way])
    check(f"seccomp unseen {way} guard", outcome.stdout == b"sandboxed\n", outcome)
    go_filter(way)


def go_filter(way):
    """The same in Go, which makes all of its system calls so."""
    if way != "syscall" or not shutil.which("go"):
        if way == "syscall":
            skipped("seccomp unseen go", "go is not installed")
        return
    source = HERE / "programs/go_filter.go"
    environment = {**os.environ, "CGO_ENABLED": "1", "GOCACHE": str(WORK / "go"), "GOFLAGS": "-mod=mod"}
    run(["go", "build", "-o", WORK / "go_filter", source], env=environment, timeout=600)
    outcome, left = under("trial", "system", [WORK / "go_filter"])
    check("seccomp unseen go", outcome.stdout == b"fine\n" and left["pass_reason"] == "OWN_FILTER", outcome)


def sandboxes(allocators):
    """After the program has entered seccomp our libraries make no system call."""
    # On a slow machine mimalloc's own purge, due after a while, falls behind the program's entry into
    # seccomp.
    os.environ["MIMALLOC_PURGE_DELAY"] = "-1"
    for way in ["prctl", "syscall"]:
        same_everywhere(f"seccomp {way}", [WORK / "sandboxed", way],
                        [name for name in allocators if run(preloaded(name, [WORK / "sandboxed", way])).returncode == 0])
    for way in ["prctl", "syscall"]:
        unseen_filter(way)
    same_everywhere("seccomp strict", [WORK / "sandboxed", "strict"], ["system"], clean=False)
    del os.environ["MIMALLOC_PURGE_DELAY"]


def secure():
    """AT_SECURE: loaded through ld.so.preload (in a mount namespace of our own) into a set-group-id program.
    """
    if not wanted("secure"):
        return
    if os.geteuid() != 0 or run(["unshare", "-m", "true"]).returncode != 0:
        skipped("secure", "it takes root and mount namespaces")
        return
    place = pathlib.Path("/dev/shm") / f"imas-hook-secure-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        for library in (HOOK, GUARD):
            shutil.copy(library, place / library.name)
        (place / "etc").mkdir()
        for name in ("ld.so.cache", "passwd", "group"):
            shutil.copy(f"/etc/{name}", place / "etc" / name)
        program = place / "env"
        shutil.copy(shutil.which("env"), program)
        os.chown(program, 0, 65534)
        for library in (HOOK, GUARD):
            (place / "etc/ld.so.preload").write_text(f"{place / library.name}\n")
            flight = place / "page"
            run([WORK / "launch", *(["-g"] if library == GUARD else []), "-p", flight, "--", "true"])
            for mode in (0o755, 0o2755):
                program.chmod(mode)
                # /etc of the namespace is a copy: nothing outside it ever sees this file
                script = (f"mount --bind {place}/etc /etc && exec setpriv --reuid=1234 --regid=1234 --clear-groups "
                          f"env -i A=1 IMAS_PAGE={flight} IMAS_UNSET=A {program} -0")
                outcome = run(["unshare", "-m", "sh", "-c", script])
                expected = b"" if mode == 0o755 else f"A=1\0IMAS_PAGE={flight}\0IMAS_UNSET=A\0".encode()
                kind = "set-group-id" if mode == 0o2755 else "plain"
                check(f"secure {library.name} {kind} program", (outcome.returncode, outcome.stdout) == (0, expected), outcome)
    finally:
        shutil.rmtree(place)


# ---- all -----------------------------------------------------------------------------------------------------


# Debian's packages of the allocators that ours of this name only pass on to.
PACKAGES = {"distro-jemalloc": "libjemalloc2", "distro-tcmalloc": "libtcmalloc-minimal4", "distro-mimalloc": "libmimalloc2.0",
            "distro-tbb": "libtbbmalloc2"}


def found_allocators(chosen):
    """The allocators that were built and can be loaded here; SKIPPED for the others."""
    found = [path.name[3:-3] for path in sorted((LIB / "allocators").glob("lib*.so"))]
    names = ["system"]
    for name in found:
        absent = imas_testing.absent_libraries(LIB / f"allocators/lib{name}.so")
        if chosen and name not in chosen:
            continue
        if absent:
            skipped(f"allocator {name}", f"{', '.join(absent)} is not installed (package {PACKAGES.get(name, 'unknown')})")
        else:
            names.append(name)
    return names


def main():
    arguments = imas_testing.Arguments(__doc__)
    arguments.add_argument("-a", action="append", default=[], metavar="ALLOCATOR")
    options = arguments.parse_args()
    build()
    allocators = found_allocators(options.a)
    core = [name for name in allocators if name in CORE]
    if wanted("unit"):
        outcome = run([WORK / "unit", WORK / "unit.page"])
        check("unit", outcome.returncode == 0, outcome)
    libraries()
    timed_calls()
    programs(allocators)
    foreign()
    foreign_fork()
    nested_fork()
    same_everywhere("atfork while loading", [WORK / "atfork_loading"], allocators)
    scientific(allocators)
    environment(core)
    endings(core)
    handlers(core, [name for name in ("system", "jemalloc", "mimalloc") if name in core])
    counts(allocators)
    live(core)
    if MACHINE == "x86_64":
        interrupted()
        nothing()
    killed(core)
    memory(core)
    split(core)
    settings(allocators)
    children(core)
    children_that_cannot_load(allocators)
    again(core)
    own_malloc(core)
    checkers(core)
    sanitizers(core)
    interfaces(allocators)
    wrapped(allocators)
    passes(core)
    sandboxes(allocators)
    secure()
    finish("hook")


if __name__ == "__main__":
    main()
