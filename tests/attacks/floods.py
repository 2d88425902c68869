# SPDX-License-Identifier: Apache-2.0
"""One person uses up a resource: processes, pages, bytes, watches."""

import os
import pathlib
import signal
import time

from harness import CONFIG, SETTINGS, STATE, Failed
from looks import THREADS, begin_large, often, soon
from owners import FORGE, scripts
from processes import FORGED

PROCESSES = 20_000
PAGES = 100_000
# Four at a time, so that the rest of the machine keeps running.
STORM = """
import os, sys
def some(number):
    for _ in range(number):
        pid = os.posix_spawn("/bin/true", ["true"], {})
        os.waitpid(pid, 0)
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        some(int(sys.argv[1]) // 4)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
# Every second file could be a page of this process; the others have a wrong name or wrong content.
PAGES_OF_MINE = FORGE + """
folder, number = sys.argv[1], int(sys.argv[2])
mine, gone, none = page(os.getpid(), os.getuid(), "jemalloc"), page(os.getpid(), os.getuid(), "mimalloc"), b"x" * 4096
gone = gone[:20] + struct.pack("=I", 4_000_000) + gone[24:]
os.chdir(folder)
for at in range(number):
    name = f"{at:016x}.page" if at % 3 else f"{os.getpid()}-1-{at}.page"
    try:
        with open(name, "wb") as file:
            file.write([mine, gone, mine, none][at % 4])
    except OSError:
        time.sleep(0.001)
time.sleep(1000 if sys.argv[3:] else 0)
"""
FILL = """
import os, sys, time
os.chdir(sys.argv[1])
held = []
try:
    for number in range(40_000):
        open(f"{number}.page", "wb").close()
except OSError as why:
    print(number, why, flush=True)
try:
    file = open("big", "wb")
    held.append(file)
    while True:
        file.write(b"x" * 65536)
        file.flush()
except OSError as why:
    print(file.tell(), why, flush=True)
if sys.argv[2:]:
    os.unlink("big")
    time.sleep(1000)
"""
WATCHES = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
made = []
while (fd := libc.inotify_init1(0)) >= 0 and len(made) < 900:
    made.append(fd)
watches, folder = 0, "/usr/share/doc"
for name in os.listdir(folder):
    for fd in made:
        watches += libc.inotify_add_watch(fd, f"{folder}/{name}".encode(), 2) >= 0
    if watches > 300_000 or ctypes.get_errno() == 28:
        break
print(len(made), watches, flush=True)
time.sleep(1000)
"""


def has_folder(world):
    """Mallory's folder of pages, which imasd makes for the first program."""
    world.notice("mallory", f"first-{time.monotonic_ns()}")
    return STATE / "u" / "2001"


def tries_roots_program(world, what):
    """A new program of root is noticed, offered a trial, tried, and judged; how long each took."""
    begin = time.monotonic()
    path, noticed = world.notice("root", f"judged-{time.monotonic_ns()}")
    trial = world.under_trial("root", path, "1000")
    tried = time.monotonic() - begin
    stored = lambda: world.rows("SELECT count(*) FROM trial JOIN program ON program.id = program WHERE path = ?", str(path))[0][0]
    before = stored()
    world.wait("imasd has identified the process of the trial", lambda: world.rows("SELECT 1 FROM witness WHERE pid = ?", trial.pid))
    world.kill(trial)
    ended = time.monotonic()
    world.wait("the trial is stored", lambda: stored() > before)
    print(f"  {what}: a program of root was noticed within {noticed:.1f} s and tried within {tried:.1f} s, its trial stored "
          f"{time.monotonic() - ended:.1f} s after its end; imasd at {world.memory_mb():.1f} MB, {world.cpu_s():.2f} s CPU", flush=True)


def rest(world, what, seconds=20):
    """CPU that imasd uses after the attack."""
    before = world.cpu_s()
    time.sleep(seconds)
    print(f"  {what}: {100 * (world.cpu_s() - before) / seconds:.2f} % of a core at rest with the normal load", flush=True)


def short_processes(world):
    begin = time.monotonic()
    storm = world.as_user("mallory", "/usr/bin/python3", *scripts(["storm"], STORM), str(PROCESSES))
    tries_roots_program(world, "storm")
    storm.wait()
    took = time.monotonic() - begin
    print(f"  storm: {PROCESSES} processes in {took:.0f} s", flush=True)
    world.serves("after-the-storm")
    rest(world, "storm")


