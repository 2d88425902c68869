# SPDX-License-Identifier: Apache-2.0
"""Looks that cost imasd or root what the user chooses: memory, threads, places, files, connections."""

import os
import pathlib
import subprocess
import time

from harness import CONFIG, MOST_MB, ROOT, SETTINGS, STATE, TIMEOUT_S, fields_of, run
from imas_testing import peaks, watched

PROGRAMS = {"many_mappings": (ROOT / "tests/programs/many_mappings.c").read_text()}

# Replicas with that much memory each, all of it the page of zeros: page tables of 2 MB for each GB.
LARGE_GB = 40
LARGE = """
import ctypes, mmap, os, sys, time
size = int(sys.argv[1]) << 30
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
memory.madvise(15)  # MADV_NOHUGEPAGE
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), 22) != 0:  # MADV_POPULATE_READ
    sys.exit("memory cannot be populated")
print("large", flush=True)
time.sleep(1000)
"""
LARGE_REPLICAS = 3
# /proc is searched every two seconds here, and what is new is looked at when it has lived for 0.1 s: without an attack a
# program is noticed within 0.1 to 2.1 s, as the searches happen to fall. During one that may take so much longer.
QUIET_S, DELAY_S = 2.1, 2.0
# A trial is looked at for hangs from three seconds on, once a second.
OLD_S = 4
THREADS = """
import threading, time
lock = threading.Lock()
lock.acquire()
threading.stack_size(32768)
try:
    for _ in range(6000):
        threading.Thread(target=lock.acquire, daemon=True).start()
except RuntimeError:
    pass
print("many", flush=True)
time.sleep(1000)
"""


def often(world):
    """Processes of services are looked at many times a second."""
    world.stop()
    CONFIG.write_text(SETTINGS + "sample_after_s = 2.0\n")
    world.start()


def soon(world, name):
    """How long others may take to be noticed during an attack, from how long they take now."""
    return max(world.serves(name), QUIET_S) + DELAY_S


def age_s(pid):
    """How long the process has lived."""
    started = int(fields_of(pathlib.Path(f"/proc/{pid}/stat"))[19]) / os.sysconf("SC_CLK_TCK")
    return float(pathlib.Path("/proc/uptime").read_text().split()[0]) - started


def begin_large(world):
    """Replicas of one program that take long to be looked at."""
    output = pathlib.Path("/tmp/large")
    program = world.program("mallory", "large", "/usr/bin/python3")
    with open(output, "wb") as written:
        start = lambda: world.as_user("mallory", program, "-c", LARGE, LARGE_GB, stdout=written, stderr=written)
        replicas = [start() for _ in range(LARGE_REPLICAS)]
    world.wait("the replicas are large", lambda: output.read_text().count("large") >= LARGE_REPLICAS)
    return replicas


def replicas_that_take_long_to_be_looked_at(world):
    """Each look walks all page tables. Others are noticed meanwhile as without."""
    often(world)
    soon_s = soon(world, "quiet")
    begin_large(world)
    time.sleep(3)  # they are looked at
    world.expect_soon([world.serves(f"large-replicas-{round}") for round in range(3)], soon_s)


def threads_without_number(world):
    """A trial whose process has thousands of threads that wait: a look for hangs reads files of each."""
    soon_s = soon(world, "quiet")
    program = world.program("mallory", "threads", "/usr/bin/python3")
    trial = world.under_trial("mallory", program, "-c", THREADS)
    world.wait("there are threads", lambda: len(os.listdir(f"/proc/{trial.pid}/task")) > 4000)
    world.wait("the trial is old enough to be looked at", lambda: age_s(trial.pid) > OLD_S)
    world.expect_soon([world.serves(f"many-threads-{round}") for round in range(3)], soon_s)


def mappings_without_number(world):
    """Processes with 65,000 mappings, of pages and of files with long names: verbs of root, and imasd, take no more memory."""
    many = world.program("mallory", "many", built("many_mappings"))
    world.shell("mallory", "mkdir ~/mapped")
    output = pathlib.Path("/tmp/many")
    with open(output, "wb") as written:
        start = lambda *words: world.as_user("mallory", many, *words, stdout=written, stderr=written)
        processes = [start("pages"), start("files", "/home/mallory/mapped")]
    world.wait("the processes have their mappings", lambda: output.read_text().count("ready") == 2)
    time.sleep(3)  # imasd looks at them
    for words in (["top", "--once"], ["advise"], *(["explain", "--pid", process.pid] for process in processes)):
        done, most, took = watched("imas", *words, stdin=subprocess.DEVNULL)
        print(f"  imas {words[0]} beside 130,000 mappings: {most:.1f} MiB, {took:.1f} s", flush=True)
        world.expect(f"imas {words[0]} ends", done.returncode in (0, 1, 2), done)
        world.expect(f"imas {words[0]} takes less than {MOST_MB} MiB", most < MOST_MB, f"{most:.1f}")
    server = world.as_user("root", "/usr/bin/imas-serve", "--listen", "127.0.0.1:4627")
    world.wait("imas-serve shows the processes", lambda: answer_of("root", world, "/machine") == 200)
    all_of_it = peaks(server.pid)
    most = max(mib for pid, mib in all_of_it.items() if pid == server.pid or is_helper(pid))
    print(f"  imas serve: {most:.1f} MiB; with probes of allocators {max(all_of_it.values()):.1f} MiB", flush=True)
    world.expect(f"imas serve takes less than {MOST_MB} MiB", most < MOST_MB, f"{most:.1f}")
    most = max(peaks(world.daemon.pid).values())
    print(f"  imasd: {most:.1f} MiB, its helpers included", flush=True)
    world.expect(f"imasd takes less than {MOST_MB} MiB", most < MOST_MB, f"{most:.1f}")
    world.serves("many")


