# SPDX-License-Identifier: Apache-2.0
"""Processes that are hard to look at, and locks on what imasd needs."""

import os
import pathlib
import signal
import stat
import time

from harness import ROOT, STATE, TIMEOUT_S, Skipped, run

# Read before the root is replaced.
FORGED = (ROOT / "tests/programs/forged_command_line.py").read_text()
HOLDS = (ROOT / "tests/programs/holds_its_memory.py").read_text()
SILENT = (ROOT / "tests/programs/silent_file_system.py").read_text()
HOLDERS = 8
# Several at a time: one of them could be overlooked.
FORGERS = 4


def forged_command_lines(world):
    """Command lines that the processes have put over 4 GB of zeros."""
    before = set(world.known())
    forgers = [world.as_user("mallory", "/usr/bin/python3", "-c", FORGED, "", 4 << 30) for _ in range(FORGERS)]
    size = lambda process: len(pathlib.Path(f"/proc/{process.pid}/stat").read_text()) and arguments_size(process.pid)
    world.wait("the command lines are forged", lambda: all(size(process) >= 4 << 30 for process in forgers))
    for _ in range(3):
        world.serves("forged-command-lines")
    world.expect("imasd is the same process", world.is_alive())
    for words in [["advise"], ["top", "--once"], ["status"]]:
        peak = memory_of(words)
        print(f"  forged command lines: root's imas {words[0]} took {peak:.0f} MB", flush=True)
        world.expect(f"imas {words[0]} stays small", peak < 200, f"{peak:.0f} MB")
    print(f"  forged command lines: {len(set(world.known()) - before)} programs are known meanwhile", flush=True)


def fuse_device():
    """A device for FUSE that everybody may open."""
    device = "/tmp/fuse"
    if not os.path.exists(device):
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(device, 0o666)
    return device


def a_program_whose_file_system_falls_silent(world):
    """Root lets users mount FUSE for others. What asks for the file of Mallory's program then waits for ever."""
    device, flag, output = fuse_device(), pathlib.Path("/tmp/silent-now"), pathlib.Path("/tmp/silent")
    world.shell("mallory", "cd; chmod 755 .; mkdir silent")
    with open(output, "wb") as written:
        words = ["/usr/bin/python3", "-c", SILENT, device, "/home/mallory/silent", "/usr/bin/sleep", flag]
        world.as_user("root", *words, stdout=written, stderr=written)
    if not world.holds(20, lambda: "mounted" in output.read_text()):
        raise Skipped(f"no FUSE file system can be mounted here: {output.read_text()[-200:]}")
    program = "/home/mallory/silent/program"
    process = world.as_user("mallory", program, "1000")
    world.wait("the program is known", lambda: program in world.known())
    flag.touch()
    world.serves("silent-file-system")
    world.kill(process)
    world.expect("imasd ends by SIGTERM", world.stop() == 0)
    world.start()
    for _ in range(3):
        world.serves("silent-file-system-restarted")
    world.daemon.send_signal(signal.SIGHUP)
    world.serves("silent-file-system-reloaded")


def processes_that_hold_their_memory(world):
    """What reads their command lines, their mappings or their environments waits for ever."""
    world.shell("mallory", f"mkdir $(seq -f mount%g {HOLDERS})")
    device = fuse_device()
    output = pathlib.Path("/tmp/held")
    with open(output, "wb") as written:
        for number in range(1, HOLDERS + 1):
            words = ["/usr/bin/python3", "-c", HOLDS, device, f"/home/mallory/mount{number}"]
            world.as_user("mallory", *words, stdout=written, stderr=written)
    ready = lambda: output.read_text().count("held") >= HOLDERS
    if not world.holds(20, ready):
        raise Skipped(f"no memory can be held here: {output.read_text()[-200:]}")
    for _ in range(3):
        world.serves("held-memory")
    begin = time.monotonic()
    for words in [["advise"], ["top", "--once"], ["status"]]:
        run("imas", *words, timeout=TIMEOUT_S)
        print(f"  held memory: root's imas {words[0]} has ended after {time.monotonic() - begin:.1f} s", flush=True)
    world.expect("imasd ends by SIGTERM", world.stop() == 0)
    world.start()
    world.serves("held-memory-restarted")


def arguments_size(pid):
    """Bytes between begin and end of the command line, by proc_pid_stat(5)."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[46]) - int(fields[45])


def memory_of(words):
    """The most memory that this command of root has had, MB. It is ended when it takes too much."""
    limited = ["prlimit", "--as=8589934592", "/usr/bin/time", "-f", "%M", "imas", *words]
    done = run(*limited, timeout=120)
    return int(done.stderr.split()[-1]) / 1000


def a_lock_on_the_folder_that_everybody_may_open(world):
    """Whoever can open a file can lock it; the lock is to be had whenever imasd restarts."""
    paths = [STATE, STATE / "index", STATE / "status.json", STATE / "lock", STATE / "lock/imasd"]
    locks = [world.as_user("mallory", "/usr/bin/flock", path, "sleep", "1000") for path in paths]
    holds = lambda lock: pathlib.Path(f"/proc/{lock.pid}/task/{lock.pid}/children").read_text()
    world.wait("each has its lock or has ended", lambda: all(lock.poll() is not None or holds(lock) for lock in locks))
    for _ in range(3):
        world.expect("imasd ends", world.stop() == 0)
        time.sleep(0.2)
        world.start()
        world.expect("imasd serves again", world.is_alive())
    world.serves("locked-folder")


def two_daemons_on_one_folder(world):
    """The lock itself must still work."""
    second = world.launch()
    world.others.append(second)
    world.wait("the second one has ended", lambda: second.poll() is not None)
    world.expect("it says why", "another imasd serves here" in world.log.read_text(), world.log.read_text()[-300:])
    world.serves("second-daemon")


ATTACKS = [forged_command_lines, processes_that_hold_their_memory, a_program_whose_file_system_falls_silent,
           a_lock_on_the_folder_that_everybody_may_open, two_daemons_on_one_folder]
