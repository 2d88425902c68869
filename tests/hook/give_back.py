# SPDX-License-Identifier: Apache-2.0
"""Programs under what gives free pages back (docs/decisions/0039): memory falls, and whatever a thread or a system call
that the program did not ask for could change stays as it is untouched."""

import os
import pathlib
import select
import struct
import subprocess
import tomllib

import page
from harness import (ALL_MODES, HERE, LIB, PAGE, ROOT, RUNNING, WORK, check, compile_program, launch_command, run, skipped, until,
                     wanted)

GIVE_BACK = LIB / "libimas-giveback.so"
WAYS = ["threads", "poll", "epoll", "select", "accept", "sleep"]
HAZARDS = """unshares-joined unshares-detached unshares-by-syscall unshares-at-once enters tasks sandboxed-thread sandboxed-alone counter-forbidden threads-forbidden
forks forks-alone daemons atfork descriptors cancelled main-ends main-vanishes interrupted to-the-process
identities real-time""".split()
NEEDS_ROOT = {"identities", "real-time"}
TIMEOUT_S = int(os.environ.get("TIMEOUT_S", "120"))


def serving():
    """Libraries of the catalogue's candidates that give back: no candidate says so that gives nothing."""
    catalogue = tomllib.loads((ROOT / "allocators/catalogue.toml").read_text())["candidate"]
    libraries = {entry.get("library", "system") for entry in catalogue if entry.get("give_back")}
    return sorted(pathlib.Path(library).stem.removeprefix("lib") for library in libraries)


def build():
    compile_program("gives_back")
    compile_program("waits", "-D_GNU_SOURCE")
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-fno-builtin", "-shared", "-fPIC", "-o", WORK / "libsignals_in_trim.so",
                    HERE / "programs/signals_in_trim.c"], check=True)
    compile_program("hazards", "-D_GNU_SOURCE", *map(str, sorted((HERE / "programs").glob("hazards_*.c"))))
    compile_program("gives_up", "-D_GNU_SOURCE", str(HERE / "programs/hazards_threads.c"))
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", WORK / "budget", HERE / "budget.c",
                    ROOT / "hook/budget.c"], check=True)


def launched(mode, allocator, command):
    """The command, started as a candidate that gives back is."""
    PAGE.unlink(missing_ok=True)
    return launch_command(mode, allocator, command, before=[GIVE_BACK])


def under(mode, allocator, command, starter=(), **environment):
    """Runs it as a candidate that gives back does; returns how it ended and the page it left."""
    outcome = run([*starter, *launched(mode, allocator, command)], timeout=TIMEOUT_S, env={**os.environ, **environment})
    return outcome, page.read(PAGE)


def memory_falls():
    """Free pages between blocks in use. Untouched they stay."""
    if not wanted("gives back"):
        return
    check("gives back system and others", "system" in serving() and len(serving()) > 1, serving())
    for allocator in serving():
        for mode in ALL_MODES:
            for way in WAYS if allocator == "system" else WAYS[:2]:
                outcome, left = under(mode, allocator, [WORK / "gives_back", way])
                check(f"gives back {way} {mode} {allocator}", (outcome.returncode, outcome.stdout) == (0, b"fell\n"), outcome)
                check(f"gives back {way} {mode} {allocator} served", left["state"] == RUNNING[mode], left["pass_reason"])


MAGIC = struct.pack("QQ", 0x4D4952545341A9C5, 0xF2B19C6A03D87E54)  # abi/imas_trim.h


def word_of(memory, maps):
    """Address of the word by which the process is asked, and its numbers."""
    for line in maps.splitlines():
        if "libimas-giveback.so" in line and " rw-p " in line:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(begin)
            at = memory.read(end - begin).find(MAGIC)
            if at >= 0:
                memory.seek(begin + at)
                return begin + at, struct.unpack("QQIIQQQQQ", memory.read(64))
    return None


def ask(process):
    """The last answer, and asks once more, since at first nothing is free. None where it cannot be asked."""
    with open(f"/proc/{process.pid}/mem", "r+b", buffering=0) as memory:
        found = word_of(memory, pathlib.Path(f"/proc/{process.pid}/maps").read_text())
        if found is None:
            return None
        at, (_, _, _, _, asked_last, answered, pages, took_ns, _) = found
        if asked_last == answered:
            memory.seek(at + 24)
            memory.write(struct.pack("Q", asked_last + 1))
        return (pages, took_ns) if answered else None


