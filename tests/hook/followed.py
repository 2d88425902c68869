# SPDX-License-Identifier: Apache-2.0
"""Children that inherit the candidate and cannot load it: they start as without IMAS (docs/children.md)."""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib

from harness import ALL_MODES, HERE, LIB, LOADER, WORK, check, compile_program, launch_command, run, skipped, wanted

WAYS = ["execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "posix_spawn", "posix_spawnp", "vfork"]
# What libpthread and libdl had before glibc 2.34. A program without those libraries does not find them.
MOVED = ["dlsym", "dlopen", "dlmopen", "dladdr1", "dlerror", "pthread_key_create", "pthread_key_delete", "pthread_setspecific",
         "pthread_getspecific", "pthread_once", "pthread_mutex_trylock", "pthread_create", "pthread_join"]


def default_allocators(built):
    """Of the catalogue's default set, the libraries that are built."""
    candidates = tomllib.loads((LIB / "catalogue.toml").read_text())["candidate"]
    names = {pathlib.Path(one["library"]).stem.removeprefix("lib") for one in candidates
             if one["default"] and "library" in one and "runtime" not in one}
    return sorted(names & set(built))


def followed(mode, allocator, command, **options):
    return run(launch_command(mode, allocator, command, ("-f",)), **options)


# ---- LD_AUDIT ------------------------------------------------------------------------------------------------


def audited(allocators):
    """Each function that starts a program, with and without an auditor for the child."""
    auditor = WORK / "libauditor.so"
    subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", "-o", auditor, HERE / "programs/auditor.c"], check=True)
    compile_program("starts", "-D_GNU_SOURCE")
    audit, env = f"LD_AUDIT={auditor}", shutil.which("env")
    for way in WAYS:
        plain = run([WORK / "starts", way, audit, env])
        check(f"followed audit {way} untouched", plain.returncode == 0 and audit.encode() in plain.stdout, plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome = followed(mode, allocator, [WORK / "starts", way, audit, env])
                check(f"followed audit {way} {mode} {allocator}", outcome == plain and outcome.stderr == plain.stderr, outcome)
                outcome = followed(mode, allocator, [WORK / "starts", way, "A=1", env])
                inherits = b"IMAS_FOLLOW=1" in outcome.stdout and b"LD_PRELOAD" in outcome.stdout
                check(f"followed {way} {mode} {allocator} inherits", outcome.returncode == 0 and inherits, outcome)


def small_stacks(allocators):
    """A thread of the smallest stack, and a handler on a signal's, start programs: the search takes no kilobytes there."""
    compile_program("narrow")
    for way in "thread", "signal":
        command = [WORK / "narrow", way, "true"]
        plain = run(command)
        check(f"followed small stack {way} untouched", plain.stdout == b"started\n" * 3, plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome = followed(mode, allocator, command)
                check(f"followed small stack {way} {mode} {allocator}", outcome == plain, outcome)


# Size of the program after so many children of vfork, less the size after as many before.
GROWN = """import os, subprocess
def size():
    for _ in range(200):
        subprocess.run(["/bin/true"], env={**os.environ, "LD_AUDIT": "/none.so"}, stderr=subprocess.DEVNULL)
    return int(open("/proc/self/statm").read().split()[0])
size()
print(-size() + size())"""


def keeps_and_leaves_nothing(allocators):
    """A child's own entry of LD_PRELOAD stays; children of vfork leave no memory in their parent."""
    own = WORK / "libown-entry.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", own, "/dev/null"], check=True)
    shell = f'LD_PRELOAD="$LD_PRELOAD:{own}" LD_AUDIT=/none.so exec {shutil.which("env")}'
    for allocator in allocators:
        for mode in ALL_MODES:
            outcome = followed(mode, allocator, ["/bin/bash", "-c", shell])
            check(f"followed own entry {mode} {allocator}", f"LD_PRELOAD={own}\n".encode() in outcome.stdout, outcome)
            outcome = followed(mode, allocator, ["/usr/bin/python3", "-c", GROWN])
            check(f"followed vfork leaves nothing {mode} {allocator}", outcome.returncode == 0 and int(outcome.stdout) < 100, outcome)


# ---- a libc in a folder of its own ---------------------------------------------------------------------------


def old_libc(folder, moved):
    """A copy of the machine's libc that says it is older than 2.32; without `moved`, as if those were elsewhere."""
    folder.mkdir(exist_ok=True)
    libc = re.search(r"libc\.so\.6 => (\S+)", subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout)
    for source, name in [(LOADER, "ld-old.so"), (libc[1], "libc.so.6")]:
        content = re.sub(rb"GLIBC_2(\.3[2-9])\0", rb"GLIBC_1\1\0", pathlib.Path(source).read_bytes())
        for symbol in moved:
            content = content.replace(b"\0" + symbol.encode() + b"\0", b"\0" + b"_" * len(symbol) + b"\0")
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)


