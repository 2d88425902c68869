#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools.py: imas-ldpreload and imas-rescue on files in a temporary folder."""

import collections
import fcntl
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from checks import ENTRY, LDPRELOAD, LINE, RESCUE, content, enabled, put
from imas_testing import Arguments, check, finish, run, skipped, until, wanted

# Possible contents before, which must be the same after.
FILES = {
    "none": None,
    "empty": b"",
    "blank": b" \n\n\t",
    "foreign": b"/usr/lib/libforeign.so\n",
    "no newline at its end": b"/usr/lib/libforeign.so",
    "comment without a newline": b"# by hand",
    "several, all separators": b"/a.so /b.so:/c.so\t/d.so # why\n\n# more\n/e.so#x\n",
    "our path in a comment": b"# " + ENTRY.encode() + b"\n/a.so\n",
    "a longer path": ENTRY.encode() + b".1\n/x" + ENTRY.encode() + b"\n",
    "not UTF-8": b"/\xff\xfe.so\n",
    "carriage returns": b"/a.so\r\n",
}


def tool(verb, file, *more, entry=ENTRY):
    return run(LDPRELOAD, verb, entry, "--file", file, *more)


def litter(folder, name="preload"):
    return [other for other in os.listdir(folder) if other != name]


def add_and_remove(file):
    for name, before in FILES.items():
        put(file, before)
        added = tool("add", file)
        wanted = enabled(before)
        check(f"{name}: added", added.returncode == 0 and content(file) == wanted, (added, content(file)))
        check(f"{name}: is there", tool("status", file).returncode == 0)
        again = tool("add", file)
        check(f"{name}: added once", again.returncode == 0 and content(file) == wanted, again)
        backup = content(str(file) + ".imas-backup")
        check(f"{name}: backup", backup == before, backup)
        removed = tool("remove", file)
        check(f"{name}: byte for byte as before", removed.returncode == 0 and content(file) == before, (removed, content(file)))
        check(f"{name}: is not there", tool("status", file).returncode == 1)
        check(f"{name}: nothing is left", litter(file.parent) == [], litter(file.parent))


def remove_from_the_midst(file):
    ours = ENTRY.encode()
    for before, after in [
        (b"/a.so " + ours + b" /b.so\n", b"/a.so /b.so\n"),
        (b"/a.so:" + ours + b"\n", b"/a.so\n"),
        (ours + b":/b.so\n", b"/b.so\n"),
        (b"/a.so\n" + ours, b"/a.so\n"),
        (b"/a.so\n" + ours + b"# why\n/b.so\n", b"/a.so\n# why\n/b.so\n"),
        (ours + b"\n" + ours + b" " + ours + b"\n/b.so\n", b"/b.so\n"),
        (LINE + b"/theirs.so\n", b"/theirs.so\n"),
        # A comment that glibc overlooks is no comment.
        (b"# long enough for the next to be overlooked\n/b.so\n# " + ours + b"\n", b"# long enough for the next to be overlooked\n/b.so\n#\n"),
        (b"# " + ours + b"\n" + ours + b"\n", b"# " + ours + b"\n"),
    ]:
        put(file, before)
        removed = tool("remove", file)
        check(f"removed from {before}", removed.returncode == 0 and content(file) == after, content(file))
    put(file, b"/a.so\n/x/libimas.so /opt/libimas-preload.so:/b.so\n/libimassive.so.1 # libimas.so\n")
    run(RESCUE, "--file", file, "--run-dir", file.parent / "run")
    check("the rescue takes every library of ours", content(file) == b"/a.so\n/b.so\n/libimassive.so.1 # libimas.so\n", content(file))
    check("the rescue switches off", (file.parent / "run/disabled").is_file())
    shutil.rmtree(file.parent / "run")


def any_text(file):
    """With any content: after adding and removing the file is as it was."""
    random.seed(5)
    wrong = []
    for _ in range(200):
        before = bytes(random.choices(b" \t\n:#/ab$.\r\xff", k=random.randint(0, 40)))
        put(file, before)
        tool("add", file)
        between = content(file)
        tool("remove", file)
        if content(file) != before or between != enabled(before) or litter(file.parent):
            wrong.append((before, between, content(file)))
    check("200 random texts, byte for byte as before", not wrong, wrong[:3])
    put(file, None)