def is_helper(pid):
    """Whether it looks at others for its parent."""
    try:
        return b"__read_foreign" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def built(name):
    """A program of tests/programs."""
    source = pathlib.Path(f"/tmp/{name}.c")
    source.write_text(PROGRAMS[name])
    run("gcc", "-O1", "-Wall", "-o", f"/tmp/{name}", source, must=True)
    return f"/tmp/{name}"


def output_files_in_a_folder_of_mallory(world):
    """Root exports into a folder where Mallory has put links, a FIFO and a folder in place of the files."""
    victim, new = pathlib.Path("/etc/victim"), pathlib.Path("/etc/new")  # the overlay's
    victim.write_text("untouched")
    world.shell("mallory", f"cd; chmod 755 .; mkdir places && cd places && ln -s {victim} link && ln -s {new} dangling && mkdir folder")
    for name in ["link", "dangling", "folder"]:
        done = run("imas", "bench", "--runs", "1", "--with", "system", "--export-json", f"/home/mallory/places/{name}", "--", "/bin/true", timeout=TIMEOUT_S)
        world.expect(f"root does not write at {name}", done.returncode != 0, done.stdout + done.stderr)
        world.expect("the message is one for people", "panicked" not in done.stderr, done.stderr)
    world.expect("the victim is untouched", victim.read_text() == "untouched" and not new.exists())


def connections_of_mallory(world):
    """Mallory holds thousands of sockets and asks for pages without a token; root is answered meanwhile."""
    server = world.as_user("root", "/usr/bin/imas-serve", "--listen", "127.0.0.1:4627")
    world.wait("imas-serve listens", lambda: answer_of("root", world) is not None)
    quiet_s = answered_s(world)
    hog = "import socket, time\nheld = []\n" \
          "for _ in range(900):\n    one = socket.socket()\n    one.settimeout(1)\n" \
          "    try:\n        one.connect(('127.0.0.1', 4627))\n    except OSError:\n        continue\n" \
          "    held.append(one)\nprint('held', flush=True)\ntime.sleep(1000)\n"
    output = pathlib.Path("/tmp/held")
    with open(output, "wb") as written:
        for _ in range(3):
            world.as_user("mallory", "/usr/bin/python3", "-c", hog, stdout=written)
    world.wait("mallory holds them", lambda: output.read_text().count("held") == 3)
    took = answered_s(world)
    print(f"  connections: root was answered five times within {took:.1f} s beside 2,700 of mallory's, within {quiet_s:.1f} s before", flush=True)
    # Starts of Python are most of it on a busy machine.
    world.expect("soon", took < 10 + 2 * quiet_s, f"{took:.1f} s")
    world.expect("mallory is asked for a token", answer_of("mallory", world) in [401, 403, None], answer_of("mallory", world))
    world.expect("the server runs", server.poll() is None)


ASK = "import http.client, sys\none = http.client.HTTPConnection('127.0.0.1', 4627, timeout=30)\none.request('GET', sys.argv[1])\nprint(one.getresponse().status)"


def answered_s(world):
    """How long five answers to root take."""
    begin = time.monotonic()
    for _ in range(5):
        status = answer_of("root", world)
        world.expect("root is answered", status == 200, status)
    return time.monotonic() - begin


def answer_of(user, world, page="/"):
    """What the server says to a process of that user; None if nothing."""
    done = world.run_as(user, "/usr/bin/python3", "-c", ASK, page)
    return int(done.stdout) if done.returncode == 0 else None


def a_store_that_is_removed(world):
    """An administrator, or a script, removes the store of a running imasd: nothing more is written into the lost file."""
    world.notice("alice", "before")
    for path in STATE.parents[2].joinpath("var/lib/imas").glob("imas.db*"):
        path.unlink()
    world.wait("a new store is there", lambda: "was removed or replaced" in world.log.read_text())
    world.notice("alice", "after")


ATTACKS = [replicas_that_take_long_to_be_looked_at, threads_without_number, mappings_without_number, output_files_in_a_folder_of_mallory, connections_of_mallory,
           a_store_that_is_removed]
