#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""preload.py [-k PART] - libimas-preload.so as /etc/ld.so.preload names it: which programs are placed, which are
left alone, and that no program can detect it. Runs in a mount namespace with a copy of /etc and an empty /run."""

import ctypes
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import harness  # noqa: E402
import imas_testing  # noqa: E402
import page  # noqa: E402
from harness import HERE, ROOT, WORK, check, compile_program, run, skipped, wanted  # noqa: E402

RUN = pathlib.Path("/run/imas")
LIBRARIES = pathlib.Path("/run/lib")
STUB = "/run/imas/$LIB/libimas-preload.so"
PRELOAD = pathlib.Path("/etc/ld.so.preload")
PUBLISH = pathlib.Path(os.environ.get("IMAS_TEST_PUBLISH", ROOT / "target/checked/examples/publish"))
MIMALLOC = f"candidate\tmimalloc\t{LIBRARIES}/allocators/libmimalloc.so"
TRIM = "candidate\tglibc:trim\t-\tgive-back"
TRIM_MIMALLOC = f"{MIMALLOC}\tgive-back".replace("\tmimalloc\t", "\tmimalloc:trim\t")
ARENA = "candidate\tglibc:arena1\t-\tGLIBC_TUNABLES=glibc.malloc.arena_max=1"
FLIGHT, INTERPRETER, JAVA, BY_UNIT, PID1, BY_NAME = 8, 1, 2, 4, 16, 32
USER = 1234
SHOWN = pathlib.Path("/run/shown")
ENTRY = 1536  # bytes of the catalogue's header, and of an entry


# ---- the namespace -----------------------------------------------------------------------------------------------


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
    outcome = subprocess.run([PUBLISH, run_folder, LIBRARIES], input="\n".join([MIMALLOC, ARENA, TRIM, TRIM_MIMALLOC, *lines]), text=True,
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


# ---- placed programs -------------------------------------------------------------------------------------------


def block_and_ignore():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGSEGV, signal.SIGRTMIN])
    for number in (signal.SIGINT, signal.SIGUSR2, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o757)
    os.nice(5)
    signal.alarm(1000)
    os.chdir("/run/imas")
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def starts():
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    placed("plain", [SHOWN, "a", "", "b c"])
    placed("failing", [SHOWN, "fail"])
    placed("state", [SHOWN, "x"], preexec_fn=block_and_ignore)
    placed("by path", ["shown"], env={"PATH": "/run"})
    placed("relative", ["./shown", "1"])
    placed("empty environment", [SHOWN], env={})
    placed("large environment", [SHOWN], env={f"NAME{i}": "v" * (i % 50) for i in range(5000)})
    placed("login name", ["bash", "-c", f"exec -a -name {SHOWN} 1"])
    placed("empty name", ["bash", "-c", f"exec -a '' {SHOWN} 1"])
    placed("descriptors", ["bash", "-c", f"exec 5</dev/null 7>>/dev/null; {SHOWN} 1; exit $?"])
    placed("from a shell in a pipe", ["sh", "-c", f"echo x | {SHOWN} 1 | cat"])
    placed("duplicate variables", [sys.executable, "-c", DUPLICATES])
    for kilobytes in (128, 256):
        placed(f"small stack {kilobytes}", [SHOWN], preexec_fn=limit(resource.RLIMIT_STACK, kilobytes << 10), env={})
    placed("empty preload", [SHOWN], env={"LD_PRELOAD": "", "A": "1"})
    link = pathlib.Path("/run/linked")
    link.symlink_to(SHOWN)
    placed("symbolic link", [link, "1"])
    placed("search path and a locale", [SHOWN], env={"LD_LIBRARY_PATH": "/run/nowhere", "LANG": "C.UTF-8"})
    publish(entry(SHOWN, f"flags={FLIGHT}"), "fill\t300")
    placed("among others", [SHOWN])


DUPLICATES = """
import ctypes, os
libc = ctypes.CDLL(None)
strings = lambda *words: (ctypes.c_char_p * (len(words) + 1))(*words, None)
libc.execve(b'/run/shown', strings(b'shown', b'1'), strings(b'A=1', b'A=2', b'no equals sign', b'=odd', b'B=', b'A=3'))
"""


def settings():
    """A candidate that is a setting of glibc: the guard alone; the user's own settings stay."""
    publish(entry(SHOWN, f"flags={FLIGHT}", candidate="glibc:arena1"))
    if wanted("settings"):
        plain, outcome, left = with_and_without([SHOWN, "1"], env={"A": "1", "Z": "2"})
        check("settings: same", outcome == plain, difference(plain, outcome))
        check("settings: placed", b"guard" in outcome.stderr and len(left) == 1 and left[0]["served"] == "libc.so.6", outcome.stderr)
    left_alone("own tunables", [SHOWN], env={"GLIBC_TUNABLES": "glibc.malloc.perturb=1"})


