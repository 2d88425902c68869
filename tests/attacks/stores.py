# SPDX-License-Identifier: Apache-2.0
"""Root reads a user's store, which may have any content; and root with a user's home and variables, as under `sudo -E`."""

import json
import os
import pathlib
import shutil
import sqlite3
import time

from harness import TIMEOUT_S, Failed, run

HOME = pathlib.Path("/home/mallory")
IMAGE = pathlib.Path("/tmp/image")
# Commands of root on the user's store.
WAYS = [["show"], ["explain", "/usr/bin/sleep"], ["pin", "/usr/bin/sleep", "system"], ["apply", "attacked", "--root", IMAGE, "--write"]]
LOCK = """
import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("PRAGMA locking_mode=exclusive")
store.execute("BEGIN EXCLUSIVE")
store.execute("UPDATE program SET path = path")
print("locked", flush=True)
time.sleep(1000)
"""
# A view that never ends in place of a table, and triggers on insertion.
SCHEMA = """
ALTER TABLE pin RENAME TO hidden;
CREATE VIEW pin AS WITH RECURSIVE n (program) AS (SELECT 1 UNION ALL SELECT program + 1 FROM n) SELECT program, 'evil' AS candidate, 0.0 AS at_s FROM n;
CREATE TRIGGER evil AFTER INSERT ON decision BEGIN UPDATE program SET path = '/home/mallory/evil'; END;
"""


def a_store(world, name):
    """A real store of the user, which has the program sleep."""
    path = HOME / name
    done = world.run_as("mallory", "/usr/bin/imas", "pin", "--store", path, "/usr/bin/sleep", "system")
    world.expect("the user makes a store", done.returncode == 0 and path.exists(), done)
    return path


def an_image():
    """A system with one service, to be written to."""
    folder = IMAGE / "etc/systemd/system"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attacked.service").write_text("[Service]\nExecStart=/usr/bin/sleep 1000\n")


def root_reads(world, store, what):
    """Root runs every command on that store; each ends by itself."""
    an_image()
    for way in WAYS:
        begin = time.monotonic()
        try:
            done = run("imas", way[0], "--store", store, *way[1:], timeout=TIMEOUT_S)
        except Exception as why:
            raise Failed(f"{what}: imas {way[0]} of root: {why}") from None
        lines = (done.stderr or done.stdout).strip().splitlines()
        print(f"  {what}: imas {way[0]}: {done.returncode} after {time.monotonic() - begin:.1f} s: {lines[0][:90] if lines else ''}", flush=True)
        world.expect("it ends with a documented status", done.returncode in (0, 1, 2), done)
        world.expect("no control character reaches the terminal", not any(ord(c) < 32 and c not in "\n\t" for c in done.stdout + done.stderr))
    dropped = [path for path in IMAGE.rglob("*imas*") if path.is_file() and "mallory" in path.read_text()]
    world.expect("no service is given what is the user's", not dropped, dropped)


def a_fifo(world):
    world.shell("mallory", "mkfifo ~/fifo.db")
    root_reads(world, HOME / "fifo.db", "a fifo")


def links_to_files_of_root(world):
    before = pathlib.Path("/etc/shadow").read_bytes()
    world.shell("mallory", "ln -s /etc/shadow ~/link.db; ln -s /dev/zero ~/zero.db")
    root_reads(world, HOME / "link.db", "a link to /etc/shadow")
    root_reads(world, HOME / "zero.db", "a link to /dev/zero")
    world.expect("the file of root is as it was", pathlib.Path("/etc/shadow").read_bytes() == before)


def links_beside_the_store(world):
    path = a_store(world, "beside.db")
    world.shell("mallory", 'rm -f "$1"-wal "$1"-shm; for s in wal shm journal; do ln -s /etc/evil-$s "$1-$s"; done', path)
    root_reads(world, path, "links beside the store")
    made = [name for name in os.listdir("/etc") if name.startswith("evil")]
    world.expect("nothing is made where the links lead", not made, made)


def views_and_triggers(world):
    path = a_store(world, "views.db")
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO program (path, detail) VALUES (?, ?)", ["/bin/x\x1b]0;pwned\x07", "a\nb"])
    connection.commit()
    connection.close()
    world.shell("root", 'chown mallory: "$1"*', path)
    root_reads(world, path, "views and triggers")
    connection = sqlite3.connect(path)
    evil = connection.execute("SELECT count(*) FROM program WHERE path LIKE '%evil%'").fetchone()[0]
    world.expect("the user's triggers do not run for root", evil == 0, evil)


