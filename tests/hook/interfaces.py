# SPDX-License-Identifier: Apache-2.0
"""Programs that call an allocator's own functions besides malloc (hook/interface.h): left alone if blocks may
mix, else served."""

import subprocess

from harness import ALL_MODES, HERE, RUNNING, WORK, check, compile_program, run, skipped, under, wanted

SOURCE = HERE / "programs/interface.c"
MIXED = {"JEMALLOC": "libjemalloc.so.2", "TCMALLOC": "libtcmalloc_minimal.so.4", "MIMALLOC": "libmimalloc.so.2"}
APART = {"CONTROLS": "libjemalloc.so.2", "SCALABLE": "libtbbmalloc.so.2"}
# Only a library is linked with the allocator: libc's malloc comes first, and the library has a separate heap.
PRIVATE = {"PRIVATE_JEMALLOC": "libjemalloc.so.2", "PRIVATE_TCMALLOC": "libtcmalloc_minimal.so.4", "PRIVATE_MIMALLOC": "libmimalloc.so.2"}


def built(name, way, *more):
    """Builds the program, or prints that its allocator's library is missing here."""
    try:
        compile_program(name, f"-D{way}", *more, source=SOURCE)
    except subprocess.CalledProcessError:
        skipped(name, f"{more[-1]} is missing ('make setup-test' installs it)")
        return False
    return True


def library(way, *linked):
    """The calls are in a library; the program itself has no reference to them."""
    name = f"interface-{way}-library"
    made = built(f"libinterface-{way}.so", way, "-DLIBRARY", "-shared", "-fPIC", *linked)
    return made and built(name, "PROGRAM", f"-L{WORK}", f"-Wl,-rpath,{WORK}", "-Wl,--no-as-needed", *linked[1:], f"-l:libinterface-{way}.so")


def mixed(allocators):
    """Runs as without IMAS, and the page has the reason."""
    for way, linked in MIXED.items():
        label = f"interface {way}"
        if not wanted(label):
            continue
        names = [f"interface-{way}"] if built(f"interface-{way}", way, f"-l:{linked}") else []
        names += [f"interface-{way}-library"] if names and library(way, f"-l:{linked}", f"-l:{linked}") else []
        for name in names:
            plain = run([WORK / name])
            check(f"{name} untouched", plain.returncode == 0 and plain.stdout == b"mixed\n", plain)
            for allocator in allocators:
                for mode in ALL_MODES:
                    outcome, left = under(mode, allocator, [WORK / name])
                    check(f"{name} {mode} {allocator}", outcome == plain, outcome)
                    check(f"{name} {mode} {allocator} noted", (left["state"], left["pass_reason"]) == ("PASS", "INTERFACE"),
                          f"{left['state']} {left['pass_reason']} {left['served']}")


def apart(allocators):
    """Calls that touch no block of malloc's: the program is served as any other."""
    for way, linked in {**APART, **PRIVATE}.items():
        if not wanted(f"interface {way}"):
            continue
        name = f"interface-{way}-library" if way in PRIVATE else f"interface-{way}"
        if not (library(way, f"-l:{linked}") if way in PRIVATE else built(name, way, f"-l:{linked}")):
            continue
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome, left = under(mode, allocator, [WORK / name])
                check(f"{name} {mode} {allocator}", outcome.returncode == 0 and outcome.stdout == b"mixed\n", outcome)
                check(f"{name} {mode} {allocator} served", left["state"] == RUNNING[mode], f"{left['state']} {left['pass_reason']}")


def of_the_users(allocators):
    """A library of the user's as the candidate: the program's own allocator decides, whatever the candidate's library defines."""
    label = "interface under a user's library"
    if not wanted(label) or not built("interface-JEMALLOC", "JEMALLOC", f"-l:{MIXED['JEMALLOC']}"):
        return
    compile_program("interface-weak", "-DJEMALLOC", "-DWEAK", source=SOURCE)
    for candidate, program, state in [("foreign", "interface-JEMALLOC", "PASS"), ("mallocx", "interface-JEMALLOC", "PASS"),
                                      ("mallocx", "interface-weak", None)]:
        plain = run([WORK / program])
        for mode in ALL_MODES:
            outcome, left = under(mode, WORK / f"lib{candidate}.so", [WORK / program])
            check(f"{label} {candidate} {program} {mode}", outcome == plain, f"{outcome} {plain}")
            check(f"{label} {candidate} {program} {mode} noted", left["state"] == (state or RUNNING[mode]),
                  f"{left['state']} {left['pass_reason']}")


def interfaces(allocators):
    mixed(allocators)
    of_the_users(allocators)
    apart(allocators)