def asked_until_it_gives(process):
    """Asks until the process says how it ended; returns the answers that say that pages were given back. The first of them may
    come while it fills its heap, or has freed little of it yet."""
    found = []

    def has_given():
        answer = ask(process)
        if answer is not None and answer[0] > 0:
            found.append(answer)
        return (found and select.select([process.stdout], [], [], 0)[0]) or process.poll() is not None

    until(has_given, TIMEOUT_S, ignoring=(OSError,))
    return found


def asked():
    """A process that nothing allows to give back does so when it is asked, and says how much. Unasked it does not."""
    for allocator in serving():
        for mode in ALL_MODES:
            for way in ("threads", "poll"):
                label = f"give back asked {way} {mode} {allocator}"
                if not wanted(label):
                    continue
                process = subprocess.Popen(launched(mode, allocator, [WORK / "gives_back", way]), stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, env={**os.environ, "GIVES_BACK_IDLE": "1"})
                found = asked_until_it_gives(process)
                said = process.communicate()[0]
                check(label, said == b"fell\n" and found and found[0][1] > 0, (said, found))


def share():
    """What it may cost is a setting: nothing is given back unasked at 1 % by a process that works as little, and at 100 % is."""
    for mode in ALL_MODES:
        label = f"give back share {mode}"
        if wanted(label):
            outcome, _ = under(mode, "system", [WORK / "gives_back", "threads"], GIVES_BACK_IDLE="1", IMAS_GIVE_BACK_SHARE="100")
            check(label, (outcome.returncode, outcome.stdout) == (0, b"fell\n"), outcome)


def hazards():
    for name in HAZARDS:
        label = f"give back {name}"
        if not wanted(label):
            continue
        if name in NEEDS_ROOT and os.geteuid() != 0:
            skipped(label, "needs root")
            continue
        plain = run([WORK / "hazards", name], timeout=TIMEOUT_S)
        check(f"{label} untouched", plain.returncode == 0 and b"not as expected" not in plain.stdout and plain.stdout != b"", plain)
        for mode in ALL_MODES:
            outcome, _ = under(mode, "system", [WORK / "hazards", name], EXPECT_PACER="1")
            check(f"{label} {mode}", outcome == plain, f"{outcome}\n  untouched: {plain}")


GIVEN_UP = {"capabilities": "libc syscall raw", "no-new-privileges": "libc syscall raw", "ambient": "libc syscall raw",
            "bounding": "libc syscall raw", "users": "libc syscall raw handle", "groups": "libc syscall raw handle",
            "filter": "libc syscall raw", "namespace": "libc syscall", "landlock": "syscall"}


def given_up():
    """No thread of ours has a right that the program's threads gave up (docs/decisions/0049)."""
    for way, routes in GIVEN_UP.items():
        for route in routes.split():
            label = f"given up {way} {route}"
            if not wanted(label):
                continue
            if os.geteuid() != 0:
                skipped(label, "needs root")
                continue
            plain = run([WORK / "gives_up", way, route], timeout=TIMEOUT_S)
            if plain.stdout.endswith(b"landlock failed\n"):
                skipped(label, "the kernel has no Landlock")
                continue
            good = check(f"{label} untouched", plain.returncode == 0 and plain.stdout.endswith(b"\nnobody has more\n"), plain)
            for mode in ALL_MODES if good else []:
                outcome, _ = under(mode, "system", [WORK / "gives_up", way, route], EXPECT_PACER="1")
                check(f"{label} {mode}", outcome == plain, f"{outcome}\n  untouched: {plain}")


def signals():
    """A signal that comes while pages are given back is handled afterwards, and ends the wait that was about to begin."""
    over = "trims 1, handled 1, within 0, answer -1 Interrupted system call"
    ends = dict.fromkeys(["poll", "ppoll", "epoll", "epoll_pwait", "epoll_pwait2", "select", "pselect", "accept", "accept4"], over)
    ends["sleep"] = f"{over}, all of it left"
    ends["clock_sleep"] = "trims 1, handled 1, within 0, answer 4 Success, all of it left"
    ends["sleep_until"] = "trims 1, handled 1, within 0, answer 4 Success"
    ends["restarted"] = over.replace("Interrupted system call", "Resource temporarily unavailable")  # accept's own timeout
    for way, end in ends.items():
        for mode in ALL_MODES if wanted(f"give back signals {way}") else []:
            library = f"{WORK}/libsignals_in_trim.so"
            outcome, _ = under(mode, "system", [WORK / "waits", way], LD_PRELOAD=library)
            check(f"give back signals {way} {mode}", (outcome.returncode, outcome.stdout.decode()) == (0, f"{end}\n"), outcome)


