# SPDX-License-Identifier: Apache-2.0
"""An imasd of the benchmark's own, in folders of its own: bench/daemon, bench/fleet-daemon and bench/replicas."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from place import SIX

WINDOW_S = int(os.environ.get("IMASD_BENCH_WINDOW_S", "60"))
EVERYBODY = 2**32 - 1


class World:
    """A private run folder, store and configuration, and the imasd that serves them."""

    def __init__(self, imasd, lib_dir, settings):
        """`settings` is the text of imasd.toml."""
        self.folder = Path(tempfile.mkdtemp(prefix="imasd-bench-", dir="/dev/shm"))
        self.imasd, self.lib_dir = imasd, lib_dir
        for name in ("run", "db"):
            (self.folder / name).mkdir()
        (self.folder / "imasd.toml").write_text(settings)
        self.state = self.folder / "run/state"
        self.daemon = None

    def command(self, *more):
        """imasd's command line, with `more` at its end."""
        return [self.imasd, "--user", "--retest", "0", "--run-dir", self.folder / "run", "--store", self.folder / "db/imas.db",
                "--config", self.folder / "imasd.toml", "--lib-dir", self.lib_dir, *more]

    def start(self):
        """Starts imasd and waits until it serves."""
        (self.state / "status.json").unlink(missing_ok=True)
        log = open(self.folder / "log", "ab")
        self.daemon = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL)
        wait(lambda: (self.state / "status.json").exists(), "imasd serves")

    def stop(self):
        """Ends imasd and waits for it."""
        self.daemon.terminate()
        self.daemon.wait()

    def remove(self):
        """Ends imasd if it runs, and removes its folders."""
        if self.daemon and self.daemon.poll() is None:
            self.stop()
        shutil.rmtree(self.folder)

    def environment(self):
        """Variables for a process that this imasd serves."""
        return {**os.environ, "LD_PRELOAD": str(self.lib_dir / "libimas-preload.so"), "IMAS_RUN": str(self.folder / "run")}

    def store(self):
        """A connection to imasd's database."""
        return sqlite3.connect(self.folder / "db/imas.db", timeout=10)

    def counters(self):
        """imasd's counters, from its status.json."""
        return json.loads((self.state / "status.json").read_text())["counters"]


def wait(holds, what, seconds=60):
    """Polls until `holds()` is true; after `seconds` ends the benchmark and prints what it waited for."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"{sys.argv[0]}: timed out: {what}")
        time.sleep(0.005)


def python():
    """The interpreter's real path, by which it is known."""
    return os.path.realpath("/usr/bin/python3")


def noticed_worker(world):
    """A script that imasd has noticed. Without an argument it ends at once."""
    script = world.folder / "worker.py"
    script.write_text("import sys, time\nx = [str(i) for i in range(200000)]\nif sys.argv[1:]: time.sleep(30)\n")
    child = subprocess.Popen([python(), script, "linger"], env=world.environment())
    row = "SELECT id FROM program WHERE detail = ?"
    wait(lambda: world.store().execute(row, [str(script)]).fetchall(), "the program is noticed")
    child.kill()
    child.wait()
    return script


def add_program(store, detail, sample, trials, build_id="", apart_s=1):
    """Adds a program to the store, with that many copies of the sample, under the six in turn."""
    row = store.execute("INSERT INTO program (domain, path, detail) VALUES (?, ?, ?)", [EVERYBODY, python(), detail])
    for at in range(trials):
        sample.update(trial_id=f"b{row.lastrowid}-{at}", candidate=SIX[at % len(SIX)], made_unix_s=time.time() - 86400 + apart_s * at)
        store.execute(
            "INSERT INTO trial (trial_id, program, candidate, build_id, allocator_version, made_s, retest_s, uneventful, sample)"
            " VALUES (?, ?, ?, ?, '', ?, 0, 0, ?)",
            [sample["trial_id"], row.lastrowid, sample["candidate"], build_id, sample["made_unix_s"], json.dumps(sample)])


def cpu_s(pid):
    """Seconds of CPU that the process has used, its main thread alone."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_mb(pid):
    """Resident and proportional memory of the process, MB: {"Rss", "Pss"}."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) * 1024 / 1e6 for name in ("Rss", "Pss")}
