#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lab/tests/load.py [-k PART]: what the load generators of the laboratory's services send, and how they count."""

import http.server
import os
import pathlib
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/testing"))

from imas_testing import Arguments, case, check, finish, run  # noqa: E402

STALL_S = 0.5


class Server(http.server.ThreadingHTTPServer):
    """Counts its requests. With `stalls` the first of them is answered late; each has this status."""

    daemon_threads = True

    def __init__(self, stalls=False, status=200):
        super().__init__(("127.0.0.1", 0), Handler)
        self.stalls, self.status, self.count, self.paths, self.lock = stalls, status, 0, [], threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with nothing, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with self.server.lock:
            self.server.count += 1
            self.server.paths.append(self.path)
            is_late = self.server.stalls and self.server.count == 1
        if is_late:
            time.sleep(STALL_S)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def load(server, metrics, *words, must=True):
    command = [sys.executable, ROOT / "lab/workloads/services/lib/load.py", "http", "--port", str(server.server_port), *words]
    return run(*command, must=must, env={**os.environ, "IMAS_METRICS": str(metrics)})


def loaded(*words, stalls=False):
    """Requests that came, and the figures of the load by name."""
    server = Server(stalls)
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder, "metrics")
        load(server, metrics, *words)
        figures = {words[0]: float(words[1]) for words in map(str.split, metrics.read_text().splitlines())}
    server.shutdown()
    server.server_close()
    return server.count, figures


def number():
    count, figures = loaded("-n", "40", "-c", "4")
    check("as many as asked for", (count, figures["errors"]) == (40, 0), (count, figures))


def rate():
    count, figures = loaded("-n", "40", "-c", "4", "--rate", "400", "--seconds", "0.5")
    check("at a rate it goes on for the seconds", count == 200, count)
    check("no faster than the rate", figures["rate"] <= 400 * 200 / 199, figures)
    count, _ = loaded("-n", "40", "-c", "4", "--rate", "400", "--seconds", "0.05")
    check("and sends no fewer than without", count == 40, count)


def omission():
    _, figures = loaded("-n", "20", "-c", "1", "--rate", "100", stalls=True)
    # All 20 are due within 0.2 s, and the only client waits for half a second.
    check("a request that had to wait counts from when it was due", figures["p50"] >= 1000 * (STALL_S - 0.2), figures)


def refusal():
    server = Server(status=500)
    ended = load(server, "/dev/null", "-n", "40", "-c", "4", must=False)
    server.shutdown()
    server.server_close()
    check("a load that is refused has failed", ended.returncode == 1 and "40 failed; refused" in ended.stderr, ended)


VISITOR = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
from visits import Site, main


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.site = rng, Site(args.port)

    def look(self):
        self.site.get(f"/look/{self.rng.randrange(1000)}")

    def ask(self):
        self.site.form("/ask", {"a": 1})


main(Visitor, {"looks": {"look": 1}, "asks": {"look": 1, "ask": 1}})
"""


def visit(server, metrics, mix):
    """Visits of an application whose server knows no forms."""
    command = [sys.executable, "-c", VISITOR, ROOT / "lab/workloads/services/lib", mix, "--port", str(server.server_port), "-n", "40", "-c", "4"]
    return run(*command, must=False, env={**os.environ, "IMAS_METRICS": str(metrics)})


def visits():
    server = Server()
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder, "metrics")
        first = visit(server, metrics, "looks")
        seen, server.paths = sorted(server.paths), []
        again = visit(server, metrics, "looks")
        figures = {words[0]: float(words[1]) for words in map(str.split, metrics.read_text().splitlines())}
        refused = visit(server, metrics, "asks")
    server.shutdown()
    server.server_close()
    check("visits: as many as asked for", (first.returncode, len(seen), figures["errors"]) == (0, 40, 0), (first, figures))
    check("visits: the same ones in each run", again.returncode == 0 and sorted(server.paths[:40]) == seen, server.paths)
    check("visits: where many are refused the load has failed", refused.returncode == 1 and "ask: Refused: POST /ask: 501" in refused.stderr, refused)


def main():
    Arguments(__doc__).parse_args()
    for test in (number, rate, omission, refusal, visits):
        case(test.__name__, test)
    finish("load")


main()
