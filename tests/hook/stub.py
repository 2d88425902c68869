# SPDX-License-Identifier: Apache-2.0
"""The machine on which libimas-preload.so is tested, and programs started with it and without."""

import os
import pathlib
import resource
import shutil
import subprocess

import harness
import page
from harness import HERE, ROOT, WORK, check, compile_program, run, skipped, wanted

RUN = pathlib.Path("/run/imas")
LIBRARIES = pathlib.Path("/run/lib")
STUB = "/run/imas/$LIB/libimas-preload.so"
PRELOAD = pathlib.Path("/etc/ld.so.preload")
PUBLISH = pathlib.Path(os.environ.get("IMAS_TEST_PUBLISH", ROOT / "target/checked/examples/publish"))
MIMALLOC = f"candidate\tmimalloc\t{LIBRARIES}/allocators/libmimalloc.so"
ARENA = "candidate\tglibc:arena1\t-\tGLIBC_TUNABLES=glibc.malloc.arena_max=1"
FLIGHT, INTERPRETER, JAVA, BY_UNIT, PID1, BY_NAME = 8, 1, 2, 4, 16, 32
USER = 1234
SHOWN = pathlib.Path("/run/shown")


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def set_up(copy):
    """Lays the machine of the tests over /etc and /run; `copy`: an empty folder."""
    mount("-t", "tmpfs", "tmpfs", copy)
    subprocess.run(["cp", "-a", "/etc", copy], check=True)
    mount("--bind", f"{copy}/etc", "/etc")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    PRELOAD.unlink(missing_ok=True)
    shutil.copytree(harness.LIB, LIBRARIES)
    # The value of $LIB differs by distribution and by the packaging of a 32-bit libc.
    for folder, library in [(f"lib/{harness.MACHINE}-linux-gnu", "libimas-preload.so"), ("lib64", "libimas-preload.so"),
                            ("lib/i386-linux-gnu", "i386/libimas-preload.so"), ("lib32", "i386/libimas-preload.so")]:
        (RUN / folder).mkdir(parents=True)
        os.symlink(LIBRARIES / library, RUN / folder / "libimas-preload.so")
    make_state(RUN, [0, USER])
    shutil.copy(WORK / "shown", SHOWN)
    os.chdir("/run")


def make_state(run_folder, users, owner=0):
    for folder in [run_folder, run_folder / "state", run_folder / "state/u"]:
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, owner, owner)
    for user in users:
        pages = run_folder / "state/u" / str(user)
        pages.mkdir(mode=0o700, exist_ok=True)
        os.chown(pages, user, user)


def build():
    WORK.mkdir(parents=True, exist_ok=True)
    for name in ["shown", "forks", "spawns", "execs", "auxiliary", "own_malloc"]:
        compile_program(name, *(["-rdynamic"] if name == "own_malloc" else []))
    harness.build_checkers()
    parts = [ROOT / "hook" / f"{name}.c" for name in ("index", "table", "interpreter_target", "service_unit", "sample")]
    sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    for name, flags in [("lookup", []), ("lookup-sanitized", sanitized)]:
        subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", *flags, "-o", WORK / name,
                        HERE / "lookup.c", *parts], check=True)
    if "IMAS_TEST_PUBLISH" not in os.environ:
        # As the tests in Rust are built: the libraries below it are compiled once for both.
        crates = os.environ.get("IMAS_TEST_CRATES", "--workspace").split()
        subprocess.run(["cargo", "build", "-q", "--profile", "checked", "--locked", *crates, "--example", "publish"], cwd=ROOT, check=True)
    small = "int main(void) { return 7; }"
    source = WORK / "seven.c"
    source.write_text(small)
    for name, command in [("seven-static", ["gcc", "-static"]), ("seven-32", ["i686-linux-gnu-gcc"]), ("seven-musl", ["musl-gcc"]),
                          ("seven-asan", ["gcc", "-fsanitize=address"])]:
        if shutil.which(command[0]) is None or run([*command, "-o", WORK / name, source]).returncode != 0:
            skipped(name, f"{' '.join(command)} does not work here")
    bare = WORK / "bare.c"
    bare.write_text({  # exit_group(9)
        "x86_64": '__attribute__((force_align_arg_pointer)) void _start(void) { __asm__ volatile("syscall" : : "a"(231), "D"(9)); }',
        "aarch64": 'void _start(void) { __asm__ volatile("mov x8, #94\\n\\tmov x0, #9\\n\\tsvc #0"); }'}[harness.MACHINE])
    run(["gcc", "-nostdlib", "-pie", "-fPIE", f"-Wl,-dynamic-linker,{harness.LOADER}", "-o", WORK / "bare", bare])
    audit = WORK / "audit.c"
    audit.write_text("unsigned la_version(unsigned v) { return v; }")
    run(["gcc", "-shared", "-fPIC", "-o", WORK / "audit.so", audit])


