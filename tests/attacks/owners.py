# SPDX-License-Identifier: Apache-2.0
"""One person acts as many, or as everybody: by subordinate uids, by names, by pages named after others'
trials."""

import os
import pathlib
import re
import shutil
import signal
import time

from harness import SETTINGS, STATE, Failed, Skipped

EVERYBODY = 2**32 - 1
# Lives until it is noticed; started without an argument it dies under the candidate, and under no other.
CRASHES = """import os, sys, time
time.sleep(1000 if sys.argv[1:] else 0.4)
if b"jemalloc" in open("/proc/self/maps", "rb").read():
    os.kill(os.getpid(), 11)
"""
# The first of the uids that useradd has given to Mallory; in the container they have the same numbers, so
# that the hook finds its folder.
FIRST = 100_000
SAME = f"{FIRST},{FIRST},65536"
# A page as libimas-guard.so makes it for a production start, with forged content: abi/imas_abi.h.
FORGE = """import os, struct, sys, time
def page(pid, uid, candidate, signal=0, trial_id="forged-0"):
    start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    head = struct.pack("=QIIIIIIQQ40s40s64s1024s1024s72sIIIiII", 0x31454741505341A9, 1, 4096, 2, pid, uid, 1, start, time.time_ns(),
                       boot.encode(), trial_id.encode(), candidate.encode(), b"/usr/bin/python3", b"", b"", 2, 0, 0, -1, signal, 1)
    return head.ljust(4096, b"\\0")
"""
# After imasd has made the folder, three processes of this program claim to have crashed, each under another
# allocator.
DIES = """
folder = f"{sys.argv[1]}/{os.getuid()}"
while not os.path.isdir(folder): time.sleep(0.1)
time.sleep(1)
for candidate in ["jemalloc", "mimalloc", "glibc:arena1"]:
    if os.fork() == 0:
        open(f"{folder}/{os.getpid()}-1-0.page", "wb").write(page(os.getpid(), os.getuid(), candidate, 11))
        time.sleep(5)  # a busy imasd may take a while to identify it
        os.kill(os.getpid(), 11)
    time.sleep(0.2)
time.sleep(1000)
"""
# As rootless containers do: newuidmap maps the uids that /etc/subuid gives to the user. Inside, root is the
# user.
CONTAINER = ["unshare", "--user", "--map-root-user", f"--map-users={SAME}", f"--map-groups={SAME}"]


def as_uid(number):
    """The command line that runs a command under one of the uids of the container."""
    return ["setpriv", f"--reuid={number}", f"--regid={FIRST}", "--clear-groups"]


def needs_container(world):
    if not shutil.which("newuidmap"):
        raise Skipped("newuidmap is missing (package uidmap)")
    lines = pathlib.Path("/etc/subuid").read_text().splitlines()
    if f"mallory:{FIRST}:65536" not in lines:
        raise Skipped(f"useradd gives other subordinate uids: {lines}")
    done = world.run_as("mallory", *CONTAINER, *as_uid(FIRST + 7), "true")
    if done.returncode != 0:
        raise Skipped(f"no user namespace with subordinate uids: {done.stderr.strip()}")


def everywhere(name, source="/usr/bin/sleep"):
    """A program that everybody can start."""
    path = pathlib.Path("/usr/local/bin") / name
    shutil.copy(source, path)
    os.chmod(path, 0o755)
    return path


def crash_under_candidate(world, user, script, words=()):
    """Runs the script until it is noticed, then starts it until the candidate has been tried: it crashes."""
    linger = world.as_user(user, *words, "/usr/bin/python3", script, "linger")
    world.wait(f"{script} becomes known", lambda: world.rows("SELECT 1 FROM program WHERE detail = ?", str(script)))
    world.kill(linger)
    crashed = lambda: world.rows("SELECT 1 FROM trial JOIN program ON program.id = program WHERE detail = ? AND candidate = 'jemalloc'"
                                 " AND sample LIKE '%signal%'", str(script))
    for _ in range(40):
        world.as_user(user, *words, "/usr/bin/python3", script).wait()
        if world.holds(1, crashed):
            return
    raise Failed(f"{script} of {user} never crashed under jemalloc")


def scripts(names, text=CRASHES):
    """A script with that text under each name, below a folder that everybody can read."""
    folder = pathlib.Path("/usr/local/share/crashes")
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.py" for name in names]
    for path in paths:
        path.write_text(text)
    return paths


def crashes_under_five_uids_of_one_user(world):
    needs_container(world)
    world.begin(SETTINGS.replace("jemalloc", "mimalloc"))
    for number, script in enumerate(scripts([f"uid{number}" for number in range(1, 6)], FORGE + DIES), 1):
        world.as_user("mallory", *CONTAINER, *as_uid(FIRST + number), "/usr/bin/python3", script, STATE / "u")
    crashed = lambda: world.status()["counters"]["crashes"]
    world.wait("crashes of all five uids are believed", lambda: crashed() >= 15)
    world.holds(10, lambda: (STATE / "emergency").exists())
    world.expect("there is no emergency", not (STATE / "emergency").exists())
    taken = world.rows("SELECT allocator FROM disabled WHERE lifted_s IS NULL")
    world.expect("no allocator is taken from everybody", not taken, taken)
    world.serves("uids")


def three_programs_of_the_system_still_count(world):
    """The protection itself must still work: three programs of root."""
    for script in scripts(f"root{number}" for number in range(1, 4)):
        crash_under_candidate(world, "root", script)
    world.wait("the allocator is taken from everybody", lambda: world.rows("SELECT allocator FROM disabled WHERE lifted_s IS NULL"))


