# SPDX-License-Identifier: Apache-2.0
"""Programs that define a function which allocators call (docs/decisions/0034): they run as without IMAS, in production as in
a trial. Under our allocators the kernel's functions of that kind make no difference."""

import subprocess

import page
from harness import (ALL_MODES, HERE, LIB, PAGE, RUNNING, WORK, check, compile_program, launch_command, run, same_everywhere,
                     served_by, skipped, under, wanted)

# Of the kernel: bound inside our allocators.
BOUND = ["clock_gettime", "syscall", "mmap", "madvise", "munmap", "open", "read", "sched_yield", "sched_getaffinity", "getenv"]
# Of libc, with a state there: a program that wraps one is left alone under the allocators that call it.
CALLED = ["pthread_mutex_lock", "pthread_setspecific", "pthread_key_create", "sysconf", "sched_getcpu", "sbrk", "memcpy"]


def is_left_alone(left):
    return (left["state"], left["pass_reason"]) == ("PASS", "WRAPPED")


def of_function(function, allocators, *flags):
    """A program that is linked with a library which wraps the function."""
    program = WORK / f"works-{function}"
    library = WORK / f"libwraps-{function}.so"
    shared = ["gcc", *flags, "-std=gnu11", "-D_GNU_SOURCE", "-fno-builtin", "-shared", "-fPIC", f"-DWRAPS={function}", "-Wall", "-Wextra"]
    subprocess.run([*shared, "-o", library, HERE / "programs/wraps.c"], check=True)
    compile_program(program.name, f"-L{WORK}", f"-Wl,-rpath,{WORK}", "-Wl,--no-as-needed", f"-lwraps-{function}",
                    source=HERE / "programs/works.c")
    plain = run([program])
    check(f"wrapped {function} untouched", (plain.returncode, plain.stdout) == (0, b"done\n"), plain)
    for allocator in allocators:
        for mode in ALL_MODES:
            label = f"wrapped {function} {mode} {allocator}"
            outcome, left = under(mode, allocator, [program])
            served = left["state"] == RUNNING[mode] and served_by(left, allocator)
            must_serve = function in BOUND and not allocator.startswith(("distro-", "imas-fit"))
            check(label, outcome == plain, outcome)
            check(f"{label} served or left alone", served or (is_left_alone(left) and not must_serve),
                  f"{left['state']} {left['pass_reason']} {left['served']}")


def too_early(allocators):
    """Called while ld.so relocates, most allocators crash: no trial of one may look good."""
    if not wanted("resolver"):
        return
    for allocator in allocators:
        outcome, left = under("trial", allocator, [WORK / "resolver"])
        expected = ("TRIAL", "NONE") if allocator == "system" else ("PASS", "TOO_EARLY")
        check(f"resolver trial {allocator}", (outcome.returncode, outcome.stdout) == (0, b"42\n"), outcome)
        check(f"resolver trial {allocator} noted", (left["state"], left["pass_reason"]) == expected,
              f"{left['state']} {left['pass_reason']} {left['served']}")


def binds_now(allocators):
    """The same in a library that is relocated before ours: a handler can be set under every candidate, and where it
    allocates, a trial of libc's malloc goes on."""
    if not wanted("binds now"):
        return
    for name, flags in ("sets", []), ("allocates", ["-DALLOCATES"]):
        library = WORK / f"libbinds-{name}.so"
        source = HERE / "programs/binds_now.c"
        subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", "-fno-builtin", "-Wl,-z,now", *flags, "-o", library, source], check=True)
        compile_program(f"binds-{name}", "-DPROGRAM", f"-L{WORK}", f"-lbinds-{name}", f"-Wl,-rpath,{WORK}", "-Wl,-z,now", source=source)
        for allocator in allocators if name == "sets" else ["system"]:
            for mode in ALL_MODES:
                outcome, left = under(mode, allocator, [WORK / f"binds-{name}"])
                check(f"binds now {name} {mode} {allocator}", (outcome.returncode, outcome.stdout) == (0, b"42 1\n"), outcome)
                check(f"binds now {name} {mode} {allocator} served", left["state"] == RUNNING[mode], left["state"])


def shell(allocators):
    """bash has a getenv of its own, which only libraries of the distribution reach."""
    command = ["bash", "-c", "for i in 1 2 3; do echo $i | cat; done; ls / | wc -l"]
    ours = [name for name in allocators if not name.startswith("distro-")]
    same_everywhere("shell", command, ours)
    if not wanted("shell"):
        return
    plain = run(command)
    for allocator in sorted(set(allocators) - set(ours)):
        for mode in ALL_MODES:
            outcome, left = under(mode, allocator, command)
            check(f"shell {mode} {allocator}", outcome == plain, outcome)
            check(f"shell {mode} {allocator} served or left alone", left["state"] == RUNNING[mode] or is_left_alone(left),
                  f"{left['state']} {left['pass_reason']}")


# What the program has of its own, and how it then ends.
NAMES = {"ON_EXIT": 0, "GETAUXVAL": 0, "PHDR": 0, "LEAVE": 3, "SIGNAL": 0, "SIGACTION": 0}