def gives_back():
    """What gives pages back comes with a candidate that asks for it, and with no other; both must be the approved files."""
    for candidate, options in [("glibc:trim", []), ("mimalloc:trim", []), ("mimalloc:trim", ["trial=mimalloc:trim:abe"])]:
        name = f"gives back {candidate} {' '.join(options)}".rstrip()
        if not wanted(name):
            continue
        publish(entry(SHOWN, f"flags={FLIGHT}", *options, candidate=candidate))
        plain, outcome, left = with_and_without([SHOWN, "1"], env={"A": "1"})
        check(f"{name}: same", outcome == plain, difference(plain, outcome))
        check(f"{name}: placed", b"libimas-giveback.so" in outcome.stderr and len(left) == 1, outcome.stderr)
        check(f"{name}: served", (b"libmimalloc" in outcome.stderr) == candidate.startswith("mimalloc"), outcome.stderr)
    publish(entry(SHOWN, f"flags={FLIGHT}", candidate="mimalloc"))
    if wanted("gives back: no other"):
        _, outcome, _ = with_and_without([SHOWN, "1"])
        check("gives back: no other", b"giveback" not in outcome.stderr and b"libmimalloc" in outcome.stderr, outcome.stderr)


NODE = "candidate\tnode:x\t-\tof:node\tyields:--env-file\tNODE_OPTIONS=--max-semi-space-size=1"
PYTHON = f"{MIMALLOC}\tof:cpython\tyields:-E\tyields:PYTHONDEVMODE\tPYTHONMALLOC=malloc".replace("\tmimalloc\t", "\tcpython:x\t")


def runtimes():
    """Settings of a runtime: it is answered, nobody else sees them, and what the user may have set wins."""
    compile_program("asker")
    for program in (WORK / "asker", SHOWN):
        for candidate, variable, answer in [("node:x", "NODE_OPTIONS", b"--max-semi-space-size=1 -"), ("cpython:x", "PYTHONMALLOC", b"malloc malloc")]:
            for options in [[], [f"trial={candidate}:abf"]]:
                name = f"runtime {candidate} {program.name} {' '.join(options)}".rstrip()
                if not wanted(name):
                    continue
                publish(NODE, PYTHON, entry(program, f"flags={FLIGHT}", *options, candidate=candidate))
                plain, outcome, left = with_and_without([program, variable], env={"A": "1"})
                asked = f"{variable}=".encode()
                told = plain.stdout.replace(asked + b"- -", asked + answer) if program != SHOWN else plain.stdout
                check(f"{name}: answered, and the rest is the same", outcome.stdout == told and outcome.returncode == plain.returncode, outcome)
                served = [p["served"] for p in left]
                check(f"{name}: served", len(served) == 1 and served[0].startswith("mimalloc" if candidate == "cpython:x" else "libc"), served)
                if program == SHOWN:
                    check(f"{name}: loaded", b"libimas-settings.so" in outcome.stderr, outcome.stderr)
    publish(NODE, PYTHON, entry(SHOWN, f"flags={FLIGHT}", candidate="node:x"))
    left_alone("runtime: own list", [SHOWN], env={"NODE_OPTIONS": ""})
    for option in ["--max_semi_space_size=9", "-max-semi-space-size=9", "--env-file", "--env-file-if-exists=x"]:
        left_alone(f"runtime: given {option}", [SHOWN, "a.js", option])
    publish(NODE, PYTHON, entry(SHOWN, f"flags={FLIGHT}", candidate="cpython:x"))
    left_alone("runtime: own variable", [SHOWN], env={"PYTHONDEVMODE": "1"})
    for option in ["-E", "-sE"]:
        left_alone(f"runtime: given {option}", [SHOWN, option])
    placed("runtime: other options", [SHOWN, "-e", "--E", "E", "-", "--", ""])
    os.utime(LIBRARIES / "libimas-settings.so", (1, 1))
    left_alone("runtime: another library", [SHOWN])
    os.utime(LIBRARIES / "libimas-settings.so")
    real_node()


