# SPDX-License-Identifier: Apache-2.0
"""The harness of the tests in Python: arguments, checks and their counts, commands with a deadline, polling, namespaces.

A test is a script. It reads its words by `Arguments`, judges by `check` or `case`, and ends by `finish`, whose last line
`tests/count` reads."""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TIMEOUT_S = 300  # of a command
LIMIT_S = 60  # of polling; no measurement, for the machine may be busy
SLOWNESS = int(os.environ.get("IMAS_TEST_SLOWNESS", "1"))  # factor of each deadline: above 1 on an emulated machine
INSIDE = "IMAS_TEST_NAMESPACE"  # the folder that `enter_namespace` has made

_began = time.monotonic()
_counts = {"passed": 0, "failed": 0, "skipped": 0}
_part = ""


class Failed(Exception):
    """The reason why a case fails."""


class Skipped(Exception):
    """The reason why a case cannot run here."""


# ---- choosing, judging, counting --------------------------------------------------------------------------------


class Arguments(argparse.ArgumentParser):
    """The parser of a script's words. Every script has -k."""

    def __init__(self, description):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("-k", default="", metavar="PART", help="only what has PART in its name")

    def parse_args(self, *words):
        global _part
        options = super().parse_args(*words)
        _part = options.k
        return options


def imas_of(description):
    """The command `imas` that is the one word of a script."""
    arguments = Arguments(description)
    arguments.add_argument("imas", type=pathlib.Path)
    return arguments.parse_args().imas.resolve()


def wanted(name):
    """Whether -k chooses the name."""
    return _part in name


def check(name, good, detail=""):
    """Counts one fact; `detail` is printed if it does not hold. Returns whether it holds."""
    _counts["passed" if good else "failed"] += 1
    if not good:
        print(f"FAILED: {name}\n  {str(detail)[:4000]}", flush=True)
    return bool(good)


def absent_libraries(file):
    """The shared libraries that the file is linked with and the dynamic linker does not find, by their names."""
    asked = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
    return [line.split()[0] for line in asked.splitlines() if line.endswith("=> not found")]


def skipped(name, why):
    """Says that a test, or a part of one, cannot run here. `tests/count` reads the line."""
    _counts["skipped"] += 1
    print(f"SKIPPED: {name}: {why}", flush=True)


def case(name, test, *arguments):
    """Runs one case if -k chooses it. An exception is its failure, except `Skipped`. Returns whether it passed; None if it did not run."""
    if not wanted(name):
        return None
    try:
        test(*arguments)
    except Skipped as why:
        return skipped(name, why)
    except Exception as why:  # pylint: disable=broad-except # the next case runs in any event
        return check(name, False, f"{type(why).__name__}: {why}")
    print(f"ok {name}", flush=True)
    return check(name, True)


def cases(tests, *names):
    """Runs methods of an object as cases, each under its name."""
    for name in names:
        case(name.replace("_", " "), getattr(tests, name))


def failures():
    """The number of failed checks so far."""
    return _counts["failed"]


def finish(name):
    """Prints the counts and ends the script."""
    print(f"{name}: {', '.join(f'{count} {kind}' for kind, count in _counts.items())}, {time.monotonic() - _began:.0f} s", flush=True)
    sys.exit(1 if failures() else 0)


# ---- running and waiting ----------------------------------------------------------------------------------------


class Ended(subprocess.CompletedProcess):
    """The end of a command. Two are equal if their exit status and standard output are."""

    def __eq__(self, other):
        return (self.returncode, self.stdout) == (other.returncode, other.stdout)

    def __repr__(self):
        return f"status {self.returncode} out {self.stdout[-300:]!r} err {self.stderr[-300:]!r}"


def run(*words, timeout=TIMEOUT_S, must=False, may_hang=False, text=True, **options):
    """Runs the command in a session of its own, so that nothing it started outlives the timeout, which is a failure; with
    `may_hang` the return code is "timeout". `must`: another status than 0 is a failure. `text=False`: output is bytes."""
    timeout *= SLOWNESS
    given = options.pop("input", None)
    options.setdefault("stdin", subprocess.DEVNULL if given is None else subprocess.PIPE)
    if text:
        options.update(text=True, errors="replace")
    command = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options)
    try:
        out, err = child.communicate(given, timeout=timeout)
        ended = Ended(command, child.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        try:
            out, err = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:  # what has left the session has the pipes open
            out = err = "" if text else b""
        ended = Ended(command, "timeout", out, err)
        if not may_hang:
            raise Failed(f"{command} does not end within {timeout} s: {ended}") from None
    if must and ended.returncode != 0:
        raise Failed(f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended


def peaks(pid):
    """Most resident memory so far of each living process of a tree, MiB by pid."""
    found = {}
    with contextlib.suppress(OSError, KeyError):  # it has ended, or is about to
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as text:
            status = dict(line.split(":", 1) for line in text)
        found[pid] = int(status["VmHWM"].split()[0]) / 1024
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                for child in children.read().split():
                    found.update(peaks(int(child)))
    return found


def watched(*words, **options):
    """As `run`, with the most resident memory that any of its processes had, in MiB, and the seconds that it took."""
    most, ends = {}, threading.Event()
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)

    def watch():
        while not ends.wait(0.01):
            for pid, mib in peaks(child.pid).items():
                most[pid] = max(mib, most.get(pid, 0))

    thread = threading.Thread(target=watch)
    began = time.monotonic()
    thread.start()
    try:
        out, err = child.communicate(timeout=TIMEOUT_S * SLOWNESS)
        took = time.monotonic() - began
    finally:
        child.kill()
        ends.set()
        thread.join()
    return Ended(child.args, child.returncode, out, err), max(most.values(), default=0), took


def until(condition, limit_s=LIMIT_S, ignoring=()):
    """Polls the condition until it is true or the time is up; its last value. An exception of `ignoring` counts as false."""
    end = time.monotonic() + limit_s * SLOWNESS
    while True:
        value = None
        with contextlib.suppress(*ignoring):
            value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.02)


def free_port():
    """A port for a server that cannot take any: below those that the kernel gives to whoever takes any meanwhile."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as text:
        first = int(text.read().split()[0])
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(first // 2, first)))
            return probe.getsockname()[1]


def enter_namespace(name, *more):
    """Starts the script again in a private mount namespace (`more`: other options of unshare) and returns a temporary folder
    there, which is removed at its end. Where that cannot be, prints SKIPPED and ends the script."""
    if folder := os.environ.pop(INSIDE, ""):
        return folder
    unshare = ["unshare", "--mount", "--propagation", "private", *more]
    if os.geteuid() != 0 or run(*unshare, "true").returncode != 0:
        skipped(name, "it takes root and namespaces")
        finish(name)
    with tempfile.TemporaryDirectory(prefix=f"imas-{name}-", ignore_cleanup_errors=True) as folder:
        ended = subprocess.run([*unshare, sys.executable, *sys.argv], env={**os.environ, INSIDE: folder}, check=False)
    sys.exit(ended.returncode)
