# SPDX-License-Identifier: Apache-2.0
"""The machine for the attacks: private mount and pid namespaces over the real root. In them the package is unpacked,
the preload entry is in place, and imasd runs as user imas with the capabilities of its unit. The real machine is not
changed.

An attack is a function that takes the World. `World.begin` gives each one an imasd with an empty store."""

import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))

from imas_testing import SLOWNESS, Failed, Skipped, case, finish, run, until  # noqa: E402

STATE = pathlib.Path("/run/imas/state")
STORE = pathlib.Path("/var/lib/imas/imas.db")
CONFIG = pathlib.Path("/etc/imas/imasd.toml")
UNIT = pathlib.Path("/usr/lib/systemd/system/imasd.service")
# Timeout after which an attack counts as successful. It is no measurement: slow looks of a busy machine cost an owner
# half a minute, without any attack.
TIMEOUT_S = 120
# A start takes no longer, beside an attack too.
START_S = 5
# The promise, in MB of resident memory: docs/figures.md.
MOST_MB = 20
# Real users of the namespace. Mallory attacks; Alice only works.
USERS = {"mallory": 2001, "alice": 2002, "bob": 2003}
# A program that holds free memory: the real root is not reachable later.
HOLDS_FREE = (ROOT / "tests/programs/holds_free.py").read_text()
# Programs are noticed at once, and each has one trial of one candidate.
SETTINGS = """policy = "paper"
worth_cpu_s = 0.0
worth_life_s = 0.1
max_tests = 1
candidates = ["jemalloc"]
"""


# ---- the namespaces ---------------------------------------------------------------------------------------------


# The new root is a file system in memory over the real one. Of the mounts only /proc, /dev and /sys are
# visible. The store and the settings of whoever runs the tests are not there.
NEW_ROOT = """set -e
mount -t tmpfs -o mode=755 imas-attacks "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
rm -rf "./${HOME:-/root}/.local/share/imas" "./${HOME:-/root}/.config/imas"
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p tmp/old
pivot_root . tmp/old
cd /
umount -l /tmp/old
rmdir /tmp/old
"""


def change_root(folder, package):
    """Replaces the root of these namespaces by one that is made in the folder, and unpacks the package there."""
    # Read before the change, because the old root is not reachable afterwards.
    archive = subprocess.run(["tar", "-C", package, "-c", "."], capture_output=True, check=True).stdout
    subprocess.run(["sh", "-c", NEW_ROOT, "sh", folder], check=True)
    os.chdir("/")
    pathlib.Path("/etc/ld.so.preload").unlink(missing_ok=True)
    subprocess.run(["tar", "-C", "/", "-x", "--no-same-owner", "--no-overwrite-dir"], input=archive, check=True)


def make_users():
    """The user imas, as sysusers.d makes it, and the test users."""
    subprocess.run(["useradd", "--system", "--home-dir", "/var/lib/imas", "--shell", "/usr/sbin/nologin", "imas"], check=True)
    for name, uid in USERS.items():
        subprocess.run(["useradd", "--create-home", "--uid", str(uid), "--shell", "/bin/sh", name], check=True, stderr=subprocess.DEVNULL)
        os.chmod(f"/home/{name}", 0o700)


def make_folders():
    """As tmpfiles.d and the unit make them; users' pages are on a separate file system."""
    owner = "imas"
    for folder, mode in [("/run/imas", 0o755), (STATE, 0o755), (STATE / "u", 0o711), (STORE.parent, 0o750)]:
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, mode)
        if folder != pathlib.Path("/run/imas"):
            shutil.chown(folder, owner, owner)
    if not os.path.ismount(STATE / "u"):
        options = "mode=0711,size=64M,nr_inodes=32k,nosuid,nodev,noexec"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "imas-pages", STATE / "u"], check=True)
        shutil.chown(STATE / "u", owner, owner)


def unit_capabilities():
    """The capabilities that the installed unit gives to imasd."""
    line = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    return [word.removeprefix("CAP_").lower() for word in line[1].split()]


# ---- the world --------------------------------------------------------------------------------------------------