def nature_is_kept(file):
    file.write_bytes(b"/a.so\n")
    os.chmod(file, 0o640)
    if os.geteuid() == 0:
        os.chown(file, 12, 34)
    kept = {}
    for name, value in [("user.imas", b"kept"), ("security.selinux", b"system_u:object_r:ld_so_cache_t:s0\0")]:
        try:
            os.setxattr(file, name, value)
            kept[name] = value
        except OSError as why:
            skipped(f"attribute {name}", why.strerror)
    before = file.stat()
    for verb in ["add", "remove"]:
        tool(verb, file)
        now = file.stat()
        same = (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        check(f"{verb}: mode, owner, group", same, now)
        check(f"{verb}: attributes", all(os.getxattr(file, name) == value for name, value in kept.items()))
    file.unlink()


def refusals(file):
    other = file.with_name("other")

    def refused(name, words, before=None):
        done = tool("add", file)
        fine = done.returncode == 2 and words in done.stderr and content(file) == before
        check(f"refused: {name}", fine, done)
        file.is_dir() or put(file, None)

    other.write_bytes(b"/a.so\n")
    file.symlink_to(other)
    refused("symbolic link", "symbolic link", b"/a.so\n")
    os.link(other, file)
    refused("hard link", "hard link", b"/a.so\n")
    other.unlink()
    os.mkfifo(file)
    done = tool("add", file)
    check("refused: FIFO", done.returncode == 2 and "regular" in done.stderr, done)
    file.unlink()
    file.mkdir()
    done = tool("add", file)
    check("refused: folder", done.returncode == 2 and "regular" in done.stderr, done)
    file.rmdir()
    for name, bytes_, words in [("NUL byte", b"/a\0b\n", "NUL"), ("huge", b"#" * 70000, "64 KiB")]:
        file.write_bytes(bytes_)
        refused(name, words, bytes_)
    file.write_bytes(b"/a.so\n")
    if run("chattr", "+i", file).returncode == 0:
        done = tool("add", file)
        run("chattr", "-i", file)
        check("refused: immutable", done.returncode == 2 and "immutable" in done.stderr and "chattr" in done.stderr, done)
    else:
        skipped("immutable file", "chattr +i is not possible here")
    file.unlink()
    for entry in ["relative.so", "/a b", "/a:b", "/a\tb", "/a\nb", "/a#b", ""]:
        done = tool("add", file, entry=entry)
        check(f"refused: entry {entry!r}", done.returncode == 2 and "hint:" in done.stderr and not file.exists(), done)
    for words in [[], ["add"], ["frobnicate", ENTRY], ["add", ENTRY, "--file"], ["add", ENTRY, "more"], ["remove", ENTRY, "--", "/bin/true"]]:
        done = run(LDPRELOAD, *words)
        check(f"refused: words {words}", done.returncode == 2 and "hint: imas-ldpreload --help" in done.stderr, done)
    done = tool("add", file.parent / "no/such/folder/preload")
    check("refused: no folder", done.returncode == 2 and "No such file" in done.stderr, done)


def checks_and_roll_back(file):
    for name, before in FILES.items():
        put(file, before)
        for how, command in [("fails", ["/bin/false"]), ("dies", ["/bin/sh", "-c", "kill -SEGV $$"]), ("is not there", ["/no/such"])]:
            done = tool("add", file, "--", *command)
            check(f"{name}: taken back when the check {how}", done.returncode == 1 and content(file) == before, done)
        check(f"{name}: nothing is left", litter(file.parent) == [], litter(file.parent))
    put(file, None)
    seen = tool("add", file, "--", "/bin/grep", "-qF", ENTRY, file)
    check("the check sees the new content", seen.returncode == 0, seen)
    tool("remove", file)


def interrupted(file):
    """If the tool is ended while the check runs (a key, a closed terminal, a shutdown), no untested entry
    stays."""
    began = file.with_name("began")
    for name, before in FILES.items():
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            put(file, before)
            began.unlink(missing_ok=True)
            check_ = ["/bin/sh", "-c", f"touch {began}; sleep 60"]
            tool_ = subprocess.Popen([LDPRELOAD, "add", ENTRY, "--file", file, "--", *check_], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                     text=True)
            until(began.exists)
            tool_.send_signal(sent)
            done = tool_.communicate()[1]
            fine = tool_.returncode == -sent and "interrupted" in done and "taken back" in done and content(file) == before
            check(f"{name}: taken back at {sent.name}", fine, (tool_.returncode, done, content(file)))
        began.unlink()
        check(f"{name}: nothing is left", litter(file.parent) == [], litter(file.parent))
    put(file, None)


def nobody_reads(file):
    """The reader of the tool's output is gone: the tool still does its work."""
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([LDPRELOAD, "add", ENTRY, "--file", file, "--", "/bin/false"], stdout=write, stderr=write)
    check("taken back when nobody reads", ended.returncode == 1 and content(file) is None, (ended, content(file)))
    put(file, LINE)
    ended = subprocess.run([RESCUE, "--file", file, "--run-dir", file.parent / "run"], stdout=write, stderr=write)
    check("rescued when nobody reads", ended.returncode == 0 and (file.parent / "run/disabled").is_file(), ended)
    os.close(write)
    shutil.rmtree(file.parent / "run")
    ignored = ["env", "--ignore-signal=CHLD", LDPRELOAD, "add", ENTRY, "--file", file, "--", "/bin/true"]
    ended = run(*ignored)
    check("the check is waited for where children are ignored", ended.returncode == 0 and content(file) == LINE, ended)
    tool("remove", file)


def many_at_once(file):
    put(file, b"/theirs.so\n")
    entries = [f"/lib/{number}.so" for number in range(12)]

    def at_once(verb):
        running = [subprocess.Popen([LDPRELOAD, verb, entry, "--file", file], stdout=subprocess.DEVNULL) for entry in entries]
        return [process.wait() for process in running]

    ended = at_once("add")
    check("twelve at once: all are there", ended == [0] * 12 and set(content(file).split()) == {b"/theirs.so", *(e.encode() for e in entries)},
          (ended, content(file)))
    ended = at_once("remove")
    check("twelve at once: all are gone", ended == [0] * 12 and content(file) == b"/theirs.so\n", (ended, content(file)))
    put(file, None)
    for other in litter(file.parent):  # backups of other states
        (file.parent / other).unlink()


def a_lock_that_is_gone(file):
    """A lock that was deleted between our opening and our locking it does not count: the present file does.
    """
    if not shutil.which("strace"):
        return skipped("a lock that is gone", "strace is not installed")
    lock = file.with_name("preload.imas-lock")
    lock.touch()
    tracing = ["strace", "-o", "/dev/null", "-e", "inject=flock:delay_enter=4s:when=1"]
    process = subprocess.Popen([*tracing, LDPRELOAD, "add", ENTRY, "--file", file], stdout=subprocess.DEVNULL)
    time.sleep(0.5)  # it has opened the lock by then; if it is slower, the test shows nothing and does not fail
    lock.unlink()
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        time.sleep(4.5)
        check("a deleted lock does not block", content(file) is None, content(file))
    check("a lock that is let go", process.wait() == 0 and content(file) == LINE, content(file))
    tool("remove", file)


# ---- power cuts ------------------------------------------------------------------------------------------------


def system_calls(*words):
    """The system calls of the command, in order, as (call, line)."""
    with tempfile.NamedTemporaryFile("r") as log:
        run("strace", "-o", log.name, *words)
        lines = [line for line in log.read().splitlines() if re.match(r"[a-z_0-9]+\(", line)]
    return [(line.split("(")[0], line) for line in lines]


def killed_at(call, count, *words):
    ended = run("strace", "-o", "/dev/null", "-e", f"inject={call}:signal=SIGKILL:when={count}", *words)
    return ended.returncode in (-9, 137)


def power_cuts(file):
    if not shutil.which("strace"):
        return skipped("power cuts", "strace is not installed")
    theirs = b"/theirs.so # kept\n"
    scenes = [
        ("add to none", "add", None, [None, LINE], []),
        ("add to theirs", "add", theirs, [theirs, theirs + LINE], []),
        ("remove the last", "remove", LINE, [LINE, None], []),
        ("remove from theirs", "remove", theirs + LINE, [theirs + LINE, theirs], []),
        ("roll back to none", "add", None, [None, LINE], ["--", "/bin/false"]),
        ("roll back to theirs", "add", theirs, [theirs, theirs + LINE], ["--", "/bin/false"]),
    ]
    for name, verb, before, allowed, more in scenes:
        words = [LDPRELOAD, verb, ENTRY, "--file", file, *more]
        put(file, before)
        counts = collections.Counter(call for call, _ in system_calls(*words))
        kills, wrong = 0, []
        for call, most in counts.items():
            for count in range(1, most + 1):
                put(file, before)
                kills += killed_at(call, count, *words)
                if content(file) not in allowed:
                    wrong.append((call, count, content(file)))
                # The next call works, and cleans up.
                last = tool("remove" if more else verb, file)
                end = before if more else allowed[1]
                mess = [other for other in litter(file.parent) if not other.endswith("-backup")]
                if last.returncode != 0 or content(file) != end or mess:
                    wrong.append((call, count, last, content(file), mess))
        check(f"{name}: killed at each of {kills} system calls", not wrong and kills >= 20, wrong[:3])
        for other in litter(file.parent):
            (file.parent / other).unlink()
    put(file, theirs)
    order = [call for call, line in system_calls(LDPRELOAD, "add", ENTRY, "--file", file)
             if call in ("write", "fsync", "renameat", "renameat2", "rename") and not line.startswith("write(1")]
    steps = " ".join("rename" if call.startswith("rename") else call for call in order)
    check("written, to disk, renamed, the folder to disk; first the backup, then the file",
          re.search(r"write fsync rename fsync write fsync rename fsync$", steps) is not None, steps)
    tool("remove", file)
    put(file, None)


# ---- rescue as process 1 ---------------------------------------------------------------------------------------

INIT = r"""
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>
int main(int c, char **v) {
    struct statvfs root;
    statvfs("/", &root);
    printf("init: pid %d, %s %s, preload %s, root %s\n", getpid(), v[0], c > 1 ? v[1] : "-",
           access("/etc/ld.so.preload", F_OK) ? "gone" : "there", root.f_flag & ST_RDONLY ? "read-only" : "writable");
    return 0;
}
"""


def rescue_as_init(file):
    folder = file.parents[1]
    root = folder / "root"
    for name in ["etc", "sbin", "run", "usr/sbin"]:
        (root / name).mkdir(parents=True)
    subprocess.run(["gcc", "-static", "-o", root / "sbin/init", "-x", "c", "-"], input=INIT, text=True, check=True)
    shutil.copy(RESCUE, root / "usr/sbin/imas-rescue")
    for mounted in ["", "mount -t tmpfs none run && mkdir run/imas &&"]:
        (root / "etc/ld.so.preload").write_bytes(LINE)
        script = f"mount --bind . . && cd $PWD && {mounted} exec chroot . /usr/sbin/imas-rescue single"
        done = run("unshare", "-m", "--pid", "--fork", "sh", "-c", script, cwd=root)
        if "unshare failed" in done.stderr:
            return skipped("rescue as process 1", done.stderr.strip())
        expected = "init: pid 1, /sbin/init single, preload gone, root writable"
        check("rescue as init: without /proc, then the real init", expected in done.stdout, done)
        check("rescue as init: switches off only where /run is", ("disabled: made" in done.stdout) == bool(mounted), done)
        check("rescue as init: nothing below a later /run", os.listdir(root / "run") == [], os.listdir(root / "run"))
    # As the kernel starts it: the root is read-only.
    (root / "etc/ld.so.preload").write_bytes(LINE)
    image = folder / "image"
    made = run("sh", "-c", f"truncate -s 16M {image} && mke2fs -q -t ext4 -d {root} {image}")
    if made.returncode != 0:
        return skipped("rescue on a read-only root", made.stderr.strip())
    (folder / "m").mkdir()
    script = f"d=$(losetup -f --show {image}) && mount -o ro $d m && losetup -d $d && cd m && exec chroot . /usr/sbin/imas-rescue"
    done = run("unshare", "-m", "--pid", "--fork", "sh", "-c", script, cwd=folder)
    if "mount:" in done.stderr or "losetup:" in done.stderr:
        return skipped("rescue on a read-only root", done.stderr.strip())
    return check("rescue as init: a read-only root is changed and read-only again",
                 "preload gone, root read-only" in done.stdout and not done.stderr, done)


def rescue_reason(file):
    put(file, LINE)
    reason = file.with_name("emergency")
    reason.write_bytes(b"five programs failed\x1b[31m at their start\nsecond line\n")
    done = run(RESCUE, "--file", file, "--run-dir", file.parent / "run", "--reason", reason)
    check("rescue: the reason, without control characters", "why: five programs failed?[31m at their start\n" in done.stdout
          and "second" not in done.stdout, done)
    reason.unlink()
    reason.symlink_to("/etc/shadow")
    done = run(RESCUE, "--file", file, "--run-dir", file.parent / "run", "--reason", reason)
    check("rescue: the reason's link is not followed", done.returncode == 0 and "why:" not in done.stdout, done)
    reason.unlink()
    shutil.rmtree(file.parent / "run")
    put(file, None)


def what_they_are(_file):
    for path in (LDPRELOAD, RESCUE):
        headers = run("readelf", "-lW", path).stdout
        check(f"{path.name} is static", "INTERP" not in headers and "LOAD" in headers, headers)
        check(f"{path.name} --version", run(path, "--version").stdout.startswith(path.name + " "))
        check(f"{path.name} --help", "Exit status" in run(path, "--help").stdout)


def main():
    Arguments(__doc__).parse_args()
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(sent) == signal.SIG_IGN:
            signal.signal(sent, signal.SIG_DFL)  # nohup and shells' background jobs ignore some, and programs inherit that
    folder = pathlib.Path(tempfile.mkdtemp(prefix="imas-tools-"))
    try:
        file = folder / "etc/preload"
        file.parent.mkdir()
        parts = (what_they_are, add_and_remove, any_text, remove_from_the_midst, nature_is_kept, refusals, checks_and_roll_back, interrupted,
                 nobody_reads, many_at_once, a_lock_that_is_gone, power_cuts, rescue_reason, rescue_as_init)
        for part in filter(lambda part: wanted(part.__name__), parts):
            part(file)
    finally:
        shutil.rmtree(folder)
    finish("system-tools")


if __name__ == "__main__":
    main()
