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
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import harness  # noqa: E402
import imas_testing  # noqa: E402
from damaged_files import damaged, each_byte, faults, shrinking  # noqa: E402
from harness import WORK, check, compile_program, run, skipped, wanted  # noqa: E402
from stub import (BY_DESCRIPTOR, FLIGHT, INTERPRETER, JAVA, LEFT_OPEN, LIBRARIES, MIMALLOC, PUBLISH, RUN, SHOWN, USER, build,  # noqa: E402
                  difference, entry, is_placed, left_alone, limit, make_state, pages, placed, publish, set_up, switch, with_and_without)
from unplaced import checkers, names, processes_left_alone  # noqa: E402

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
    manager = "/user.slice/user-1000.slice/user@1000.service"
    for group, unit in [("/system.slice/nginx.service", "nginx.service"), ("/a.service", "a.service"), ("/x@1.service", "x@.service"),
                        ("/x@2@y.service", "x@.service"), ("/@x.service", "@x.service"), ("/a.slice/a-b.slice/x.service/nginx.service", "x.service"),
                        ("/system.slice/_cpu.service", "cpu.service"), ("/system.slice/user@x.service", "user@.service"),
                        (f"{manager}/app.slice/nginx.service", "-"), (f"{manager}/nginx.service", "-"), (manager, "-"), ("/user@99999999999.service", "-"),
                        ("/user.slice/user-1.slice/session-1.scope/nginx.service", "-"), ("/system.slice/a.scope/system.slice/nginx.service", "-"),
                        ("/kubepods/pod1/nginx.service", "-"), ("/../nginx.service", "-"), ("/.slice/nginx.service", "-"), ("/.service", "-"),
                        ("/_.service", "-"), ("/a.service.d/b", "-"), ("/a.slice", "-"), ("/", "-"), ("", "-")]:
        for text in [f"0::{group}\n", f"12:cpu:/no.service\n1:name=systemd:{group}\n0::/\n", f"0::{group or '/'}"]:
            same_unit(text, unit)
    same_unit("", "-")
    same_unit("1:name=systemd:/nginx.service\n0::/user.slice/session-1.scope\n", "-")


def same_unit(text, unit):
    """The service in a text like /proc/PID/cgroup, as crates/imas-linux/src/index/service_unit.rs finds it."""
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
        for part in [library, calls, starts, settings, runtimes, scripts, interpreters, users, own_tree, trials, children, unfit,
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
