# SPDX-License-Identifier: Apache-2.0
"""Programs that start their own file again, as at a reload: they keep the candidate, and see nothing of it."""

import os
import shutil

import page
from harness import ALL_MODES, PAGE, RUNNING, WORK, check, compile_program, launch_command, run, under, wanted

IN_PLACE = ["execve", "execv", "execvp", "execvpe", "execl", "fexecve", "syscall", "fail"]
AS_CHILD = ["child-execve", "child-execvp", "child-vfork", "child-fexecve", "posix_spawn", "posix_spawnp"]
# Each image allocates that much.
BLOCKS = 3000
SETTINGS = ("-s", "MALLOC_CONF=narenas:1", "-s", "GLIBC_TUNABLES=glibc.malloc.arena_max=1")


def name_of(allocator):
    return "libc" if allocator == "system" else allocator.removeprefix("imas-")


def images(outcome):
    """The allocator of each image, and what else it prints."""
    lines = [line.split(b"\t") for line in outcome.stdout.splitlines()]
    return [line[1].split(b" ")[0].decode() for line in lines], [[line[0], line[2]] for line in lines]


def same_file(way, allocator, mode, path, environment=None):
    """Three images of one file: all under the candidate, none sees it."""
    command = [WORK / "again", way, "2", path]
    plain = run(command, env=environment)
    outcome, left = under(mode, allocator, command, SETTINGS, env=environment)
    label = f"again {way} {path} {mode} {allocator}"
    names, seen = images(outcome)
    check(label, outcome.returncode == plain.returncode == 0 and len(names) == 3 and {*names} == {name_of(allocator)}, outcome)
    check(f"{label} sees nothing", seen == images(plain)[1] and outcome.stderr == plain.stderr, f"{outcome}\n{plain}")
    return left, label


def page_goes_on(left, label, count):
    """One page for the process: its calls are added up, its blocks are the last image's."""
    calls, live = left["calls"]["malloc"], left["sampled"]["live_bytes"]
    check(f"{label} is counted", count * BLOCKS <= calls <= count * BLOCKS + 5000, calls)
    check(f"{label} has its own blocks", -100_000 < live < 200_000 and left["threads"] == 1, f"{live} {left['threads']}")
    check(f"{label} times", left["ns_start"] < left["ns_last"] and left["user_us"] + left["system_us"] > 0, left["ns_last"])


def ways(allocators):
    own = str(WORK / "again")
    for allocator in allocators:
        for mode in ALL_MODES:
            for way in IN_PLACE:
                left, label = same_file(way, allocator, mode, own)
                check(f"{label} exit noted", (left["clean_exit"], left["exit_status"]) == (1, 0), f"{left['clean_exit']} {left['state']}")
                if mode == "trial":
                    page_goes_on(left, label, 3)
            for way in AS_CHILD:
                left, label = same_file(way, allocator, mode, own)
                check(f"{label} has no page of its parent's", (left["clean_exit"], left["exit_status"]) == (1, 0), left["state"])
                if mode == "trial":
                    page_goes_on(left, label, 1)
            for path in ["/proc/self/exe", "./again", "again"]:
                way = "execvp" if path == "again" else "execve"
                variables = {**os.environ, "PATH": f"/nowhere::{WORK}:/usr/bin:/bin"}
                same_file(way, allocator, mode, path, variables)


def other_values(allocators):
    """What the program sets itself counts, and its library stays."""
    for allocator in allocators:
        for mode in ALL_MODES:
            command = [WORK / "again", "set", "1", WORK / "again"]
            outcome, _ = under(mode, allocator, command, SETTINGS)
            names, seen = images(outcome)
            check(f"again set {mode} {allocator}", names == [name_of(allocator)] * 2, outcome)
            check(f"again set {mode} {allocator} sees nothing", seen == images(run(command))[1], outcome)


def settings_of_a_runtime(allocators):
    """They stay with the process: what a child makes under them may be stored."""
    for allocator in allocators:
        for mode in ALL_MODES:
            for way, expected in [("execve", name_of(allocator)), ("child-execve", "libc"), ("posix_spawn", "libc")]:
                command = [WORK / "again", way, "1", WORK / "again"]
                outcome, _ = under(mode, allocator, command, ("-s", "IMAS_SETTINGS=NODE_OPTIONS", "-s", "NODE_OPTIONS=--a"))
                names, seen = images(outcome)
                check(f"again settings {way} {mode} {allocator}", names == [name_of(allocator), expected], outcome)
                check(f"again settings {way} {mode} {allocator} sees nothing", seen == images(run(command))[1], outcome)


def small_stacks(allocators):
    """The look at the file takes no kilobytes of a thread's smallest stack, nor of a signal's."""
    compile_program("narrow")
    for way in "thread", "signal":
        for program in WORK / "narrow", "true":
            command = [WORK / "narrow", way, program]
            plain = run(command)
            for allocator in allocators:
                for mode in ALL_MODES:
                    outcome = run(launch_command(mode, allocator, command))
                    check(f"again small stack {way} {program} {mode} {allocator}", outcome == plain, f"{outcome}\n{plain}")


