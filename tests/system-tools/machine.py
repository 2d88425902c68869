#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""machine.py IMAS: `imas system` on the machine's own programs, in a mount namespace with private /etc and /run:
enabled, booted, disabled, broken on purpose in every way."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import checks
from checks import BROKEN, ENTRY, LIB, LINE, SBIN, STUB, compile_library, content, fails_on_the_real_machine, put
from imas_testing import Arguments, check, enter_namespace, finish, run, until, wanted

FILE = pathlib.Path("/etc/ld.so.preload")
RUN = pathlib.Path("/run/imas")
HOME = pathlib.Path("/srv/imas")
IMAS = HOME / "bin/imas"
LIBRARY = HOME / "lib/imas" / STUB


def set_up():
    """Gives the namespace an /etc, a /run and a /srv of its own."""
    script = """set -e
    mount -t tmpfs -o mode=755 none /run
    mkdir /run/etc && cp -a /etc/. /run/etc && rm -f /run/etc/ld.so.preload && mount --bind /run/etc /etc
    mount -t tmpfs -o mode=755 none /srv"""
    subprocess.run(["sh", "-c", script], check=True)


def install(imas):
    """As a package would: all files owned by root, in a separate folder."""
    for folder in ["bin", "sbin", "lib/imas/allocators"]:
        (HOME / folder).mkdir(parents=True)
    shutil.copy(imas, IMAS)
    for tool in SBIN.glob("imas-*"):
        shutil.copy(tool, HOME / "sbin")
    for file in [STUB, "libimas.so", "libimas-guard.so", "catalogue.toml", "allocators/libmimalloc.so", "i386/" + STUB]:
        if (LIB / file).exists():
            (HOME / "lib/imas" / file).parent.mkdir(exist_ok=True)
            shutil.copy(LIB / file, HOME / "lib/imas" / file)
    # A 32-bit libc without our library for it is a separate case; here it would hide the others.
    small = HOME / "lib/imas/i386" / STUB
    if pathlib.Path("/lib/ld-linux.so.2").exists() and not small.exists():
        small.parent.mkdir(exist_ok=True)
        compile_library(small, checks.NOTHING, [*checks.ALONE, "-m32"])
    keep = HOME / "keep.so"
    shutil.copy2(LIBRARY, keep)
    os.chmod(LIBRARY, 0o755)
    subprocess.run(["chmod", "-R", "go-w", HOME], check=True)
    return keep


def imas(*words, **more):
    return run(IMAS, "system", *words, **more)


def status():
    return json.loads(imas("status", "--json").stdout)


def link():
    for path in RUN.glob("**/" + STUB):
        if "64" in str(path):
            return path
    return None


def programs_are_well():
    """A program starts without any message."""
    try:
        done = run("/bin/sh", "-c", "/bin/true; exit 4")
    except OSError as why:
        return str(why)
    return done.returncode == 4 and done.stderr == ""


def restart():
    """Everything in memory is lost, as after a restart."""
    shutil.rmtree(RUN, ignore_errors=True)


def good(keep):
    shutil.copy2(keep, str(LIBRARY) + ".fresh")
    os.rename(str(LIBRARY) + ".fresh", LIBRARY)


# ---- normal operation -----------------------------------------------------------------------------------------


def from_enable_to_disable(_keep):
    done = imas("verify")
    check("a rehearsal passes and leaves nothing", done.returncode == 0 and not RUN.exists() and content(FILE) is None, done)
    check("status before", imas("status").returncode == 1 and status()["entry"]["line"] is None)
    done = imas("enable")
    check("enable without anybody to ask refuses", done.returncode == 2 and "hint: add --yes" in done.stderr and content(FILE) is None, done)
    for name, before in [("none", None), ("empty", b""), ("a comment", b"# by hand, no newline"), ("another's library", b"/srv/imas/other.so # kept\n")]:
        compile_library(HOME / "other.so", checks.NOTHING)
        put(FILE, before)
        done = imas("enable", "--yes")
        wanted = checks.enabled(before)
        check(f"{name}: enabled", done.returncode == 0 and content(FILE) == wanted, (done, content(FILE)))
        check(f"{name}: programs are well", programs_are_well() is True)
        maps = run("/bin/cat", "/proc/self/maps").stdout
        check(f"{name}: the library is mapped", str(LIBRARY) in maps, maps)
        now = status()
        check(f"{name}: status shows it", now["works"] and now["entry"]["line"] and now["catalogue"]["candidates"] >= 2
              and now["links"][0]["state"] == "approved", now)
        done = imas("enable", "--yes")
        check(f"{name}: enabling again changes nothing", done.returncode == 0 and content(FILE) == wanted, done)
        check(f"{name}: verify", imas("verify").returncode == 0)
        restart()
        check(f"{name}: after a restart programs start, with one message", run("/bin/true").returncode == 0 and "ignored" in run("/bin/true").stderr)
        done = imas("boot")
        check(f"{name}: boot puts it in place", done.returncode == 0 and programs_are_well() is True and status()["works"], done)
        done = imas("disable")
        check(f"{name}: disabled, byte for byte as before", done.returncode == 0 and content(FILE) == before, (done, content(FILE)))
        check(f"{name}: nothing is left", not RUN.exists() and [p for p in os.listdir("/etc") if "imas" in p and p != "imas"] == [], os.listdir("/etc"))
        check(f"{name}: programs are well after", programs_are_well() is True)
    put(FILE, None)
    done = imas("boot")
    check("boot where it is not enabled does nothing", done.returncode == 0 and "nothing to do" in done.stderr and not RUN.exists(), done)
    check("disable where it is not enabled does nothing", imas("disable").returncode == 0)


