# SPDX-License-Identifier: Apache-2.0
"""Functions for the tests of the hook: building the programs, and running one under the hook or the guard.

Environment variables: IMAS_LIB (where the libraries are), IMAS_TEST_WORK (where programs are built),
IMAS_TEST_PAGES (where pages are made).
"""

import os
import pathlib
import subprocess
import sys

import page

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "testing"))

import imas_testing  # noqa: E402
from imas_testing import check, skipped, until, wanted  # noqa: E402

ROOT = HERE.parent.parent
LIB = pathlib.Path(os.environ.get("IMAS_LIB", ROOT / "build/lib/imas"))
WORK = pathlib.Path(os.environ.get("IMAS_TEST_WORK", ROOT / "build/tests/hook"))
PAGES = pathlib.Path(os.environ.get("IMAS_TEST_PAGES", "/dev/shm" if os.access("/dev/shm", os.W_OK) else WORK))
PAGE = PAGES / f"imas-hook-test-{os.getpid()}.page"
MACHINE = os.uname().machine
# The dynamic linker of this machine's programs.
LOADER = next(path for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(path))
HOOK, GUARD = LIB / "libimas.so", LIB / "libimas-guard.so"
CORE = ["system", "jemalloc", "tcmalloc", "mimalloc", "hoard"]


def finish(name):
    """Ends the script with its counts."""
    PAGE.unlink(missing_ok=True)
    imas_testing.finish(name)


# ---- building ------------------------------------------------------------------------------------------------


def compile_program(name, *more, compiler="gcc", source=None):
    """Builds one of programs/ (or `source`) as WORK/name, with `more` on the compiler's command line."""
    source = source or HERE / "programs" / f"{name}.{'cpp' if compiler == 'g++' else 'c'}"
    standard = "-std=gnu++17" if compiler == "g++" else "-std=gnu11"
    command = [compiler, standard, "-g", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Wno-infinite-recursion",
               "-Wno-frame-address", "-pthread", "-o", str(WORK / name), str(source), *more]
    subprocess.run(command, check=True)


def try_compile(name, *more):
    """The same if a library may be missing: whether it could be built."""
    try:
        compile_program(name, *more)
        return True
    except subprocess.CalledProcessError:
        return False


def build_handlers():
    """The conformance kit's program whose library registers fork handlers that allocate."""
    kit = HERE.parent / "conformance"
    for name, flags in [("handlers", []), ("handlers-closed", ["-Wl,-Bsymbolic"])]:
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-fno-builtin", "-shared", "-fPIC", *flags, "-o", WORK / f"lib{name}.so",
                        kit / "handlers_library.c"], check=True)
    compile_program("handlers", str(kit / "fact.c"), str(kit / "served.c"), f"-L{WORK}", "-lhandlers",
                    "-Wl,-rpath,$ORIGIN", source=kit / "handlers.c")


def build_checkers():
    """Two libraries that take a part of malloc's family for themselves."""
    for name, flags in [("checker", []), ("checker-rare", ["-DRARE"])]:
        subprocess.run(["gcc", "-std=gnu11", "-fno-builtin", "-shared", "-fPIC", *flags, "-o", WORK / f"lib{name}.so",
                        HERE / "programs/checker.c"], check=True)
    compile_program("asks")


def build():
    """Builds all that the tests run."""
    (WORK / "plugins").mkdir(parents=True, exist_ok=True)
    shared = ["gcc", "-std=gnu11", "-fno-builtin", "-shared", "-fPIC", "-Wall", "-Wextra"]
    subprocess.run([*shared, "-o", WORK / "libearly.so", HERE / "programs/early_library.c"], check=True)
    subprocess.run([*shared, "-o", WORK / "plugins/libplugin.so", HERE / "programs/plugin.c"], check=True)
    for name, flags in [("foreign", []), ("partial", ["-DPARTIAL"]), ("dawdles", ["-DDAWDLES"]), ("locks", ["-DLOCKS"]),
                        ("mallocx", ["-DMALLOCX"])]:
        subprocess.run([*shared, *flags, "-o", WORK / f"lib{name}.so", HERE / "programs/foreign.c"], check=True)
    build_checkers()
    subprocess.run([*shared, "-DLIBRARY", "-o", WORK / "libatfork_loading.so", HERE / "programs/atfork_loading.c"], check=True)
    compile_program("atfork_loading", f"-Wl,-rpath,{WORK}")
    build_handlers()
    compile_program("launch", source=HERE / "launch.c")
    compile_program("resolver", "-Wl,-z,lazy")
    compile_program("early", f"-L{WORK}", "-learly", f"-Wl,-rpath,{WORK}")
    compile_program("pool", compiler="g++")
    compile_program("deepbind", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/plugins")
    compile_program("own_malloc", "-rdynamic")
    compile_program("pointers", "-no-pie", "-fno-pie", "-Wl,-z,lazy")
    for name in ["dlsym_fails", "threads", "late", "forks", "spawns", "execs", "jumps", "semantics", "dies", "counts",
                 "live", "sandboxed", "auxiliary", "clones", "stacks", "children", "holes", "dawdle", "nothing", "huge",
                 "nested_fork", "first_ends"]:
        compile_program(name)
    for way in ["RAW", "COMPUTED"]:
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", f"-D{way}", "-o", WORK / f"sandboxed-{way.lower()}",
                        HERE / "programs/sandboxed.c"], check=True)
    unit = [ROOT / "hook" / f"{name}.c" for name in ("sample", "environment", "page")]
    subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-o", WORK / "unit", HERE / "unit.c",
                    *unit, "-lm"], check=True)


