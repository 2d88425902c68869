# SPDX-License-Identifier: Apache-2.0
"""A server of the laboratory's recipes (lab/workloads/services), with all of its processes, and the lines of its load."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from place import ROOT
from programs import free_port

SERVICES = ROOT / "lab/workloads/services"
ADAPTERS = tomllib.loads((ROOT / "crates/imas-runs/src/service/adapters.toml").read_text())["adapter"]
TICK = os.sysconf("SC_CLK_TCK")
READY_S, LINE_S = 120, 600


class Refused(RuntimeError):
    """A server that cannot be measured here, with the reason."""


class Ended(NamedTuple):
    """How a line of load ended."""

    line: str
    status: int
    text: str
    metrics: str
    seconds: float

    def failed(self):
        """Requests that failed; None where the whole line did."""
        if self.status:
            return None
        own = re.search(r"^errors (\d+)", self.metrics, re.M)
        rules = [rule for rule in (self._adapter() or {}).get("figure", []) if rule["name"] == "errors"]
        return int(own[1]) if own else sum(self._number(rule) for rule in rules)

    def requests(self):
        """Requests that it made: as it says, or as it was told."""
        rule = (self._adapter() or {}).get("requests")
        told = re.search(r" (?:-n |-t |--number-of-queries=|--events=)(\d+)", self.line)
        said = self._number(rule) if rule else 0
        return said or (int(told[1]) if told else 0)

    def answered(self):
        """Bytes of all answers, where the load generator counts them."""
        found = re.search(r"^\s*Total data:\s*(\d+) bytes", self.text, re.M)
        return int(found[1]) if found else None

    def _adapter(self):
        words = {word.rpartition("/")[2] for word in self.line.split()}
        return next((adapter for adapter in ADAPTERS if adapter["program"] in words), None)

    def _number(self, rule):
        """The sum of what the rule finds (adapters.toml says how rules are read)."""
        lines = [line.strip() for line in self.text.splitlines()]
        if "lines_with" in rule:
            rests = [line for line in lines if rule["lines_with"] in line]
        else:
            rests = [line.removeprefix(rule.get("after", "\0")) for line in lines if line.startswith(rule.get("after", "\0"))]
        numbers = [re.findall(r"\d+", rest) for rest in rests]
        return sum(int(found[rule.get("nth", 1) - 1]) for found in numbers if len(found) >= rule.get("nth", 1))


class Server:
    """One server in a folder of its own. `setup`: the folder of what its recipe makes once."""

    def __init__(self, name, place, setup):
        self.recipe = tomllib.loads((SERVICES / f"{name}.toml").read_text())
        # Databases give up root's rights, and must still reach their files.
        place.disk.chmod(0o711)
        self.work = tempfile.mkdtemp(prefix="work-", dir=place.disk)
        os.chmod(self.work, 0o755)
        self.setup = setup
        self.metrics = Path(self.work, "metrics")
        self.values = {"PORT": free_port(), "PORT2": free_port(), "SERVICE_DIR": str(SERVICES), "WORK": self.work, "SETUP": setup,
                       "IMAS_METRICS": str(self.metrics)}
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.work, "LC_ALL": "C.UTF-8", **self.values}
        self.process = None

    def line(self, line, limit_s=LINE_S):
        """Runs a line of the recipe. What it leaves in the background holds no pipe of ours; at the limit all of it ends."""
        self.metrics.unlink(missing_ok=True)
        begun = time.monotonic()
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(["sh", "-c", line], env=self.environment, cwd=self.work, stdin=subprocess.DEVNULL,
                                     stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = child.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                status = child.wait()
            seconds = time.monotonic() - begun
            said.seek(0)
            text = said.read().decode(errors="replace")
        metrics = self.metrics.read_text() if self.metrics.exists() else ""
        return Ended(line, status, text, metrics, seconds)

    def start(self):
        """Starts it, and waits until it is ready."""
        if "setup" in self.recipe and not os.listdir(self.setup):
            self._must("setup", f"cd {shlex.quote(self.setup)}; {self.recipe['setup']}")
        if "prepare" in self.recipe:
            self._must("prepare", self.recipe["prepare"])
        own = {name: self.expanded(value) for name, value in self.recipe.get("environment", {}).items()}
        self.process = subprocess.Popen(["sh", "-c", f"exec {self.recipe['command']}"], env={**self.environment, **own}, cwd=self.work,
                                        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        until = time.monotonic() + READY_S
        while not self.is_ready():
            if not self.is_alive() or time.monotonic() > until:
                raise Refused("it does not get ready")
            time.sleep(0.2)

    def _must(self, what, line):
        ended = self.line(line)
        if ended.status:
            raise Refused(f"{what}: {ended.text.strip()[-300:]}")

    def expanded(self, text):
        """The text with the values of the server's variables."""
        return re.sub(r"\$(\w+)", lambda found: self.values.get(found[1], found[0]), text)

    def is_ready(self):
        ready = self.expanded(self.recipe["ready"])
        if not ready.startswith(("http", "tcp:")):
            return self.line(ready, limit_s=10).status == 0
        try:
            if ready.startswith("tcp:"):
                socket.create_connection(("127.0.0.1", int(ready[4:])), timeout=5).close()
            else:
                urllib.request.urlopen(ready, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code < 500  # a proxy in front of it answers earlier
        except OSError:
            return False
        return True

    def is_alive(self):
        return self.process.poll() is None

    def processes(self):
        """The server and its descendants."""
        children = {}
        for entry in os.listdir("/proc"):
            fields = entry.isdigit() and _stat(entry)
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
        found, more = [], [self.process.pid]
        while more:
            pid = more.pop()
            found.append(pid)
            more.extend(children.get(pid, []))
        return sorted(found)

    def memory(self):
        """Anonymous resident MiB, pages shared by forks counted once."""
        return sum(filter(None, map(_pss_anon_kib, self.processes()))) / 1024

    def cpu(self):
        """Seconds of CPU, with children that have ended."""
        all_fields = filter(None, map(_stat, self.processes()))
        return sum(sum(map(int, fields[11:15])) for fields in all_fields) / TICK

    def end(self):
        """Asks it to end, and removes its folder; its exit status. None: it never began, or had to be killed."""
        status = self._end_process() if self.process else None
        for path in (Path(self.work, name) for name in ("nginx.pid", "back.pid")):  # what `prepare` has started
            if path.exists():
                os.kill(int(path.read_text()), signal.SIGTERM)
        shutil.rmtree(self.work, ignore_errors=True)
        return status

    def _end_process(self):
        if self.is_alive():
            self.process.send_signal(getattr(signal, f"SIG{self.recipe.get('stop', 'TERM')}"))
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None


def _stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _pss_anon_kib(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")), None)