def folders_for_the_uids_of_one_user(world):
    needs_container(world)
    path = everywhere("many-uids")
    loop = f"for i in $(seq {FIRST} {FIRST + 500}); do {' '.join(as_uid('$i'))} {path} 1000 & done; wait"
    world.as_user("mallory", *CONTAINER, "/bin/sh", "-c", loop)
    folders = lambda: len(list((STATE / "u").iterdir()))
    world.holds(20, lambda: folders() >= 500)
    world.expect("one person has few folders", folders() <= 260, folders())
    world.serves("many-uids")


def token_of(world, path):
    """Name of the trial on offer for the program that decides for everybody."""
    found = world.rows("SELECT token FROM offer JOIN program ON program.id = program WHERE path = ? AND domain = ?", str(path), EVERYBODY)
    return found[0][0] if found else None


def a_shared_program(world, name):
    """A system program that imasd has noticed, with a trial on offer."""
    path = everywhere(name)
    process = world.as_user("root", path, "1000")
    world.wait(f"{path} is offered a trial", lambda: token_of(world, path))
    world.kill(process)
    return path


def a_user_keeps_everybodys_trial(world):
    path = a_shared_program(world, "kept-trial")
    world.notice("mallory", "gets-a-folder")
    process = world.under_trial("mallory", path, "1000")
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2)
    world.kill(world.under_trial("root", path, "1000"))
    os.kill(process.pid, signal.SIGCONT)


def a_page_named_after_roots_trial(world):
    """The page of a process that has ended, under the name of the trial that root's process runs."""
    path = a_shared_program(world, "named-after")
    own, _ = world.notice("mallory", "own")
    trial = world.under_trial("mallory", own, "1000")
    folder = STATE / "u" / "2001"
    stale = world.shell("mallory", 'cp "$1"/*.page ~/stale && ls ~/stale', folder)
    world.expect("the user has a page of a real trial", "stale" in stale)
    world.kill(trial)
    taken = world.under_trial("root", path, "1000")
    token = token_of(world, path)
    world.wait("root's page is seen", lambda: world.rows("SELECT 1 FROM witness WHERE page = ? AND uid = 0", f"{token}.page"))
    before = dropped(world)
    world.shell("mallory", 'cat ~/stale >"$1/$2.page"', folder, token)
    world.wait("the page is dropped", lambda: dropped(world) > before)
    world.notice("root", "after-the-page")
    world.expect("root's trial goes on", token_of(world, path) == token, token_of(world, path))
    world.kill(taken)


def dropped(world):
    counters = world.status()["counters"]
    return sum(count for name, count in counters.items() if name.startswith("dropped_"))


def three_hundred_long_names(world):
    world.begin(SETTINGS + "most_programs = 300\n")
    world.program("mallory", "python3", "/usr/bin/tail")
    script = """
import subprocess, time
for number in range(300):
    subprocess.Popen(["/home/mallory/python3", "-f", f"{number:06}" + "x" * 120_000, "/dev/null"], stderr=subprocess.DEVNULL)
time.sleep(1000)
"""
    world.as_user("mallory", "/usr/bin/python3", "-c", script)
    is_served = lambda: world.status()["programs"] >= 15 or world.status()["counters"]["programs_refused"]
    world.wait("the names are seen", is_served)
    time.sleep(8)
    size = pathlib.Path("/var/lib/imas/imas.db").stat().st_size
    print(f"  long names: store {size / 1e6:.2f} MB, {world.status()['programs']} programs", flush=True)
    world.serves("long-names")
    world.expect("the store stays small", size < 8e6, size)
    longest, = world.rows("SELECT max(length(detail)) FROM program")[0]
    world.expect("no long name is stored", longest <= 1200, longest)


def root_in_a_container_without_a_user_namespace(world):
    path = everywhere("in-container")
    contained = world.as_user("root", "unshare", "--pid", "--fork", "--mount-proc", path, "1000")
    outside, _ = world.notice("root", "outside")
    world.notice("root", "later")  # what came before it was looked at
    world.expect("what its root runs decides nothing for this machine", str(path) not in world.known())
    process = world.as_user("root", path, "1000")
    world.wait("the same program outside is known", lambda: str(path) in world.known())
    world.kill(process)
    world.kill(contained)


def a_set_user_id_program(world):
    """Started by a user with every environment variable that a user can set."""
    path = everywhere("set-user-id")
    os.chmod(path, 0o4755)
    hostile = {"IMAS_RUN": "/home/mallory/run", "LD_PRELOAD": "/home/mallory/evil.so", "IMAS_PAGE": "/home/mallory/page", "IMAS_TRIAL": "x"}
    world.shell("mallory", "mkdir -p ~/run/state")
    process = world.as_user("mallory", path, "1000", env=hostile)
    world.wait("it runs as root", lambda: re.search(r"^Uid:\s+\d+\s+0\s", pathlib.Path(f"/proc/{process.pid}/status").read_text(), re.M))
    world.notice("root", "later")  # what came before it was looked at
    maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
    world.expect("nothing but the preload stub is in it", not re.search(r"libimas(-guard)?\.so|/allocators/|mallory", maps), maps)
    world.expect("it is not known", str(path) not in world.known())
    world.expect("its user wrote nothing", world.shell("mallory", "find ~/run -type f") == "")
    world.serves("set-user-id")


ATTACKS = [
    crashes_under_five_uids_of_one_user,
    three_programs_of_the_system_still_count,
    folders_for_the_uids_of_one_user,
    a_user_keeps_everybodys_trial,
    a_page_named_after_roots_trial,
    three_hundred_long_names,
    root_in_a_container_without_a_user_namespace,
    a_set_user_id_program,
]
