# SPDX-License-Identifier: Apache-2.0
"""How a command ended and what it printed. Runs one in a new folder, with a deadline, and leaves no process
of it."""

import ctypes
import dataclasses
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from imas_testing import SLOWNESS

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SHOWN = 600  # characters of an output that are kept


@dataclasses.dataclass(frozen=True)
class Outcome:
    """status: "exit N", "signal N", "hangs" (no CPU time at the deadline) or "loops"."""

    status: str
    out: str
    err: str
    out_tail: str
    err_tail: str
    seconds: float

    def difference(self, plain, with_errors):
        """How this differs from the untouched run; empty when it does not."""
        if self.status != plain.status:
            return f"{self.status}, untouched {plain.status}" + _last_line(self.err_tail)
        if self.out != plain.out:
            return f"prints {_first_new(self.out_tail, plain.out_tail)}"
        if with_errors and self.err != plain.err:
            return f"standard error: {_first_new(self.err_tail, plain.err_tail)}"
        return ""


def _last_line(text):
    lines = text.strip().splitlines()
    return f" ({lines[-1][:160]})" if lines else ""


def _first_new(text, plain):
    old = plain.splitlines()
    for line in text.splitlines():
        if line not in old:
            return repr(line[:160])
    return f"{len(text.splitlines())} lines, untouched {len(old)}"


def adopt_orphans():
    """Daemons of the commands become children of this process, which ends them, also when the matrix is
    ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_with_all)


def _end_with_all(*_):
    _end_all()
    os._exit(143)


def _table():
    """pid -> (parent, state, CPU ticks) of every process."""
    table = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            except OSError:
                continue
            table[int(entry.name)] = (int(fields[1]), fields[0], int(fields[11]) + int(fields[12]))
    return table


def _descendants():
    table, found, level = _table(), {}, {os.getpid()}
    while level:
        level = {pid for pid, row in table.items() if row[0] in level and pid not in found}
        found.update({pid: table[pid] for pid in level})
    return found


def _end_all():
    """Kills the remaining processes of a run, children of children included, and waits for them."""
    while left := _descendants():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def _wait(process, seconds):
    """The status, or None when it has not ended by then."""
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _is_busy():
    """Whether the processes use any CPU time within a second."""
    before = sum(row[2] for row in _descendants().values())
    time.sleep(1)
    return sum(row[2] for row in _descendants().values()) - before > 1


def _ended(process, deadline):
    """The status, "hangs" or "loops". A busy run gets three times as long, because the machine may be slow."""
    if status := _wait(process, deadline):
        return status
    if not _is_busy():
        return _wait(process, 0.01) or "hangs"
    return _wait(process, 2 * deadline) or "loops"


def _read(path, filters):
    text = path.read_bytes().decode(errors="replace")
    for pattern, replacement in filters:
        text = re.sub(pattern, replacement, text)
    return hashlib.sha256(text.encode()).hexdigest()[:16], text[-SHOWN:]


def _prepare(folder, user):
    (folder / "work").mkdir()
    if user:
        for path in (folder, folder / "work"):
            shutil.chown(path, user)
    folder.chmod(0o755)


def run(command, environment, deadline, *, user="", filters=()):
    """Runs the command; `{folder}` in its words is a folder of this run, the parent of its working folder."""
    folder = Path(tempfile.mkdtemp(prefix="imas-compatibility-"))
    try:
        _prepare(folder, user)
        words = [str(word).replace("{folder}", str(folder)) for word in command]
        environment = {name: value.replace("{folder}", str(folder)) for name, value in environment.items()}
        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            start = time.monotonic()
            process = subprocess.Popen(words, env=environment, cwd=folder / "work", stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, start_new_session=True)
            status = _ended(process, deadline * SLOWNESS)
            seconds = time.monotonic() - start
            _end_all()
            process.wait()
        where = ((re.escape(str(folder)), "FOLDER"), *filters)
        (out, out_tail), (err, err_tail) = _read(folder / "out", where), _read(folder / "err", where)
        return Outcome(status, out, err, out_tail, err_tail, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