NODE_LIMIT = """
console.log(v8.getHeapStatistics().heap_size_limit);
console.log(process.env, child_process.execFileSync('/usr/bin/env').toString());
"""


def real_node():
    """A trial and a production start of Node.js: its heap has the setting, and neither it nor a child sees it."""
    node = shutil.which("node", path="/usr/bin:/usr/local/bin")
    if node is None:
        return skipped("runtime: Node.js", "it is not installed")
    for options in [[], ["trial=node:x:ac0"]]:
        name = f"runtime: Node.js {' '.join(options)}".rstrip()
        if wanted(name):
            publish(NODE, entry(os.path.realpath(node), f"flags={FLIGHT}", *options, candidate="node:x"))
            plain, outcome, left = with_and_without([node, "-e", NODE_LIMIT], env={"A": "1"})
            (limit, *rest), (small, *same) = plain.stdout.splitlines(), outcome.stdout.splitlines()
            check(f"{name}: its heap", int(small) < int(limit) and outcome.returncode == 0, outcome)
            check(f"{name}: the rest is the same", rest == same and b"{ A: '1' } A=1" in rest, outcome)
            check(f"{name}: page", [p["served"] for p in left] == ["libc.so.6"], left)


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def scripts():
    (RUN.parent / "s").mkdir(exist_ok=True)
    folder = RUN.parent / "s"
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    placed("script", [executable(folder / "one", f"#!{SHOWN}\n"), "a", "b"])
    placed("script with an argument", [executable(folder / "two", f"#! \t{SHOWN}  -x  y \t\nmore\n"), "a"])
    placed("script without a line end", [executable(folder / "three", f"#!{SHOWN}")])
    placed("script by path", ["one", "a"], env={"PATH": str(folder)})
    placed("script with a space", [executable(folder / "a b", f"#!{SHOWN} arg\n"), ""])
    placed("script through env", [executable(folder / "env", "#!/usr/bin/env shown\n"), "a"], env={"PATH": "/run:/usr/bin"})
    left_alone("script of a script", [executable(folder / "nested", f"#!{folder}/one\n"), "a"])
    left_alone("script from a descriptor", [sys.executable, "-c", BY_DESCRIPTOR.format(path=folder / "one", more=LEFT_OPEN)])


def interpreters():
    """Programs of one interpreter are distinguished."""
    python = os.path.realpath("/usr/bin/python3")
    one, other = pathlib.Path("/run/one.py"), pathlib.Path("/run/other.py")
    show = "import os, sys\nprint(sys.argv, sorted(os.environ.items()))\nprint('mimalloc' in open('/proc/self/maps').read(), file=sys.stderr)\n"
    executable(one, f"#!{python} -u\n{show}")
    executable(other, f"#!{python}\n{show}")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "/run"}
    publish(entry(python, f"flags={INTERPRETER}", candidate="system"), entry(python, f"file={one}", f"flags={FLIGHT}"),
            entry(python, "text=-m one", f"flags={FLIGHT}"), entry(python, f"text=-c #{fnv64(show)}", f"flags={FLIGHT}"))
    cases = [("python script", [python, one], True), ("python script, options", [python, "-u", "-X", "dev", "one.py", "a"], True),
             ("python script by #!", [one, "x"], True), ("another script", [other], False), ("python module", [python, "-m", "one"], True),
             ("another module", [python, "-m", "other"], False), ("python code", [python, "-c", show], True)]
    distinguished(cases, env)
    bash = os.path.realpath("/bin/bash")
    script = executable(pathlib.Path("/run/script.sh"), f"#!/bin/bash\necho \"$0 $*\"; grep -c libmimalloc /proc/$$/maps >&2; exit 5\n")
    publish(entry(bash, f"flags={INTERPRETER}", candidate="system"), entry(bash, f"file={script}", f"flags={FLIGHT}"))
    distinguished([("bash script", [script, "1"], True), ("bash script by name", [bash, script], True),
                ("bash code", [bash, "-c", "echo 1; true"], False)], env)
    if not shutil.which("javac"):
        return skipped("java", "javac is not installed")
    java = os.path.realpath(shutil.which("java"))
    pathlib.Path("/run/Main.java").write_text("public class Main { public static void main(String[] a) { System.out.println(a.length); } }")
    run(["javac", "-d", "/run", "/run/Main.java"])
    run(["jar", "cfe", "/run/main.jar", "Main", "-C", "/run", "Main.class"])
    publish(entry(java, f"flags={JAVA}", candidate="system"), entry(java, "file=/run/main.jar", f"flags={FLIGHT}"),
            entry(java, "text=Main", f"flags={FLIGHT}"))
    distinguished([("jar", [java, "-Xmx64m", "-jar", "main.jar", "1"], True), ("main class", [java, "-cp", "/run", "Main"], True),
                ("no class", [java, "-version"], False)], env)