def what_status_sees(keep):
    imas("enable", "--yes")
    sleeper = subprocess.Popen(["/bin/sleep", "1000"])
    until(lambda: STUB in pathlib.Path(f"/proc/{sleeper.pid}/maps").read_text())
    seen = status()["processes"]
    check("status: processes that have it mapped", seen["with_library"] >= 1, seen)
    good(keep)
    state = status()["links"][0]["state"]
    check("status: another file than the approved one", state == "changed", state)
    seen = status()["processes"]
    check("status: processes that have an old one mapped", seen["with_old_library"] >= 1, seen)
    sleeper.kill()
    sleeper.wait()
    check("boot approves the new one", imas("boot").returncode == 0 and status()["links"][0]["state"] == "approved")
    (RUN / "disabled").touch()
    now = status()
    check("status: switched off", not now["works"] and now["disabled"], now)
    check("enable switches on again", imas("enable", "--yes").returncode == 0 and status()["works"])
    (RUN / "state").mkdir()
    (RUN / "state/emergency").write_bytes(b"\x1b[2Jbad\nmore")
    check("status: an emergency, harmless text", status()["emergency"] == "?[2Jbad", status()["emergency"])
    placed = run("/bin/sh", "-c", f"LD_PRELOAD={HOME}/lib/imas/libimas-guard.so:{HOME}/lib/imas/allocators/libmimalloc.so /bin/sleep 1000 & "
                 f"until grep -q libmimalloc /proc/$!/maps; do sleep 0.05; done; {IMAS} system status --json; kill $!")
    serving = json.loads(placed.stdout)["processes"]["serving"]
    check("status: which allocator serves", any(s["executable"] == "/usr/bin/sleep" and s["allocator"] == "mimalloc" for s in serving), serving)
    with tempfile.TemporaryDirectory() as other:
        shutil.copy("/bin/sleep", other + "/imasd")
        namesake = subprocess.Popen([other + "/imasd", "1000"])
        check("status: a daemon of another run folder is none", status()["daemon"] is None, status()["daemon"])
        namesake.kill()
        namesake.wait()
    os.unlink(link())
    check("status: no link", status()["links"][0]["state"] == "missing" and "Broken" in imas("status").stdout)
    imas("disable")
    shutil.rmtree(RUN, ignore_errors=True)


def refusals(keep):
    nobody = dict(user=65534, group=65534, extra_groups=[])
    for verb in ["enable", "disable", "verify", "boot"]:
        done = imas(verb, **nobody)
        check(f"{verb}: root only", done.returncode == 2 and "only root" in done.stderr and "hint:" in done.stderr, done)
    check("status: for everybody", imas("status", **nobody).returncode == 1)
    for name, spoil, undo in [
        ("a library that others may write", lambda: os.chmod(LIBRARY, 0o777), lambda: os.chmod(LIBRARY, 0o755)),
        ("a library that is not root's", lambda: os.chown(LIBRARY, 1, 1), lambda: os.chown(LIBRARY, 0, 0)),
        ("a folder that others may write", lambda: os.chmod(HOME, 0o777), lambda: os.chmod(HOME, 0o755)),
        ("no rescue", lambda: os.rename(HOME / "sbin/imas-rescue", HOME / "r"), lambda: os.rename(HOME / "r", HOME / "sbin/imas-rescue")),
        ("a rescue that is not static", lambda: shutil.copy("/bin/true", HOME / "sbin/imas-rescue"),
         lambda: shutil.copy(SBIN / "imas-rescue", HOME / "sbin/imas-rescue")),
        ("an edited file that is a link", lambda: FILE.symlink_to("/etc/hostname"), FILE.unlink),
        ("no libraries", lambda: os.rename(HOME / "lib/imas", HOME / "l"), lambda: os.rename(HOME / "l", HOME / "lib/imas")),
    ]:
        spoil()
        done = imas("enable", "--yes")
        fine = done.returncode in (1, 2) and "hint:" in done.stderr and (FILE.is_symlink() or content(FILE) is None) and link() is None
        check(f"refused: {name}", fine, done)
        undo()
        shutil.rmtree(RUN, ignore_errors=True)
    good(keep)


# ---- broken on purpose -----------------------------------------------------------------------------------------