def a_lock_that_is_held(world):
    path = a_store(world, "locked.db")
    with open("/tmp/lock", "wb") as output:
        world.as_user("mallory", "/usr/bin/python3", "-c", LOCK, path, stdout=output)
    world.wait("the lock is held", lambda: pathlib.Path("/tmp/lock").read_text())
    root_reads(world, path, "a lock that is held")
    world.serves("locked")


# ---- root with what is a user's ----------------------------------------------------------------------------------

LIB = pathlib.Path("/usr/lib/imas")
REFUSED = "because another user could change it"
MAPS = ["--", "/bin/cat", "/proc/self/maps"]
CANDIDATE = """schema = 1
[[candidate]]
name = "evil"
allocator = "evil"
library = "{library}"
licence = "MIT"
origin = "mallory"
summary = "of mallory"
default = true
"""
# Everything that a verb reads before it begins. Each ends by itself.
VERBS = [["list"], ["show"], ["pin", "/usr/bin/sleep", "system"], ["forget", "/usr/bin/sleep"], ["explain", "/usr/bin/sleep"], ["advise"], ["env", "jemalloc"],
         ["bench", "-n", "1", "--", "/bin/true"], ["top", "--once"]]


def settings_of(world, user, home):
    """Everything that a user may have below a home: settings, an allocator in the catalogue, a store that pins it."""
    folder = home / ".config/imas"
    library = home / "evil.so"
    (folder / "catalogue.d").mkdir(parents=True, exist_ok=True)
    library.write_bytes((LIB / "allocators/libjemalloc.so").read_bytes())
    (folder / "imas.toml").write_text('candidates = ["evil"]\n')
    (folder / "catalogue.d/evil.toml").write_text(CANDIDATE.format(library=library))
    run("chown", "-R", f"{user}:{user}", home, must=True)
    done = world.run_as(user, "/usr/bin/imas", "pin", "/bin/cat", "evil", env={"HOME": str(home)})
    world.expect("its own user has it", done.returncode == 0, done.stderr)
    return folder


def under(world, who, variables, *words):
    """A command of that user with these variables, and with a home of its own where none is among them."""
    return world.run_as(who, "/usr/bin/imas", *words, env=variables)


def is_under(done, library):
    return str(library) in done.stdout


def refuses(world, who, variables, why):
    """No verb takes these variables, and a program starts untouched."""
    for verb in VERBS:
        done = under(world, who, variables, *verb)
        seen = f"{why}: imas {' '.join(verb)} of {who}: {done.returncode}: {done.stderr[:300]!r}"
        world.expect("it is refused with a way out", done.returncode == 2 and REFUSED in done.stderr and "hint: " in done.stderr, seen)
    for words in [[*MAPS], ["--candidate", "evil", *MAPS], ["--candidate", "jemalloc", *MAPS]]:
        done = under(world, who, variables, "run", *words)
        fine = done.returncode == 0 and REFUSED in done.stderr and "started untouched" in done.stderr and "mallory" not in done.stdout
        world.expect("its programs start untouched", fine, f"{why}: {words}: {done}")


def takes(world, who, variables, library, why):
    """The other side: whoever owns it uses it."""
    done = under(world, who, variables, "run", *MAPS)
    world.expect("the pin serves", done.returncode == 0 and is_under(done, library), f"{why}: {done}")


def owners_below(folder):
    return {path: path.lstat().st_uid for path in folder.rglob("*")}


def root_with_a_users_home(world):
    """`sudo -E imas ...`: settings, catalogue, allocators and store of the user, by each variable that leads to them."""
    folder = settings_of(world, "mallory", HOME)
    takes(world, "mallory", {}, HOME / "evil.so", "her own")
    before = owners_below(HOME)
    root = pathlib.Path("/root")
    refuses(world, "root", {"HOME": str(HOME)}, "HOME")
    refuses(world, "root", {"XDG_CONFIG_HOME": str(folder.parent)}, "XDG_CONFIG_HOME")
    refuses(world, "root", {"XDG_DATA_HOME": str(HOME / ".local/share")}, "XDG_DATA_HOME")
    refuses(world, "root", {"IMAS_STORE": str(HOME / ".local/share/imas/imas.db")}, "IMAS_STORE")
    run("cp", "-a", LIB, HOME / "lib", must=True)
    run("chown", "-R", "mallory:", HOME / "lib", must=True)
    refuses(world, "root", {"IMAS_LIB_DIR": str(HOME / "lib")}, "IMAS_LIB_DIR")
    run("chown", "-R", "root:", HOME / "lib", must=True)
    refuses(world, "root", {"IMAS_LIB_DIR": str(HOME / "lib")}, "a folder of root's below hers")
    shutil.rmtree(HOME / "lib")
    done = world.run_as("root", "/usr/bin/imas", "system", "status", env={"IMAS_RUN_DIR": str(HOME)})
    world.expect("nor a run folder of hers", REFUSED in done.stderr and done.returncode == 2, done)
    made = set(owners_below(HOME).items()) - set(before.items())
    world.expect("root made nothing in her home", not made, sorted(made))
    # Where she has nothing, nothing is refused, and nothing is made.
    empty = pathlib.Path("/home/bob")
    done = under(world, "root", {"HOME": str(empty)}, "show")
    world.expect("an empty home is no obstacle to reading", done.returncode == 0 and REFUSED not in done.stderr, done)
    done = under(world, "root", {"HOME": str(empty)}, "pin", "/bin/cat", "system")
    world.expect("no store of root's is made there", done.returncode == 2 and REFUSED in done.stderr and not list(empty.glob(".local")), done)
    # What the person names is the person's decision: docs/services.md.
    done = run("imas", "show", "--store", HOME / ".local/share/imas/imas.db")
    world.expect("a store that is named is read", done.returncode == 0 and "cat" in done.stdout, done)
    takes_of_root(world, root)
    world.serves("home")