# ---- running -------------------------------------------------------------------------------------------------


def run(command, **options):
    """Runs the command; its output is bytes. A command that hangs has the return code "timeout"."""
    return imas_testing.run(*command, text=False, may_hang=True, **options)


def launch_command(mode, allocator, command, flags=(), before=()):
    """The command that starts `command` under the hook (mode "trial") or the guard (mode "guard"); `allocator`: the name of
    one of ours, or the path of another's library; `before`: libraries that come first."""
    libraries = [*before, HOOK if mode == "trial" else GUARD]
    if allocator != "system":
        libraries.append(allocator if isinstance(allocator, pathlib.Path) else LIB / f"allocators/lib{allocator}.so")
    kind = [] if mode == "trial" else ["-g"]
    return [WORK / "launch", *kind, *flags, "-p", PAGE, "-l", ":".join(map(str, libraries)), "--", *command]


def under(mode, allocator, command, flags=(), **options):
    """Runs the command under the hook or guard; returns how it ended and the page it left."""
    PAGE.unlink(missing_ok=True)
    outcome = run(launch_command(mode, allocator, command, flags), **options)
    return outcome, page.read(PAGE)


def page_once(enough, allocator, command):
    """Runs a command that goes on until its standard input ends under a trial, until its page is `enough` or the time is
    up; returns the page it left."""
    PAGE.unlink(missing_ok=True)
    command = [str(part) for part in launch_command("trial", allocator, command)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    until(lambda: child.poll() is not None or (page.is_armed(PAGE) and enough(page.read(PAGE))))
    child.stdin.close()
    child.wait(timeout=imas_testing.TIMEOUT_S * imas_testing.SLOWNESS)
    return page.read(PAGE)


def preloaded(allocator, command):
    """The command with the allocator preloaded by hand, without IMAS."""
    if allocator == "system":
        return command
    return ["env", f"LD_PRELOAD={LIB}/allocators/lib{allocator}.so", *command]


def served_by(left, allocator):
    """Whether the page that was left names that allocator as the one that served."""
    if allocator == "system":
        return left["served"] == "libc.so.6"
    return left["served"].split(" ")[0] in (allocator, allocator.removeprefix("imas-"))


ALL_MODES = ["guard", "trial"]
RUNNING = {"guard": "ACTIVE", "trial": "TRIAL"}


def same_everywhere(name, command, allocators, clean=True, environment=None, modes=ALL_MODES):
    """The command behaves under every mode and allocator as it does untouched."""
    if not wanted(name):
        return
    plain = run(command, env=environment)
    for allocator in allocators:
        for mode in modes:
            label = f"{name} {mode} {allocator}"
            outcome, left = under(mode, allocator, command, env=environment)
            changed = sorted({*outcome.stdout.splitlines()} ^ {*plain.stdout.splitlines()})
            check(label, outcome == plain, f"{outcome}\n  untouched: {plain}\n  lines of one alone: {changed}")
            check(f"{label} served", left["state"] == RUNNING[mode] and served_by(left, allocator),
                  f"{left['state']} {left['pass_reason']} {left['served']}")
            if clean and outcome.returncode == plain.returncode and plain.returncode >= 0:
                check(f"{label} exit noted", (left["clean_exit"], left["exit_status"]) == (1, plain.returncode),
                      f"{left['clean_exit']} {left['exit_status']}")
