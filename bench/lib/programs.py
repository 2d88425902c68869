# SPDX-License-Identifier: Apache-2.0
"""The real programs of the comparison of trial mode with production, with input of about a fifth of a second
each."""

import shutil
import socket
import subprocess
import time
from typing import Callable, NamedTuple, Optional

from place import BENCH, OUT

INPUTS = BENCH / "inputs"


class Program(NamedTuple):
    """short: the command with less work, for counting instructions, which takes fifty times as long."""

    name: str
    command: list
    short: list
    drive: Optional[Callable[[], None]] = None
    drive_short: Optional[Callable[[], None]] = None


def _python():
    work = str(INPUTS / "work.py")
    return Program("python3", ["/usr/bin/python3", work, "16"], ["/usr/bin/python3", work, "3"])


def _sqlite():
    # -init reads the work; then one command ends the shell
    command = ["/usr/bin/sqlite3", "-batch", "-init", str(INPUTS / "work.sql"), ":memory:", ".quit"]
    return Program("sqlite3", command, command)


def _gcc():
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
    source = OUT / "work.i"
    subprocess.run(["gcc", "-E", "-P", "-o", source, INPUTS / "work.c"], check=True)
    command = [compiler, "-quiet", "-O1", str(source), "-o", "/dev/null"]
    return Program("gcc (cc1)", command, command)


def free_port():
    """A port of this machine that nobody listens on, as text."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class _Redis:
    """Waits for the server, sends a fixed number of requests, ends it."""

    TESTS = "set,get,lpush,rpop,sadd,hset,zadd"

    def __init__(self):
        self.port = free_port()
        self.command = ["/usr/bin/redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                        "--daemonize", "no", "--loglevel", "warning"]

    def _client(self, *words):
        return subprocess.run(["redis-cli", "-p", self.port, *words], capture_output=True, check=False).stdout

    def _wait(self):
        for _ in range(3000):
            if self._client("ping") == b"PONG\n":
                return
            time.sleep(0.02)
        raise RuntimeError("redis-server does not answer")

    def load(self, requests, clients, pipelined, keys=10000):
        """Waits until the server answers, gives it the requests, and ends it."""
        self._wait()
        words = ["-p", self.port, "-q", "-n", str(requests), "-c", str(clients), "-P", str(pipelined)]
        words += ["-d", "100", "-r", str(keys)]
        subprocess.run(["redis-benchmark", *words, "-t", self.TESTS], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True)
        self._client("shutdown", "nosave")


def _redis(name, requests, pipelined):
    redis = _Redis()
    # One client, so that the order of events, and with it the number of instructions, is always the same.
    return Program(name, redis.command, [*redis.command, "--hz", "1"], lambda: redis.load(requests, 20, pipelined),
                   lambda: redis.load(requests // 2, 1, pipelined))


def redis_with_keys(keys):
    """A server that ends with about two thirds of that number of keys."""
    redis = _Redis()
    redis.TESTS = "set"
    return Program("redis-server", redis.command, [], lambda: redis.load(keys, 20, 16, keys))


PROGRAMS = {
    "/usr/bin/python3": [_python],
    "/usr/bin/sqlite3": [_sqlite],
    "/usr/bin/gcc": [_gcc],
    "/usr/bin/redis-server": [
        lambda: _redis("redis-server", 4000, 1),
        # eight requests a packet: fewer system calls, so that malloc is a larger part of the whole
        lambda: _redis("redis-server, pipelined", 16000, 8),
    ],
}


def available():
    """The programs that are installed, and the paths of those that are not."""
    there = [make() for path, makes in PROGRAMS.items() if shutil.which(path) for make in makes]
    return there, [path for path in PROGRAMS if not shutil.which(path)]