def without_libraries(allocators):
    """They are gone by the second start, as in a chroot: no line of ld.so, and no crash noted."""
    for allocator in allocators:
        for mode in ALL_MODES:
            folder = WORK / "again-libraries"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            command = launch_command(mode, allocator, [WORK / "again", f"upgrade:rm -r {folder}", "1", WORK / "again"])
            at = command.index("-l") + 1
            copies = [shutil.copy(library, folder) for library in command[at].split(":")]
            command[at] = ":".join(map(str, copies))
            PAGE.unlink(missing_ok=True)
            outcome = run(command)
            check(f"again without libraries {mode} {allocator}",
                  images(outcome)[0] == [name_of(allocator), "libc"] and outcome.stderr == b"", outcome)
            state = page.read(PAGE)["state"]
            check(f"again without libraries {mode} {allocator} page", state == RUNNING[mode], state)


def replaced(allocators):
    """An upgrade: the file is another one at the same path, or gone."""
    for allocator in allocators:
        for mode in ALL_MODES:
            program = WORK / "again-upgraded"
            for what, change in [("replaced", f"cp {WORK}/again {program}.new; mv -f {program}.new {program}"),
                                 ("gone", f"rm {program}")]:
                shutil.copy(WORK / "again", program)
                path = program if what == "replaced" else "/proc/self/exe"
                outcome, _ = under(mode, allocator, [program, "upgrade:" + change, "1", path])
                names, _ = images(outcome)
                check(f"again {what} {mode} {allocator}", names == [name_of(allocator)] * 2, outcome)


def scripts(allocators):
    """The script of an interpreter that is the own file, and what is not the own file."""
    script = WORK / "again.sh"
    script.write_text(f"#!{os.path.realpath('/bin/bash')}\n"
                      'grep -o "lib[a-z]*\\.so" /proc/$$/maps | sort -u | grep -c -F -e "$1"\n[ "$2" = 0 ] || exec "$0" "$1" 0\n')
    script.chmod(0o755)
    for allocator in allocators:
        library = "libc.so" if allocator == "system" else f"lib{allocator}.so"
        for mode in ALL_MODES:
            outcome = run(launch_command(mode, allocator, [script, library, "1"]))
            check(f"again script {mode} {allocator}", outcome.stdout == b"1\n1\n", outcome)
            outcome = run(launch_command(mode, allocator, ["bash", "-c", f"exec {WORK}/again execve 0 x"]))
            check(f"again other {mode} {allocator}", images(outcome)[0] == ["libc"], outcome)


BY_ENV = """#!/usr/bin/env {interpreter}
import os, re, sys
maps = open("/proc/self/maps").read()
print(sys.argv[0], sys.argv[1:], sorted(set(re.findall(r"lib[a-z]+\\.so", maps)) & {{sys.argv[1]}}),
      sorted(name for name in os.environ if "IMAS" in name or name == "LD_PRELOAD"), flush=True)
way, left = sys.argv[2], int(sys.argv[3])
words = ["shown as", sys.argv[1], way, str(left - 1)]
if left and way == "execve":
    os.execve(sys.argv[0], words, os.environ)
if left and way == "execvp":
    os.execvp(os.path.basename(sys.argv[0]), words)
if left and way == "posix_spawn":
    os.waitpid(os.posix_spawn(sys.argv[0], words, os.environ), 0)
if left and way == "vfork":
    import subprocess
    subprocess.run(words, executable=sys.argv[0])
"""


def scripts_by_env(allocators):
    """A script whose interpreter env finds, and finds to be the own file: the same words, and the candidate."""
    script, other = WORK / "again-by-env", WORK / "again-by-env-options"
    script.write_text(BY_ENV.format(interpreter="python3 "))
    other.write_text(BY_ENV.format(interpreter="-S python3"))
    plain_variables = {name: value for name, value in os.environ.items() if not name.startswith("IMAS_")}
    variables = {**plain_variables, "PATH": f"{WORK}:{os.environ['PATH']}"}
    for path in script, other:
        path.chmod(0o755)
    python = shutil.which("python3")
    for allocator in allocators:
        library = "libc.so" if allocator == "system" else f"lib{allocator}.so"
        for mode in ALL_MODES:
            for way in "execve", "execvp", "posix_spawn", "vfork":
                command = [python, script, library, way, "2"]
                outcome = run(launch_command(mode, allocator, command, SETTINGS), env=variables)
                plain = run([python, script, "libc.so", way, "2"], env=variables)
                expected = plain.stdout.replace(b"libc.so", library.encode())
                check(f"again by env {way} {mode} {allocator}", outcome.stdout == expected and expected.count(b"\n") == 3, f"{outcome}\n{plain}")
            outcome = run(launch_command(mode, allocator, [python, other, library, "execve", "1"]), env=variables)
            alone = [f"['{library}'] []", f"['{library}'] []" if allocator == "system" else "[] []"]
            check(f"again by env with options {mode} {allocator}",
                  [line.endswith(end) for line, end in zip(outcome.stdout.decode().splitlines(), alone)] == [True] * 2, outcome)


def again(allocators):
    compile_program("again", "-D_GNU_SOURCE")
    os.chdir(WORK)
    if wanted("again ways"):
        ways(allocators)
    if wanted("again set"):
        other_values(allocators)
    if wanted("again settings"):
        settings_of_a_runtime(allocators)
    if wanted("again small stack"):
        small_stacks(allocators)
    if wanted("again without"):
        without_libraries(allocators)
    if wanted("again replaced"):
        replaced(allocators)
    if wanted("again script"):
        scripts(allocators)
    if wanted("again by env"):
        scripts_by_env(allocators)
