# SPDX-License-Identifier: Apache-2.0
"""Stores to measure with: one made by real starts of a program, and a large one whose rows are copies of its
rows."""

import json
import sqlite3

from place import SIX

STARTS = 5 * len(SIX) + 1  # five trials of each, and one more start, which stores the last page


def settled(place, name, command):
    """Starts the command until no trial is due."""
    store = place.disk / name
    for _ in range(STARTS):
        place.call("run", "--retest", "0", "--", *command, store=store)
    if json.loads(place.call("explain", "--json", command[0], store=store))["next"]["trial"]:
        raise RuntimeError(f"after {STARTS} starts {command[0]} is still under trial")
    return store


def _columns(connection, table, without):
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name for name in names if name not in ("id", "program", *without))


def _clone(connection, number):
    """One more program with the same trials and decisions; every column but the identities is copied."""
    connection.execute("INSERT INTO program (path, detail) VALUES (?, '')", (f"/usr/lib/cloned/program-{number}",))
    program = connection.execute("SELECT last_insert_rowid()").fetchone()[0]
    kept = _columns(connection, "trial", ["trial_id"])
    connection.execute(f"INSERT INTO trial (program, trial_id, {kept}) "
                       f"SELECT {program}, trial_id || '-{number}', {kept} FROM trial WHERE program = 1")
    kept = _columns(connection, "decision", [])
    connection.execute(f"INSERT INTO decision (program, {kept}) SELECT {program}, {kept} FROM decision WHERE program = 1")


def enlarged(place, small, programs):
    """A store of that many programs, each with the trials of the one in the small store."""
    large = place.disk / f"of-{programs}.db"
    source, target = sqlite3.connect(small), sqlite3.connect(large)
    source.backup(target)
    with target:
        for number in range(1, programs):
            _clone(target, number)
    trials = target.execute("SELECT count(*) FROM trial").fetchone()[0]
    source.close()
    target.close()
    if trials < programs * (STARTS - 1):
        raise RuntimeError(f"the large store has only {trials} trials")
    return large