def fnv64(text):
    """FNV-1a of the text, 64 bits in hexadecimal: the detail of code on a command line."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return f"{value:016x}"


def distinguished(cases, env):
    for name, command, expected in cases:
        if not wanted(name):
            continue
        plain, outcome, left = with_and_without(command, env=env)
        check(f"{name}: same", outcome == plain and plain.returncode in (0, 5), f"{outcome} {plain}")
        good = len(left) == 1 and left[0]["served"].startswith("mimalloc") if expected else not left
        check(f"{name}: {'placed' if expected else 'not placed'}", good, f"{[(p['state'], p['served']) for p in left]} {outcome.stderr}")


def users():
    """Each user has own decisions; without one the decision for everybody applies."""
    def as_user():
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)

    publish(entry(SHOWN, f"uid={USER}", f"flags={FLIGHT}"))
    left_alone("another user's decision", [SHOWN])
    if wanted("own decision"):
        _, outcome, _ = with_and_without([SHOWN], preexec_fn=as_user, env={})
        left = pages(USER)
        check("own decision: placed", is_placed(outcome, left) and left[0]["uid"] == USER, f"{outcome} {left}")
    publish(entry(SHOWN, f"uid={USER}", candidate="system"), entry(SHOWN, f"flags={FLIGHT}"))
    left_alone("own decision before everybody's", [SHOWN], preexec_fn=as_user, env={})
    placed("everybody's decision", [SHOWN])
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    shutil.rmtree(RUN / "state/u" / str(USER))
    left_alone("no folder for pages", [SHOWN], preexec_fn=as_user, env={})
    make_state(RUN, [USER])
    (RUN / "state/u" / str(USER)).chmod(0o755)
    left_alone("folder for pages open to all", [SHOWN], preexec_fn=as_user, env={})
    (RUN / "state/u" / str(USER)).chmod(0o700)


def own_tree():
    """A user's own run folder, with the stub in LD_PRELOAD: children are looked up too, and keep both
    variables."""
    if not wanted("own tree"):
        return
    tree = pathlib.Path("/run/tree")
    make_state(tree, [USER], owner=USER)
    publish(entry(SHOWN, f"flags={FLIGHT}"), entry(os.path.realpath("/bin/dash"), f"flags={FLIGHT}"), run_folder=tree, user=USER, group=USER)
    variables = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(LIBRARIES / "libimas-preload.so"), "IMAS_RUN": str(tree)}
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "dash", "-c", f"{SHOWN} 1; exit $?"]
    plain = run(command, env=variables | {"IMAS_RUN": "/run/nowhere"})
    outcome = run(command, env=variables)
    left = pages(USER, tree)
    same = plain.stdout.replace(b"/run/nowhere", b"/run/tree") == outcome.stdout and plain.returncode == outcome.returncode
    check("own tree: same", same, difference(plain, outcome))
    check("own tree: both placed", [p["state"] for p in left] == ["ACTIVE"] * 2 and b"libmimalloc" in outcome.stderr, f"{left} {outcome}")
    if (WORK / "seven-musl").exists():
        check("own tree: musl", run([WORK / "seven-musl"], env=variables).returncode == 7)
    outcome = run([SHOWN], env=variables)  # root in a user's tree
    check("own tree: not another's", b"libmimalloc" not in outcome.stderr and outcome.returncode == 0, outcome)
    shutil.rmtree(tree)


# ---- trials --------------------------------------------------------------------------------------------------


def trials():
    storm("trial once", "system", 0)
    storm("trial once, production beside it", "mimalloc", FLIGHT)
    if not wanted("trial"):
        return
    publish(entry(SHOWN, "trial=mimalloc:abc", "program=42", candidate="system"))
    plain, outcome, left = with_and_without([SHOWN, "1"])
    check("trial: same", outcome == plain, difference(plain, outcome))
    check("trial: page", len(left) == 1 and left[0]["name"] == "0000000000000abc.page" and left[0]["state"] == "TRIAL" and
          left[0]["trial_id"] == "0000000000000abc-000000000000002a" and left[0]["clean_exit"] == 1 and left[0]["calls"]["malloc"] > 0 and
          left[0]["program"] == str(SHOWN), [(p["name"], p["state"], p["trial_id"]) for p in left])
    publish(entry(SHOWN, "trial=system:abd", candidate="system"))
    plain, outcome, left = with_and_without([SHOWN, "1"])
    check("trial of system", outcome == plain and len(left) == 1 and left[0]["served"] == "libc.so.6", left)


    several_at_once()


def several_at_once():
    """Of fifty starts at once each of twelve trials is run by one; the others start in production."""
    candidates = ["mimalloc", "system"]
    for seed in range(3):
        first = (seed + 1) << 32
        offers = [f"trial={candidates[n % 2]}:{first + 3 * n:x}" for n in range(12)]
        publish(entry(SHOWN, *offers, f"flags={FLIGHT}", candidate="mimalloc"))
        switch(True)
        started = [subprocess.Popen([SHOWN], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(50)]
        ends = [(child.communicate()[1], child.returncode) for child in started]
        switch(False)
        left = pages()
        tried = {p["name"]: p for p in left if p["kind"] == 1}
        expected = {f"{first + 3 * n:016x}.page": ["mimalloc", "libc"][n % 2] for n in range(12)}
        check("several trials: all end well", all(status == 0 for _, status in ends))
        check("several trials: each once", sorted(tried) == sorted(expected) and
              all(p["state"] == "TRIAL" and expected[name] in p["served"] for name, p in tried.items()), sorted(tried))
        check("several trials: the others", len(left) == 50, len(left))


def storm(name, candidate, flags):
    """Of fifty starts at once one runs the trial."""
    if not wanted(name):
        return
    for token in range(5):
        publish(entry(SHOWN, f"trial=mimalloc:{token + 1:x}", f"flags={flags}", candidate=candidate))
        switch(True)
        started = [subprocess.Popen([SHOWN], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(50)]
        ends = [(child.communicate()[1], child.returncode) for child in started]
        switch(False)
        left = pages()
        tried = [p for p in left if p["kind"] == 1]
        check(f"{name}: all end well", all(status == 0 for _, status in ends))
        check(f"{name}: one trial", len(tried) == 1 and tried[0]["state"] == "TRIAL" and tried[0]["clean_exit"] == 1,
              [(p["name"], p["state"]) for p in tried])
        served = sum(b"libmimalloc" in err for err, _ in ends)
        check(f"{name}: the others", served == (50 if flags else 1) and len(left) == served, f"{served} {len(left)}")


def children():
    """Placed programs with many calls of fork, vfork and posix_spawn, whose children are placed too."""
    for name in ["forks", "spawns"]:
        publish(entry(WORK / name, f"flags={FLIGHT}"), entry(os.path.realpath("/bin/true"), f"flags={FLIGHT}"))
        if wanted(name):
            plain, outcome, left = with_and_without([WORK / name])
            check(f"{name}: same", outcome == plain and plain.returncode == 0, f"{outcome} {plain}")
            check(f"{name}: pages", left and all(p["state"] == "ACTIVE" and p["fatal_signal"] == 0 for p in left), len(left))
    publish(entry(SHOWN, f"flags={FLIGHT}"), entry(os.path.realpath("/bin/dash"), f"flags={FLIGHT}"))
    if wanted("exec in place"):
        plain, outcome, left = with_and_without(["dash", "-c", f"exec dash -c 'exec {SHOWN} 1'"])
        check("exec in place: same", outcome == plain, difference(plain, outcome))
        check("exec in place: a page each", len(left) == 3 and len({p["pid"] for p in left}) == 1, [p["name"] for p in left])


def unfit():
    """Programs that the guard finds ineligible are started without preloads, once, and not placed again."""
    for name in ["own_malloc", "seven-asan"]:
        if not wanted(name) or not (WORK / name).exists():
            continue
        publish(entry(WORK / name, f"flags={FLIGHT}"))
        plain, outcome, left = with_and_without([WORK / name], env={"A": "1", "ASAN_OPTIONS": "verify_asan_link_order=0"}, timeout=120)
        # The program counts what is mapped of our libraries. The stub's two parts are three on arm64.
        counted = re.sub(rb"injected [23]", b"injected 0", outcome.stdout)
        same = outcome.returncode == plain.returncode and counted == plain.stdout
        check(f"{name}: same", same, f"{outcome} {plain}")
        check(f"{name}: noted", len(left) == 1 and left[0]["state"] == "PASS", [(p["state"], p["pass_reason"]) for p in left])
    if wanted("mark"):
        publish(entry(SHOWN, f"flags={FLIGHT}"))
        switch(True)
        outcome = run([SHOWN, "1"], env={"IMAS_PLACED": "system", "IMAS_PAD": "", "B": "2"})
        found = run([WORK / "auxiliary"], env={"IMAS_PLACED": "system", "IMAS_PAD": "", "B": "2"})
        kept = run([SHOWN, "1"], env={"IMAS_PLACED": "system", "IMAS_FOLLOW": "1"})
        switch(False)
        check("mark: kept for a tree", b"IMAS_PLACED=system" in kept.stdout and b"libmimalloc" not in kept.stderr, kept)
        check("mark: auxiliary vector is found", found.returncode == 0, found)
        check("mark: taken away", b"IMAS" not in outcome.stdout and b"variable B=2" in outcome.stdout, outcome)


# ---- programs that are not placed ----------------------------------------------------------------------------------------------


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


def limit(what, bytes_):
    return lambda: resource.setrlimit(what, (bytes_, bytes_))


BY_DESCRIPTOR = """
import os
fd = os.open('{path}', os.O_RDONLY)
{more}
os.execve(fd, ['name', '1'], os.environ)
"""
LEFT_OPEN = "os.set_inheritable(fd, True)"


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


# ---- damaged files --------------------------------------------------------------------


def faults():
    """With any error in index or catalogue, programs start untouched."""
    sound = lambda: publish(entry(SHOWN, f"flags={FLIGHT}"))
    index, table = RUN / "state/index", RUN / "catalogue"

    def case(name, spoil):
        if not wanted(f"fault {name}"):
            return
        sound()
        spoil()
        left_alone(f"fault {name}", [SHOWN])
        for path in (index, table, RUN / "disabled"):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)

    def replaced(path, target):
        path.rename(path.with_suffix(".moved"))
        os.symlink(path.with_suffix(".moved"), path) if target == "link" else os.mkfifo(path) if target == "fifo" else path.mkdir()

    for path in (index, table):
        case(f"{path.name} missing", path.unlink)
        case(f"{path.name} empty", lambda path=path: path.write_bytes(b""))
        case(f"{path.name} short", lambda path=path: os.truncate(path, path.stat().st_size - 1))
        case(f"{path.name} header only", lambda path=path: os.truncate(path, 128))
        case(f"{path.name} long", lambda path=path: os.truncate(path, path.stat().st_size + 128))
        case(f"{path.name} garbage", lambda path=path: path.write_bytes(random.Random(1).randbytes(5000)))
        case(f"{path.name} of another", lambda path=path: os.chown(path, USER, 0))
        case(f"{path.name} writable by a group", lambda path=path: path.chmod(0o664))
        case(f"{path.name} unreadable", lambda path=path: path.write_bytes(b"x"))
        for kind in ["link", "fifo", "folder"]:
            case(f"{path.name} {kind}", lambda path=path, kind=kind: replaced(path, kind))
    case("stale boot", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "boot\t00000000-0000-0000-0000-000000000000"))
    case("another catalogue", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "catalogue\t1234"))
    case("index disabled", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "disabled"))
    case("switched off for all", (RUN / "disabled").touch)
    case("executable of another size", lambda: publish(entry(SHOWN, "bytes=1", f"flags={FLIGHT}")))
    case("huge numbers", lambda: forge_header(index))
    case("catalogue of version 1", lambda: forge_version(table))
    library = LIBRARIES / "allocators/libmimalloc.so"
    for name, file in [("library", library), ("guard", LIBRARIES / "libimas-guard.so")]:
        case(f"{name} replaced", lambda file=file: (shutil.copy2(file, "/run/other.so"), os.rename("/run/other.so", file)))
        case(f"{name} touched", lambda file=file: os.utime(file, (1, 1)))
        os.utime(file)
    case("no room for pages", fill_pages)
    subprocess.run(["umount", RUN / "state/u/0"], stderr=subprocess.DEVNULL)
    if wanted("fault"):
        sound()
        os.chown(index, USER, 0)
        publish(entry(SHOWN, f"flags={FLIGHT}"), f"daemon\t{USER}")
        os.chown(index, USER, 0)
        placed("fault-free index of the daemon", [SHOWN])


def forge_header(index):
    data = bytearray(index.read_bytes())
    for at in range(16, 72):
        data[at] = 0xFF
    index.write_bytes(data)


def forge_version(table):
    """The version of before, with the right check sum."""
    data = bytearray(table.read_bytes())
    data[8:16] = struct.pack("=II", 1, 0)
    check_sum = 0x811c9dc5
    for byte in data[:ENTRY]:
        check_sum = (check_sum ^ byte) * 0x01000193 & 0xffffffff
    data[12:16] = struct.pack("=I", check_sum)
    table.write_bytes(data)


def fill_pages():
    mount("-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", str(RUN / "state/u/0"))
    try:
        (RUN / "state/u/0/full").write_bytes(b"x" * 4096)
    except OSError:
        pass


def each_byte():
    """With a wrong bit in the header, the entry or the catalogue's part that is read, the program is left
    alone."""
    if not wanted("each byte"):
        return
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    switch(True)
    for path, places in [(RUN / "state/index", every_byte_of_index), (RUN / "catalogue", every_byte_of_catalogue)]:
        data = path.read_bytes()
        wrong = []
        for at in places(data):
            damaged = bytearray(data)
            damaged[at] ^= 1 << random.Random(at).randrange(8)
            path.write_bytes(damaged)
            outcome = run([SHOWN])
            if outcome.returncode != 0 or b"libmimalloc" in outcome.stderr:
                wrong.append(at)
        path.write_bytes(data)
        check(f"each byte of {path.name}", not wrong, wrong[:20])
    outcome = run([SHOWN])
    switch(False)
    check("each byte: still placed when whole", is_placed(outcome, pages()), outcome)


def every_byte_of_index(data):
    taken = next(at for at in range(128, len(data), 128) if any(data[at : at + 128]))
    return [*range(128), *range(taken, taken + 128)]


def every_byte_of_catalogue(data):
    mimalloc = next(at for at in range(ENTRY, len(data), ENTRY) if data[at:].startswith(b"mimalloc\0"))
    return [*range(0, ENTRY, 7), *range(mimalloc, mimalloc + ENTRY, 7)]


def damaged():
    """Ten thousand damaged and forged files, read by the same code built with sanitizers."""
    if not wanted("damaged"):
        return
    publish(entry(SHOWN), "fill\t20")
    for seed in range(2):
        command = [WORK / "lookup-sanitized", "damage", RUN / "state/index", RUN / "catalogue", SHOWN, "10000", str(seed + 1)]
        outcome = run(command)
        check(f"damaged {seed}", outcome.returncode == 0 and b"20000" not in outcome.stdout, outcome)
        print(f"preload: {outcome.stdout.decode().strip()}")


def shrinking():
    """The index is overwritten in place repeatedly while programs start."""
    if not wanted("shrinking"):
        return
    publish(entry(SHOWN, f"flags={FLIGHT}"), "fill\t50")
    index = RUN / "state/index"
    writer = subprocess.Popen([sys.executable, "-c", f"""