def publish(*lines, run_folder=RUN, fails=False, **options):
    outcome = subprocess.run([PUBLISH, run_folder, LIBRARIES], input="\n".join([MIMALLOC, ARENA, *lines]), text=True,
                             capture_output=True, **options)
    assert fails or outcome.returncode == 0, outcome.stderr
    return outcome


def entry(path, *options, candidate="mimalloc"):
    return "\t".join(["entry", str(path), candidate, *options])


def switch(on, *others):
    if on:
        PRELOAD.write_text("\n".join([*others, STUB, ""]))
    else:
        PRELOAD.unlink(missing_ok=True)


def pages(user=0, run_folder=RUN):
    """The user's pages; they are deleted."""
    found = []
    for path in sorted((run_folder / "state/u" / str(user)).glob("*.page")):
        left = page.read(path)
        left["name"], left["mode"] = path.name, path.stat().st_mode & 0o777
        found.append(left)
        path.unlink()
    return found


def with_and_without(command, **options):
    """How the command ends without the stub and with it, and the pages it left."""
    command = [str(part) for part in command]
    switch(False)
    plain = run(command, **options)
    pages()
    return plain, *with_stub(command, **options)


def with_stub(command, *others, **options):
    """How the command ends with the stub, behind others, and the pages it left."""
    switch(True, *others)
    try:
        outcome = run(command, **options)
    finally:
        switch(False)
    return outcome, pages()


def is_placed(outcome, left):
    return b"libmimalloc.so" in outcome.stderr and b"libimas-guard.so" in outcome.stderr and len(left) == 1 and \
        (left[0]["state"], left[0]["served"][:8], left[0]["mode"]) == ("ACTIVE", "mimalloc", 0o600)


def placed(name, command, **options):
    """The command, which ends in `shown`, is placed and cannot detect it."""
    if not wanted(name):
        return
    plain, outcome, left = with_and_without(command, **options)
    check(f"{name}: same", outcome == plain and plain.stdout != b"", f"{outcome}\n  untouched: {plain}\n{difference(plain, outcome)}")
    check(f"{name}: placed", is_placed(outcome, left), f"{outcome.stderr} {[(p['state'], p['served']) for p in left]}")


def left_alone(name, command, stub_seen=True, **options):
    """The command is not placed and cannot detect the stub."""
    if not wanted(name):
        return
    plain, outcome, left = with_and_without(command, **options)
    check(f"{name}: same", outcome == plain, f"{outcome}\n  untouched: {plain}\n{difference(plain, outcome)}")
    check(f"{name}: not placed", b"libmimalloc" not in outcome.stderr and b"guard" not in outcome.stderr and not left, f"{outcome.stderr} {left}")


def difference(plain, outcome):
    lines = set(plain.stdout.splitlines()) ^ set(outcome.stdout.splitlines())
    return b"\n".join(sorted(lines))[:600]


def limit(what, bytes_):
    return lambda: resource.setrlimit(what, (bytes_, bytes_))


BY_DESCRIPTOR = """
import os
fd = os.open('{path}', os.O_RDONLY)
{more}
os.execve(fd, ['name', '1'], os.environ)
"""
LEFT_OPEN = "os.set_inheritable(fd, True)"
