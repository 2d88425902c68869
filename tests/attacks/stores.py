# SPDX-License-Identifier: Apache-2.0
"""Root reads a user's store, which may have any content."""

import os
import pathlib
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


ATTACKS = [a_fifo, links_to_files_of_root, links_beside_the_store, views_and_triggers, a_lock_that_is_held]