data = open('{index}', 'rb').read()
import random
while True:
    with open('{index}', 'r+b') as file:
        file.truncate(random.randrange(len(data)))
        file.write(data[:random.randrange(len(data))])
        file.seek(0)
        file.write(data)
"""])
    switch(True)
    ends = [run([SHOWN]) for _ in range(300)]
    switch(False)
    writer.kill()
    writer.wait()
    pages()
    check("shrinking", all(end.returncode == 0 for end in ends) and len({end.stdout for end in ends}) == 1, {end.returncode for end in ends})
    count = sum(b"libmimalloc" in end.stderr for end in ends)
    print(f"preload: {count} of 300 placed while the index was written over")


# ---- the same in C and in Rust -------------------------------------------------------------------------------


WORDS = ["-c", "-m", "-jar", "-u", "-X", "-W", "dev", "http.server", "one.py", "/run/one.py", "nosuch", "", "-cp", "a:b", "-e", "-r", "-f", "-I",
         "--rcfile", "-o", "-lc", "-ne", "-lane", "-uc", "-rpipe", "-e5", "--eval", "-", "--", "--module", "-p", "/run", "org.Main", "ä", "-Xmx1g", "--require", "exec",
         "--roll-forward", "--runtimeconfig"]
NAMES = ["python3.11", "python", "pypy3", "java", "sh", "bash", "dash", "zsh", "perl", "perl5.36", "ruby3.1", "node", "php8.2", "lua", "cat",
         "pythonic", "java-17", "3", "guile-3.0", "dotnet"]


def given():
    if wanted("given"):
        pathlib.Path("/run/one.py").touch()
        dice = random.Random(20261122)
        wrong = []
        for _ in range(600):
            command = [f"/usr/bin/{dice.choice(NAMES)}", *dice.choices(WORDS, k=dice.randrange(6))]
            answers = [run([tool, "given", *command], cwd="/run").stdout for tool in (WORK / "lookup", PUBLISH)]
            if answers[0] != answers[1] or not answers[0]:
                wrong.append((command, answers))
        check("given: the same in C and Rust", not wrong, wrong[:3])
    for text, unit in [("0::/system.slice/nginx.service\n", "nginx.service"), ("0::/user.slice/user@1.service/app.slice/a@b.service/x\n", "a@.service"),
                       ("12:cpu:/x\n1:name=systemd:/system.slice/x.service\n0::/\n", "x.service"), ("0::/a.scope\n", "-"), ("0::/.service\n", "-"),
                       ("", "-"), ("0::/a.service.d/b", "-"), ("0::/x@1.service", "x@.service"), ("0::/x@2@y.service", "x@.service"), ("0::/@x.service", "@x.service")]:
        pathlib.Path("/run/cgroup").write_text(text)
        if wanted("unit"):
            check(f"unit of {text!r}", run([WORK / "lookup", "unit", "/run/cgroup"]).stdout.decode().strip() == unit)


# ---- properties of the library ----------------------------------------------------------------------------------------------


def library():
    """No needed library, no symbol, no relocation, no TLS, nothing writable; one for 32-bit programs."""
    if not wanted("library"):
        return
    stub = harness.LIB / "libimas-preload.so"
    shown = run(["readelf", "-dlrW", "--dyn-syms", stub]).stdout.decode()
    check("library: nothing needed", "(NEEDED)" not in shown and "There are no relocations" in shown and "TLS" not in shown, shown)
    symbols = [line for line in shown.splitlines() if " FUNC " in line or " OBJECT " in line or (" UND" in line and " 0: " not in line)]
    check("library: no symbol", symbols == [], symbols)
    check("library: first", "INITFIRST" in shown)
    check("library: nothing writable", run(["size", "-A", stub]).stdout.find(b".data ") < 0 and run(["size", "-A", stub]).stdout.find(b".bss ") < 0)
    most = {"x86_64": 64, "aarch64": 128}[harness.MACHINE] << 10  # on arm64 its second segment begins at 64 KiB
    check("library: small", stub.stat().st_size < most, stub.stat().st_size)


def calls():
    """The stub in a process without an entry: six system calls, and no open descriptor."""
    if not wanted("calls"):
        return
    if not shutil.which("strace"):
        return skipped("calls", "strace is not installed")
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    for name, expected in [("no entry", 6), ("no index", 1)]:
        if name == "no index":
            (RUN / "state/index").unlink()
        switch(True)
        traced = run(["strace", "/bin/true"]).stderr.decode().splitlines()
        switch(False)
        start = next(i for i, line in enumerate(traced) if "state/index" in line)
        end = next(i for i in range(start, len(traced)) if "exit_group" in traced[i])
        check(f"calls: {name}", end - start == expected, traced[start:end])


def main():
    imas_testing.Arguments(__doc__).parse_args()
    copy = imas_testing.enter_namespace("preload")
    build()
    set_up(copy)
    try:
        for part in [library, calls, starts, settings, gives_back, runtimes, scripts, interpreters, users, own_tree, trials, children, unfit,
                     names, checkers, processes_left_alone, faults, each_byte, damaged, shrinking, given]:
            began = time.monotonic()
            part()
            print(f"preload: {part.__name__} {time.monotonic() - began:.0f} s", flush=True)
    finally:
        switch(False)
        os.chdir("/")
        subprocess.run(["umount", "-l", "/etc"], check=False)
        subprocess.run(["umount", "-l", copy], check=False)
    harness.finish("preload")


if __name__ == "__main__":
    main()