def takes_of_root(world, root):
    """Root's own home serves, and stops to as soon as others can write there."""
    folder = settings_of(world, "root", root / "own")
    variables = {"HOME": str(root / "own")}
    library = root / "own/evil.so"
    takes(world, "root", variables, library, "root's own")
    os.chmod(root / "own", 0o777)
    refuses(world, "root", variables, "a folder above that all may write to")
    os.chmod(root / "own", 0o755)
    os.chmod(folder / "imas.toml", 0o666)
    refuses(world, "root", variables, "a file that all may write to")
    os.chmod(folder / "imas.toml", 0o644)
    shutil.chown(folder / "catalogue.d/evil.toml", "mallory")
    refuses(world, "root", variables, "one file of the catalogue is hers")
    shutil.chown(folder / "catalogue.d/evil.toml", "root")
    shutil.chown(library, "mallory")
    done = under(world, "root", variables, "run", "--candidate", "evil", *MAPS)
    world.expect("her library is not loaded", not is_under(done, library) and "another user could change it" in done.stderr, done)
    listed = json.loads(under(world, "root", variables, "list", "--json").stdout)
    row = next(row for row in listed["candidates"] if row["name"] == "evil")
    world.expect("it is withheld", "another user could change it" in (row["reason"] or ""), row)
    shutil.chown(library, "root")
    takes(world, "root", variables, library, "root's own again")


def a_user_with_anothers_home(world):
    """The same rule between users; and where everybody may write, as in /tmp, the owner's store serves."""
    settings_of(world, "mallory", HOME)
    os.chmod(HOME, 0o755)
    variables = {"HOME": str(HOME)}
    refuses(world, "alice", variables, "the home of another user")
    own = {"IMAS_STORE": "/tmp/alices.db"}
    for words in [["pin", "/bin/cat", "jemalloc"], ["show"]]:
        done = under(world, "alice", own, *words)
        world.expect("a store of the own serves in /tmp", done.returncode == 0 and REFUSED not in done.stderr, done)
    takes(world, "alice", own, LIB / "allocators/libjemalloc.so", "a store in /tmp")
    refuses(world, "bob", own, "a store of another's in /tmp")
    refuses(world, "root", own, "root with a store of another's in /tmp")
    # The log of a store is read as the store itself.
    world.shell("bob", "rm -f /tmp/bobs.db*; imas pin --store /tmp/bobs.db /bin/cat system")
    for path in pathlib.Path("/tmp").glob("bobs.db-*"):
        path.unlink()
    world.shell("mallory", "touch /tmp/bobs.db-wal")
    refuses(world, "bob", {"IMAS_STORE": "/tmp/bobs.db"}, "a log of another's beside the own store")
    # A group of the user's own is nobody else, as many distributions have it.
    world.shell("alice", "umask 002; mkdir -p ~/.config/imas; echo 'max_tests = 3' >~/.config/imas/imas.toml; chmod g+w ~")
    done = under(world, "alice", {}, "list")
    world.expect("her own group is herself", done.returncode == 0 and REFUSED not in done.stderr, done)
    run("usermod", "-a", "-G", "alice", "mallory", must=True)
    done = under(world, "alice", {}, "list")
    world.expect("until another is in it", done.returncode == 2 and "chmod go-w" in done.stderr, done)
    run("gpasswd", "-d", "mallory", "alice", must=True)
    os.chmod(HOME, 0o700)


ATTACKS = [a_fifo, links_to_files_of_root, links_beside_the_store, views_and_triggers, a_lock_that_is_held, root_with_a_users_home, a_user_with_anothers_home]