def ready():
    """What returns at once is no wait."""
    for way, answer in {"select": 1, "pselect": 1, "accept": -1}.items():
        for mode in ALL_MODES if wanted(f"give back ready {way}") else []:
            library = f"{WORK}/libsignals_in_trim.so"
            outcome, _ = under(mode, "system", [WORK / "waits", "ready", way], LD_PRELOAD=library)
            good = (outcome.returncode, outcome.stdout.decode()) == (0, f"trims 0, answer {answer}\n")
            check(f"give back ready {way} {mode}", good, outcome)


def handlers():
    """A handler may have interrupted malloc: no heap is trimmed while it waits."""
    for kind in ["handler", "on-stack", "used-up"]:
        for mode in ALL_MODES if wanted(f"give back in a handler {kind}") else []:
            library = f"{WORK}/libsignals_in_trim.so"
            outcome, _ = under(mode, "system", [WORK / "waits", kind, "poll"], LD_PRELOAD=library)
            check(f"give back in a handler {kind} {mode}", (outcome.returncode, outcome.stdout) == (0, b"trims 0\n"), outcome)


# What a unit with User= or a pod without privileges has; without root the test has it anyway.
NO_RIGHTS = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


def filtered():
    """Under a filter that was there before the program: no call of the kernel that hardly any program makes. So a thread only
    where the process has nothing to drop."""
    if not wanted("give back filtered"):
        return
    starter = [WORK / "hazards", "under-filter"]
    plain = run([*starter, WORK / "hazards", "filtered"], timeout=TIMEOUT_S)
    check("give back filtered untouched", (plain.returncode, plain.stdout) == (0, b"threads as expected\nalive\n"), plain)
    for mode in ALL_MODES:
        if os.geteuid() == 0:
            outcome, _ = under(mode, "system", [WORK / "hazards", "filtered"], starter=starter, EXPECT_PACER="0")
            check(f"give back filtered {mode}", outcome == plain, outcome)
        else:
            skipped(f"give back filtered {mode}", "needs root, which has rights to lose")
        without = [*NO_RIGHTS, *starter] if os.geteuid() == 0 else starter
        outcome, _ = under(mode, "system", [WORK / "hazards", "filtered"], starter=without, EXPECT_PACER="1")
        check(f"give back filtered {mode} without rights", outcome == plain, outcome)


def others(allocators):
    """Each allocator that has such a candidate, through forks and threads that end."""
    for allocator in set(allocators) & set(serving()) - {"system"}:
        for name in ["forks", "cancelled", "main-ends"]:
            label = f"give back {name} {allocator}"
            if wanted(label):
                plain = run([WORK / "hazards", name], timeout=TIMEOUT_S)
                for mode in ALL_MODES:
                    outcome, _ = under(mode, allocator, [WORK / "hazards", name], EXPECT_PACER="1")
                    check(f"{label} {mode}", outcome == plain, f"{outcome}\n  untouched: {plain}")


def switched_off():
    """IMAS_DISABLE=1: no thread."""
    if not wanted("give back disabled"):
        return
    outcome, _ = under("guard", "system", [WORK / "hazards", "to-the-process"], IMAS_DISABLE="1", EXPECT_PACER="0")
    check("give back disabled", b"not as expected" not in outcome.stdout and outcome.returncode == 0, outcome)


def budget():
    if not wanted("give back budget"):
        return
    outcome = run([WORK / "budget"])
    print(outcome.stdout.decode(), end="")
    check("give back budget", outcome.returncode == 0, outcome)


def give_back(allocators):
    build()
    budget()
    memory_falls()
    asked()
    share()
    hazards()
    given_up()
    signals()
    ready()
    handlers()
    filtered()
    others(allocators)
    switched_off()