def hundred_thousand_pages(world):
    folder = has_folder(world)
    script, = scripts(["pages"], PAGES_OF_MINE)
    begin = time.monotonic()
    writers = [world.as_user("mallory", "/usr/bin/python3", script, folder, PAGES // 2) for _ in range(2)]
    tries_roots_program(world, "pages")
    for writer in writers:
        writer.wait()
    took = time.monotonic() - begin
    world.wait("every page is dealt with", lambda: not any(folder.iterdir()))
    dropped = {name: count for name, count in world.status()["counters"].items() if name.startswith("dropped_") and count}
    print(f"  pages: {PAGES} in {took:.0f} s; {dropped}", flush=True)
    world.serves("after-the-pages")
    rest(world, "pages")


def room_for_pages_filled(world):
    folder = has_folder(world)
    script, = scripts(["fill"], FILL)
    print("  " + world.shell("mallory", 'python3 "$1" "$2"', script, folder).strip().replace("\n", "; "), flush=True)
    world.serves("filled")
    world.wait("imasd clears what is no page", lambda: not any(folder.iterdir()))
    tries_roots_program(world, "filled")


def room_for_pages_filled_in_a_folder(world):
    """Neither a folder nor a time that never comes keeps what is no page."""
    folder = has_folder(world)
    world.shell("mallory", 'cd "$1"; mkdir -p a/b/c; head -c 70M /dev/zero > a/b/c/big; ln -s x later; touch -h -d 2100-01-01 later', folder)
    world.serves("filled-below")
    world.wait("imasd clears what is no page", lambda: not any(folder.iterdir()))
    tries_roots_program(world, "filled-below")


def room_for_pages_held_by_a_deleted_file(world):
    folder = has_folder(world)
    script, = scripts(["hold"], FILL)
    holder = world.as_user("mallory", "/usr/bin/python3", script, folder, "hold")
    free = lambda: os.statvfs(STATE / "u").f_bavail
    world.wait("the room is filled", lambda: free() == 0)
    world.serves("held")
    world.kill(holder)
    world.wait("the room is free again", lambda: free() > 0 and not any(folder.iterdir()))
    tries_roots_program(world, "held")


def pages_of_living_processes(world):
    """Each page belongs to a living process and is correct: imasd watches as many as the user may have."""
    folder = has_folder(world)
    script, = scripts(["living"], FORGE + """
for number in range(2000):
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    open(f"{sys.argv[1]}/{pid}-1-0.page", "wb").write(page(pid, os.getuid(), "jemalloc"))
    if number == 0: time.sleep(5)
time.sleep(1000)
""")
    world.as_user("mallory", "/usr/bin/python3", script, folder)
    watched = lambda: world.status()["flights_watched"]
    world.holds(20, lambda: watched() >= 1000)
    print(f"  living: {watched()} pages are watched", flush=True)
    tries_roots_program(world, "living")
    world.serves("living")


def inotify_exhausted(world):
    script, = scripts(["watches"], WATCHES)
    with open("/tmp/watches", "wb") as output:
        world.as_user("mallory", "/usr/bin/python3", script, stdout=output)
    world.wait("all are made", lambda: pathlib.Path("/tmp/watches").read_text())
    print(f"  inotify: instances and watches: {pathlib.Path('/tmp/watches').read_text().strip()}", flush=True)
    tries_roots_program(world, "inotify")
    world.serves("inotify")


# Two kinds of large processes: with memory that all of them share, and with copies that a fork left in one place.
LARGE = """
import mmap, os, time
shared = mmap.mmap(-1, 256 << 20)
held = bytearray(b"x") * (128 << 20)
for number in range(160):
    if os.fork() == 0:
        if number % 2: sum(shared[::4096])
        time.sleep(1000)
print("ready", flush=True)
time.sleep(1000)
"""

def large_processes_where_memory_is_short(world):
    """They are the largest of the machine, and a trim returns nothing of them; four others of the same user hold more
    than alice's. Hers is trimmed in the first round all the same."""
    world.ready("mallory", "/usr/bin/python3", "-c", LARGE)
    for _ in range(4):
        world.holds_free("mallory", 90000, busy_s=4)
    alices = world.holds_free("alice", busy_s=4)
    CONFIG.write_text(SETTINGS + "short_at = 0.0\n[trim]\nwhen = 'pressure'\nevery = '1m'\nat_least = '16M'\n")
    world.daemon.send_signal(signal.SIGHUP)
    begin = time.monotonic()
    world.wait("alice's process is trimmed", lambda: f"trim: process {alices.pid} (" in world.log.read_text())
    print(f"  memory is short: alice's process was trimmed within {time.monotonic() - begin:.1f} s", flush=True)
    world.serves("short")


def all_at_once(world):
    """All of these at once, and processes that are slow to be looked at, with the normal load of the harness."""
    time.sleep(10)
    rest(world, "all at once: before", 30)
    often(world)
    soon_s = soon(world, "all-at-once-before")
    folder = has_folder(world)
    script, = scripts(["pages"], PAGES_OF_MINE)
    storm, = scripts(["storm"], STORM)
    watches, = scripts(["watches"], WATCHES)
    attackers = [
        world.as_user("mallory", "/usr/bin/python3", storm, PROCESSES // 2),
        world.as_user("mallory", "/usr/bin/python3", script, folder, PAGES // 4),
        world.as_user("mallory", "/usr/bin/python3", watches),
        world.as_user("mallory", "/usr/bin/python3", "-c", THREADS),
        world.as_user("mallory", "/usr/bin/python3", "-c", FORGED, "", 4 << 30),
    ]
    attackers += begin_large(world)
    world.program("mallory", "python3", "/usr/bin/tail")
    names = 'for i in $(seq 200); do ~/python3 -f "$i$(head -c 100000 /dev/zero | tr "\\\\0" x)" /dev/null & done; wait'
    world.as_user("mallory", "/bin/sh", "-c", names)
    took = []
    for number in range(3):
        tries_roots_program(world, f"all at once, {number + 1}")
        took.append(world.serves(f"all-at-once-{number + 1}"))
    world.expect_soon(took, soon_s)
    for attacker in attackers:
        world.kill(attacker)
    for process in list(world.others):
        if process.args[0] == "/bin/sh" and "python3 -f" in str(process.args):
            world.kill(process)
    world.wait("every page is dealt with", lambda: not any(folder.iterdir()))
    CONFIG.write_text(SETTINGS)  # no looks many times a second
    world.daemon.send_signal(signal.SIGHUP)
    time.sleep(10)
    rest(world, "all at once", 30)
    if not world.is_alive():
        raise Failed("imasd has ended")


ATTACKS = [
    short_processes,
    hundred_thousand_pages,
    room_for_pages_filled,
    room_for_pages_filled_in_a_folder,
    room_for_pages_held_by_a_deleted_file,
    pages_of_living_processes,
    inotify_exhausted,
    large_processes_where_memory_is_short,
    all_at_once,
]
