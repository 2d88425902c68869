# SPDX-License-Identifier: Apache-2.0
"""Functions for the tests of this folder: the built parts, libraries broken on purpose."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
SBIN = ROOT / "build/sbin"
LIB = ROOT / "build/lib/imas"
LDPRELOAD = SBIN / "imas-ldpreload"
RESCUE = SBIN / "imas-rescue"
STUB = "libimas-preload.so"
ENTRY = "/run/imas/$LIB/" + STUB
LINE = ENTRY.encode() + b"\n"


def content(path):
    """The file's bytes; None if there is none."""
    try:
        return pathlib.Path(path).read_bytes()
    except FileNotFoundError:
        return None


def enabled(before):
    """The file with our entry on the last line."""
    before = before or b""
    return before + (b"" if before.endswith(b"\n") or not before else b"\n") + LINE


def put(path, bytes_):
    """Writes the content; None: no file."""
    path = pathlib.Path(path)
    if bytes_ is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(bytes_)


# ---- broken libraries ------------------------------------------------------------------------------------------

NOTHING = "int imas_nothing;"
CONSTRUCTOR = "__attribute__((constructor)) static void begin(int c, char **v, char **e) { (void)c; (void)v; (void)e; %s }"
ALONE = ["-nostdlib"]
CRASH = "{ int *volatile nowhere = 0; *(volatile int *)nowhere = 1; }"
# No libc: what a constructor needs, by system call.
SYSTEM_CALL = """
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static int starts(const char *s, const char *with) {
    while (*with) if (*s++ != *with++) return 0;
    return 1;
}
"""


def compile_library(to, source, flags=ALONE):
    """Compiles under another name and renames into place, as a package manager does."""
    to = pathlib.Path(to)
    fresh = to.with_name(to.name + ".fresh")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{to.name}", "-o", str(fresh), "-x", "c", "-", "-x", "none", *flags],
                   input=source, text=True, check=True)
    os.chmod(fresh, 0o755)
    os.rename(fresh, to)


def replace(to, bytes_):
    to = pathlib.Path(to)
    fresh = to.with_name(to.name + ".fresh")
    fresh.write_bytes(bytes_)
    os.chmod(fresh, 0o755)
    os.rename(fresh, to)


def needs_a_library(to):
    helper, made = to.with_name("libimas-gone.so"), to.with_name("made.so")
    compile_library(helper, "int imas_gone(void) { return 0; }")
    compile_library(made, "int imas_gone(void); int imas_user(void) { return imas_gone(); }", [*ALONE, str(helper)])
    helper.unlink()
    made.rename(to)


def unknown_version(to):
    """The needed library exists, the version of the symbol does not. Put in place last, because gcc loads it
    as well."""
    helper, made, script = to.with_name("libimas-old.so"), to.with_name("made.so"), to.with_name("old.map")
    script.write_text("IMAS_9 { global: imas_old; };\n")
    compile_library(helper, "int imas_old(void) { return 0; }", [*ALONE, f"-Wl,--version-script={script}"])
    flags = [*ALONE, str(helper), f"-Wl,-rpath,{to.parent}"]
    compile_library(made, "int imas_old(void); int imas_user(void) { return imas_old(); }", flags)
    script.write_text("IMAS_8 { global: imas_old; };\n")
    compile_library(helper, "int imas_old(void) { return 0; }", [*ALONE, f"-Wl,--version-script={script}"])
    made.rename(to)


def truncated(to):
    made = to.with_name("made.so")
    compile_library(made, CONSTRUCTOR % "" + "static char big[65536] = {1}; char *imas_big = big;")
    replace(to, made.read_bytes()[:made.stat().st_size // 2])
    made.unlink()


def unreadable(to):
    compile_library(to, NOTHING)
    os.chmod(to, 0o700)


# Each breaks the library at the given path in one way; True: no dynamic program starts under it any more.
BROKEN = {
    "missing": (lambda to: to.unlink(), False),
    "empty": (lambda to: replace(to, b""), False),
    "garbage": (lambda to: replace(to, b"not a library\n" * 1000), False),
    "unreadable": (unreadable, False),
    "truncated": (truncated, True),
    "needs a library that is gone": (needs_a_library, True),
    "undefined symbol": (lambda to: compile_library(to, "extern int imas_gone; int *imas_user = &imas_gone;"), True),
    "unknown symbol version": (unknown_version, True),
    "crash in its constructor": (lambda to: compile_library(to, CONSTRUCTOR % CRASH), True),
    "ends the program": (lambda to: compile_library(to, SYSTEM_CALL + CONSTRUCTOR % "call(231, 0, 0, 0);"), False),
    "says something": (lambda to: compile_library(to, SYSTEM_CALL + CONSTRUCTOR % 'call(1, 2, (long)"hello\\n", 6);'), False),
    # Not visible by LD_PRELOAD: it crashes only if loaded through the file.
    "crash by the file only": (lambda to: compile_library(to, SYSTEM_CALL + CONSTRUCTOR % (
        'for (; *e; e++) if (starts(*e, "LD_PRELOAD=")) return; ' + CRASH)), True),
}


def fails_on_the_real_machine(to):
    """Passes every rehearsal and crashes on the real machine, where a catalogue exists."""
    compile_library(to, SYSTEM_CALL + CONSTRUCTOR % ('if (call(21, (long)"/run/imas/catalogue", 0, 0) == 0) ' + CRASH))