def names(allocators):
    """The guard and the hook call libc's functions and their own, whatever the program defines by these names."""
    for name, status in NAMES.items():
        if not wanted(f"names {name}"):
            continue
        program = WORK / f"names-{name}"
        compile_program(program.name, f"-D{name}", source=HERE / "programs/names.c")
        plain = run([program])
        check(f"names {name} untouched", plain.returncode == status, plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                label = f"names {name} {mode} {allocator}"
                outcome, left = under(mode, allocator, [program])
                served = left["state"] == RUNNING[mode] and served_by(left, allocator)
                check(label, outcome == plain, outcome)
                check(f"{label} served or left alone", served or is_left_alone(left), f"{left['state']} {left['pass_reason']}")
                check(f"{label} exit noted", not served or (left["clean_exit"], left["exit_status"] & 0xff) == (1, status), left["exit_status"])


def watchers(allocators):
    """What the guard and the hook define is handed on to a library of the program that has it, too."""
    if not wanted("watcher"):
        return
    source = HERE / "programs/watcher.c"
    subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", "-DLIBRARY", "-Wall", "-Wextra", "-o", WORK / "libwatcher.so", source],
                   check=True)
    compile_program("watcher", f"-L{WORK}", f"-Wl,-rpath,{WORK}", "-lwatcher")
    for words in [], ["Exit"]:
        plain = run([WORK / "watcher", *words])
        check(f"watcher {words} untouched", plain.stdout.startswith(b"3 7 -1\nseen"), plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome, left = under(mode, allocator, [WORK / "watcher", *words])
                label = f"watcher {words} {mode} {allocator}"
                check(label, outcome == plain, outcome)
                check(f"{label} exit noted", is_left_alone(left) or left["exit_status"] == plain.returncode, left["exit_status"])


def hidden(allocators):
    """A library with something else by the name of a function of ours, which comes first: its program is left alone."""
    for name, kind in [("signal", []), ("sigset", ["-DFUNCTION"]), ("signal", ["-DFUNCTION"])]:
        label = f"hidden {name} {'function' if kind else 'data'}"
        if not wanted(label):
            continue
        library, source = WORK / f"libhidden-{name}.so", HERE / "programs/hidden.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-DLIBRARY", *kind, f"-DNAME={name}", "-o", library, source], check=True)
        compile_program(f"hidden-{name}", f"-L{WORK}", f"-Wl,-rpath,{WORK}", f"-lhidden-{name}", source=source)
        plain = run([WORK / f"hidden-{name}"])
        check(f"{label} untouched", plain.stdout == b"10\n", plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                PAGE.unlink(missing_ok=True)
                outcome = run(launch_command(mode, allocator, [WORK / f"hidden-{name}"]))
                check(f"{label} {mode} {allocator}", outcome == plain, outcome)
                check(f"{label} {mode} {allocator} left alone", is_left_alone(page.read(PAGE)))


def patched(allocators):
    """Libraries that patch libc's code in place hear of each page that an allocator takes away."""
    if not wanted("patched"):
        return
    compile_program("patched")
    plain = run([WORK / "patched"])
    if plain.returncode == 77:
        skipped("patched", "code may not be written here")
        return
    for allocator in allocators:
        outcome, left = under("guard", allocator, [WORK / "patched"])
        check(f"patched {allocator}", outcome == plain and plain.stdout == b"unheard 0\n", outcome)
        check(f"patched {allocator} served", served_by(left, allocator), left["served"])


def stub(allocators):
    """A program that takes the address of a function which is called where a program is left alone: while ld.so relocates
    us, the function's name leads to the program, which is not relocated yet."""
    if not wanted("stub"):
        return
    fixed = ["-no-pie", "-fno-pie", "-Wl,-z,lazy"]
    wraps = WORK / "libwraps-pthread_mutex_lock.so"
    shared = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-fno-builtin", "-shared", "-fPIC", "-DWRAPS=pthread_mutex_lock", "-Wall", "-Wextra"]
    subprocess.run([*shared, "-o", wraps, HERE / "programs/wraps.c"], check=True)
    compile_program("stub", *fixed, f"-L{WORK}", f"-Wl,-rpath,{WORK}", "-Wl,--no-as-needed", "-lwraps-pthread_mutex_lock",
                    source=HERE / "programs/pointers.c")
    plain = run([WORK / "stub"])
    for allocator in allocators:
        for mode in ALL_MODES:
            outcome, left = under(mode, allocator, [WORK / "stub"])
            check(f"stub {mode} {allocator}", outcome == plain and plain.returncode == 0, outcome)
            check(f"stub {mode} {allocator} served or left alone", left["state"] == RUNNING[mode] or is_left_alone(left), left["state"])


def wrapped(allocators):
    """All of it."""
    names(allocators)
    watchers(allocators)
    hidden(allocators)
    patched(allocators)
    stub(allocators)
    too_early(allocators)
    binds_now(allocators)
    shell(allocators)
    for function in [*BOUND, *CALLED]:
        if wanted(f"wrapped {function}"):
            of_function(function, allocators)
    if wanted("wrapped old table"):  # of symbols, as older linkers and other compilers make it
        of_function(CALLED[0], allocators, "-Wl,--hash-style=sysv")
    if wanted("wrapped own mmap"):
        compile_program("own_mmap", "-rdynamic")
        ours = [name for name in allocators if not name.startswith("distro-")]
        same_everywhere("wrapped own mmap", [WORK / "own_mmap"], ours)