def in_old_folder(name, moved, allocators):
    folder = WORK / name
    old_libc(folder, moved)
    program = WORK / f"in_{name}"
    compile_program(program.name, "-nostartfiles", "-fno-stack-protector", f"-Wl,--dynamic-linker={folder}/ld-old.so",
                    f"-Wl,-rpath,{folder}", source=HERE / "programs/in_folder.c")
    plain = run([program])
    check(f"followed {name} untouched", (plain.returncode, plain.stdout) == (0, b"untouched\n"), plain)
    for allocator in allocators:
        for mode in ALL_MODES:
            outcome = followed(mode, allocator, ["sh", "-c", f"{program}; exit $?"])
            served = outcome.stdout.decode().split(" ")[0].strip()
            # What brings a library of the system's may not find it beside an older libc.
            brings = allocator.startswith("distro-") or allocator == "tcmalloc-google"
            expected = "untouched" if brings else allocator.removeprefix("imas-")
            check(f"followed {name} {mode} {allocator}", (outcome.returncode, served, outcome.stderr) == (0, expected, b""), outcome)


def needs_more():
    """A user's allocator that asks for a newer libc than the child has."""
    library = WORK / "libnewer.so"
    subprocess.run(["gcc", "-std=gnu11", "-fno-builtin", "-shared", "-fPIC", "-DNEWER", "-Wl,-z,now", "-o", library,
                    HERE / "programs/foreign.c"], check=True)
    for mode in ALL_MODES:
        command = launch_command(mode, "system", ["sh", "-c", f"{WORK}/in_old; exit $?"], ("-f",))
        command[command.index("-l") + 1] += f":{library}"
        outcome = run(command)
        check(f"followed old newer {mode}", (outcome.returncode, outcome.stdout, outcome.stderr) == (0, b"untouched\n", b""), outcome)


def old_spawns(allocators):
    """A file without #!, by posix_spawn of the version that lets a shell run it, and of today's."""
    if os.uname().machine != "x86_64":
        skipped("old spawn", "this architecture is younger than that version")
        return
    script = WORK / "without-first-line"
    script.write_text('echo "$0 $1 $2 $#"\n')
    script.chmod(0o755)
    for name, flags, runs in ("old-spawn", ["-DOLD"], 2), ("new-spawn", [], 0):
        compile_program(name, *flags, source=HERE / "programs/old_spawn.c")
        command = [WORK / name, script, f"../{WORK.name}/{script.name}"]
        plain = run(command, cwd=WORK)
        check(f"old spawn {name} untouched", plain.stdout.count(b"second word 2") == runs, plain)
        for allocator in allocators:
            for mode in ALL_MODES:
                outcome = run(launch_command(mode, allocator, command), cwd=WORK)
                check(f"old spawn {name} {mode} {allocator}", outcome == plain, f"{outcome}\n{plain}")


def children_that_cannot_load(built):
    allocators = default_allocators(built)
    if wanted("followed audit"):
        audited(["system", *allocators])
        keeps_and_leaves_nothing(["system", *allocators])
    if wanted("followed small stack"):
        small_stacks(["system", *allocators])
    if wanted("old spawn"):
        old_spawns(["system", *allocators[:1]])
    if wanted("followed old"):
        everyone = [name for name in built if name != "system"]
        in_old_folder("old", [], everyone)
        in_old_folder("old_split", MOVED, everyone)
        needs_more()
