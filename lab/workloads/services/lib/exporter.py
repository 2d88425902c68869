#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Targets of a monitoring server: exporter.py PORT. Any path is a target of 600 series; a tenth of them is replaced each minute."""
import http.server
import sys
import time


class Target(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802  the name is given
        now, minute = time.monotonic(), int(time.monotonic() // 60)
        lines = [f'job_seconds_total{{unit="u{i}",build="{minute * (i % 10 == 0)}"}} {now * (i + 1):.3f}\n' for i in range(600)]
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Target).serve_forever()