def broken_before_enable(keep):
    for name, (spoil, _) in BROKEN.items():
        before = b"# theirs\n"
        put(FILE, before)
        spoil(LIBRARY)
        done = imas("enable", "--yes")
        check(f"enable refuses: {name}", done.returncode == 1 and "not enabled" in done.stderr, done)
        check(f"enable refuses: {name}: everything as before", content(FILE) == before and link() is None and programs_are_well() is True)
        good(keep)
    compile_library(LIBRARY, checks.SYSTEM_CALL + checks.CONSTRUCTOR % "for (;;) call(34, 0, 0, 0);")
    done = imas("enable", "--yes")
    check("enable refuses: a library that hangs", done.returncode == 1 and "did not end" in done.stderr and content(FILE) == before, done)
    good(keep)
    put(FILE, None)
    for before in [None, b"/srv/imas/other.so\n"]:
        put(FILE, before)
        fails_on_the_real_machine(LIBRARY)
        done = imas("enable", "--yes")
        check("a library that passes the rehearsal and fails on the real machine is taken back", done.returncode == 1 and "taken back" in done.stderr
              and content(FILE) == before and link() is None and programs_are_well() is True, (done, content(FILE)))
        good(keep)
    put(FILE, None)


def broken_before_boot(keep):
    for name, (spoil, _) in [*BROKEN.items(), ("fails on the real machine", (fails_on_the_real_machine, True))]:
        before = b"# theirs\n" if name < "m" else None
        put(FILE, before)
        if imas("enable", "--yes").returncode != 0:
            check(f"boot: {name}: enabled first", False)
            continue
        spoil(LIBRARY)
        restart()
        done = imas("boot")
        check(f"boot repairs: {name}", done.returncode == 1 and "taken out" in done.stderr and content(FILE) == before, (done, content(FILE)))
        check(f"boot repairs: {name}: no link, programs are well", link() is None and programs_are_well() is True)
        good(keep)
        restart()
    put(FILE, None)


def broken_while_it_runs(keep):
    """The worst case: the library changes while the machine uses it. The static tools still work."""
    ways = [(name, spoil, fatal) for name, (spoil, fatal) in BROKEN.items()]
    place = pathlib.Path(status()["links"][0]["path"])
    ways.append(("written over in place", lambda to: os.truncate(to, to.stat().st_size // 2), True))
    for name, spoil, fatal in ways:
        # What `enable` does, without its tests, which were shown above.
        place.parent.mkdir(parents=True)
        place.symlink_to(LIBRARY)
        for tool in ["imas-rescue", "imas-ldpreload"]:
            good(keep)
            run(HOME / "sbin/imas-ldpreload", "add", ENTRY)
            check(f"running: {name}: well first", programs_are_well() is True and content(FILE) == LINE)
            spoil(LIBRARY)
            check(f"running: {name}: it hurts", hurts() is True)
            if fatal:
                check(f"running: {name}: no dynamic program starts", run("/bin/true").returncode != 0)
            words = ["remove", ENTRY] if tool == "imas-ldpreload" else []
            (RUN / "disabled").unlink(missing_ok=True)
            done = run(HOME / "sbin" / tool, *words)
            check(f"running: {name}: {tool} repairs it", done.returncode == 0 and content(FILE) is None and programs_are_well() is True, done)
            check(f"running: {name}: {tool} switches off", (RUN / "disabled").exists() == (tool == "imas-rescue"))
        good(keep)
        restart()


def hurts():
    """A program of a user behaves differently."""
    return programs_are_well() is not True or run("/bin/true", user=65534, group=65534, extra_groups=[]).stderr != ""


def what_the_linker_reads(_keep):
    """The dynamic linker itself shows how it reads a file: a line for every library that it does not find."""
    random.seed(4)
    ours = "/x/ours.so"
    words = [" ", "\t", "\n", ":", "#", "/x/a.so", "/x/b.so", ours, ours, "\r", "# /x/c.so\n"]
    wrong = []
    for _ in range(200):
        text = "".join(random.choices(words, k=random.randint(0, 9)))
        FILE.write_bytes(text.encode())
        before = as_the_linker_reads()
        by_status = status()["entry"]["others"]
        there = run(HOME / "sbin/imas-ldpreload", "status", ours).returncode == 0
        run(HOME / "sbin/imas-ldpreload", "remove", ours)
        after = as_the_linker_reads()
        # Which comments it overlooks depends on the length of the file, which became shorter.
        wanted = [entry for entry in before if entry != ours] if "#" not in text else after
        if by_status != before or after != wanted or ours in after or there != (ours in before):
            wrong.append((text, content(FILE), before, by_status, after))
    check("entries are what the dynamic linker treats as entries", not wrong, wrong[:3])
    put(FILE, None)


def as_the_linker_reads():
    done = subprocess.run(["/bin/true"], capture_output=True).stderr.decode()
    return re.findall(r"object '([^']*)' from /etc/ld.so.preload", done)


def main():
    arguments = Arguments(__doc__)
    arguments.add_argument("imas", type=pathlib.Path)
    given = arguments.parse_args().imas.resolve()
    enter_namespace("system")
    set_up()
    keep = install(given)
    parts = [from_enable_to_disable, what_status_sees, refusals, what_the_linker_reads, broken_before_enable, broken_before_boot, broken_while_it_runs]
    for part in filter(lambda part: wanted(part.__name__), parts):
        part(keep)
    finish("system")


if __name__ == "__main__":
    main()