class World:
    """One machine with imasd."""

    def __init__(self, folder, package):
        change_root(folder, package)
        make_users()
        make_folders()
        self.daemon = None
        self.others = []
        self.log = pathlib.Path("/tmp/imasd.log")
        run("imas", "system", "enable", "--yes", must=True)

    # -- imasd

    def begin(self, settings=SETTINGS):
        """An imasd with an empty store."""
        self.end()
        make_folders()
        for place in [STATE, STATE / "u", STORE.parent]:
            for path in place.iterdir():
                if path != STATE / "u":
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.log.write_bytes(b"")
        CONFIG.write_text(settings)
        self.start()

    def start(self):
        """imasd as its unit starts it: without root, without new privileges, with these capabilities and no
        others."""
        (STATE / "status.json").unlink(missing_ok=True)
        self.daemon = self.launch()
        self.wait("imasd serves", lambda: (STATE / "status.json").exists())

    def launch(self):
        """One more process of imasd."""
        given = ",".join("+" + name for name in unit_capabilities())
        words = ["setpriv", "--reuid=imas", "--regid=imas", "--clear-groups", f"--inh-caps=-all,{given}", f"--ambient-caps=-all,{given}",
                 f"--bounding-set=-all,{given}", "--no-new-privs", "/usr/sbin/imasd", "--retest", "0"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "IMAS_DISABLE": "1"}
        with open(self.log, "ab") as log:
            return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, number=signal.SIGTERM, timeout_s=TIMEOUT_S):
        """Ends imasd; how it ended, None if it had to be killed."""
        if self.daemon is None:
            return None
        daemon, self.daemon = self.daemon, None
        daemon.send_signal(number)
        try:
            return daemon.wait(timeout_s * SLOWNESS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            if not self.holds(TIMEOUT_S, lambda: daemon.poll() is not None):
                raise Failed("imasd cannot be ended: it waits in the kernel") from None
            return None

    def end(self):
        """imasd and everything that an attack has left running."""
        for process in self.others:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.others = []
        self.stop(timeout_s=2)
        # Of a file system whose server has ended nothing can be seen, and nothing below it be removed.
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split()
            if kind.startswith("fuse") and place.startswith("/home/"):
                run("umount", "--lazy", place)

    def status(self):
        """imasd's status.json, which everybody may read."""
        return json.loads((STATE / "status.json").read_bytes())

    def memory_mb(self):
        """The most resident memory that imasd has had, MB."""
        text = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1000

    def cpu_s(self):
        """CPU that imasd has used, with its helpers, those that have ended and those that run."""
        stats = {path.parent.name: fields_of(path) for path in pathlib.Path("/proc").glob("[0-9]*/stat")}
        own = [int(field) for field in stats[str(self.daemon.pid)][11:15]]
        helpers = [fields for fields in stats.values() if fields and int(fields[1]) == self.daemon.pid]
        ticks = sum(own) + sum(int(field) for fields in helpers for field in fields[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def is_alive(self):
        return self.daemon.poll() is None

    # -- programs

    def as_user(self, user, *words, **more):
        """Starts the command as that user, in a new process group, in the user's home."""
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.DEVNULL)
        more.setdefault("stderr", subprocess.DEVNULL)
        home = "/root" if user == "root" else f"/home/{user}"
        environment = {"PATH": "/usr/bin:/bin", "HOME": home, **more.pop("env", {})}
        process = subprocess.Popen([str(word) for word in words], env=environment, cwd=home, user=user, group=user, extra_groups=[],
                                   start_new_session=True, **more)
        self.others.append(process)
        return process

    def ready(self, user, *words, **more):
        """A process of the user that has done what it does before it says "ready"."""
        output = pathlib.Path(f"/tmp/ready-{user}-{time.monotonic_ns()}")
        with open(output, "wb") as written:
            process = self.as_user(user, *words, stdout=written, stderr=written, **more)
        self.wait("it is ready", lambda: "ready" in output.read_text())
        return process

    def holds_free(self, user, blocks=60000, busy_s=0, **more):
        """A process of the user with so many kilobytes in glibc's heap, nearly all of them free, after so much CPU time."""
        busy = f"import time\nwhile time.process_time() < {busy_s}: pass\n"
        return self.ready(user, "/usr/bin/python3", "-c", busy + HOLDS_FREE, "threads", blocks, stdin=subprocess.PIPE, **more)

    def run_as(self, user, *words, **more):
        """The same, and waits for the end: exit status, output, errors."""
        process = self.as_user(user, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S * SLOWNESS)
        except subprocess.TimeoutExpired:
            raise Failed(f"{words} as {user} does not end") from None
        return subprocess.CompletedProcess(words, process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def shell(self, user, script, *words):
        """Runs a shell script of the user; its output."""
        done = self.run_as(user, "/bin/sh", "-c", script, "sh", *words)
        if done.returncode != 0:
            raise Skipped(f"{script!r} as {user}: {done.stderr.strip()}")
        return done.stdout

    def program(self, user, name, source="/usr/bin/sleep"):
        """A program of the user's own: a copy of another, at ~/NAME."""
        home = pathlib.Path("/root" if user == "root" else f"/home/{user}")
        path = home / name
        shutil.copy(source, path)
        shutil.chown(path, user, user)
        return path

    def rows(self, query, *values):
        """Rows of the store, read as root while imasd serves."""
        store = sqlite3.connect(f"file:{STORE}?mode=ro", uri=True, timeout=TIMEOUT_S)
        try:
            return store.execute(query, values).fetchall()
        finally:
            store.close()

    def write(self, statement, *values):
        """Changes the store, while imasd is stopped."""
        store = sqlite3.connect(STORE, timeout=TIMEOUT_S)
        with store:
            store.execute(statement, values)
        store.close()
        for path in STORE.parent.iterdir():
            shutil.chown(path, "imas", "imas")

    def known(self):
        """The paths of all programs in the store."""
        return [path for path, in self.rows("SELECT path FROM program")]

    def notice(self, user, name):
        """Runs a new program of the user until imasd has noticed it; the program, and how long that took."""
        return self.notice_all({user: name})[user]

    def notice_all(self, names):
        """The same for several users at once."""
        begin = time.monotonic()
        paths = {user: self.program(user, name) for user, name in names.items()}
        processes = [self.as_user(user, path, "1000") for user, path in paths.items()]
        found = {}
        for user, path in paths.items():
            self.wait(f"{path} of {user} becomes known", lambda path=path: str(path) in self.known())
            found[user] = (path, time.monotonic() - begin)
        for process in processes:
            self.kill(process)
        return found

    def kill(self, process):
        """Ends what `as_user` has started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def under_trial(self, user, path, *words):
        """Starts the program until a start is a trial, whose process keeps running."""
        deadline = time.monotonic() + TIMEOUT_S * SLOWNESS
        while time.monotonic() < deadline:
            process = self.as_user(user, path, *words)
            # One that is killed before it has begun counts as a crash: the kernel tells imasd nothing here.
            if self.holds(START_S, lambda: b"/libimas.so" in maps(process.pid)):
                return process
            self.kill(process)
        raise Failed(f"{path} of {user} is never tried")

    # -- waiting and judging

    def holds(self, seconds, condition):
        """Whether the condition becomes true within that time."""
        return until(condition, seconds)

    def wait(self, what, condition):
        """Waits until a condition is true; after the timeout the attack has succeeded."""
        if not self.holds(TIMEOUT_S, condition):
            raise Failed(f"in vain: {what}")

    def expect(self, what, fine, seen=""):
        """A condition that must hold."""
        if not fine:
            raise Failed(f"not so: {what} {seen}")

    def serves(self, attack):
        """After the attack, or during it: imasd runs, uses little memory, and notices new programs of others. How long that
        took."""
        self.expect("imasd runs", self.is_alive())
        found = self.notice_all({user: f"{attack}-{time.monotonic_ns()}" for user in ["alice", "root"]})
        took = [seconds for _, seconds in found.values()]
        memory = self.memory_mb()
        print(f"  {attack}: new programs of alice and root were noticed within {took[0]:.1f} and {took[1]:.1f} s, imasd at {memory:.1f} MB, "
              f"{self.cpu_s():.2f} s CPU", flush=True)
        self.expect(f"imasd stays below {MOST_MB} MB", memory <= MOST_MB, f"{memory:.1f} MB")
        return max(took)

    def expect_soon(self, took, within_s):
        """Most of three such times are no longer: what else runs on the machine may hold up one."""
        self.expect(f"others are noticed within {within_s:.1f} s", sorted(took)[1] <= within_s, took)


def fields_of(stat):
    """The fields of a stat file behind the name, by proc_pid_stat(5) from the state on; none after its process's end."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def maps(pid):
    """The mappings of the process; nothing after its end."""
    try:
        return pathlib.Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


# ---- all attacks ------------------------------------------------------------------------------------------------


class Load:
    """A user who works normally the whole time: short programs, one after the other."""

    SCRIPT = "while :; do for i in 1 2 3; do sort /etc/services | wc -l; done; sleep 0.3; done"

    def __init__(self, world):
        world.as_user("alice", "/bin/sh", "-c", self.SCRIPT)


def judge(world, attack):
    """Makes one attack on a new imasd with a normal load."""
    try:
        world.begin()
        Load(world)
        attack(world)
    except Exception as why:
        if not isinstance(why, Skipped):
            print(*world.log.read_text(errors="replace").splitlines()[-5:], sep="\n", flush=True)
        raise
    finally:
        world.end()


def run_all(folder, package, groups):
    """Makes all attacks of these groups, `{name: [function, ...]}`; ends the script."""
    world = World(folder, package)
    for group, attacks in groups.items():
        for attack in attacks:
            case(f"{group}: {attack.__name__.replace('_', ' ')}", judge, world, attack)
    finish("attacks")
