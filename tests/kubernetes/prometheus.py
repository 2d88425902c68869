# SPDX-License-Identifier: Apache-2.0
"""A Prometheus on loopback, which scrapes figures that the test makes up."""

import http.server
import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request

from cluster import free_port
from imas_testing import Failed, Skipped, until


class Prometheus:
    """Started by `with`. `text()`: what is scraped, each second."""

    def __init__(self, work, text):
        if not shutil.which("prometheus"):
            raise Skipped("prometheus is not installed (apt install prometheus)")

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text().encode())

            def log_message(self, *_):
                pass

        self.work = work
        self.exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.exporter.serve_forever)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.child = None

    def __enter__(self):
        self.thread.start()
        config = self.work / "prometheus.yml"
        target = f"127.0.0.1:{self.exporter.server_port}"
        config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: pods, static_configs: [{{targets: ['{target}']}}]}}]\n")
        log = open(self.work / "prometheus.log", "wb")
        words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.work / 'prometheus'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        self.child = subprocess.Popen(words, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(30)
        self.exporter.shutdown()
        self.exporter.server_close()
        self.thread.join()

    def series(self, query):
        with urllib.request.urlopen(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": query}), timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def has(self, query, count):
        """Waits until the query has so many series."""
        if not until(lambda: len(self.series(query)) == count, 90, ignoring=(OSError,)):
            raise Failed(f"{query}: {self.series(query)}: {(self.work / 'prometheus.log').read_text()[-2000:]}")
