# SPDX-License-Identifier: Apache-2.0
"""Visitors of VictoriaMetrics: victoria_metrics.py MIX. `fill` sends a day of samples of many hosts; the others go on and ask."""
import math
import time
import urllib.parse

from visits import Site, main

HOSTS, BEGAN, STEP = 60, 1790000000, 60
CPUS = [f'cpu="{cpu}",mode="{mode}"' for cpu in range(4) for mode in ("idle", "user", "system", "iowait")]
SERIES = ([f"node_cpu_seconds_total{{{{host=\"{{host}}\",{one}}}}}" for one in CPUS]
          + [f"node_memory_{name}_bytes{{{{host=\"{{host}}\"}}}}" for name in ("MemTotal", "MemFree", "Cached", "Buffers", "SwapFree", "Slab", "Dirty", "Mapped")]
          + [f"node_filesystem_avail_bytes{{{{host=\"{{host}}\",mountpoint=\"/{name}\"}}}}" for name in ("", "var", "home", "srv")]
          + [f"http_requests_total{{{{host=\"{{host}}\",path=\"/{path}\",code=\"{code}\"}}}}" for path in ("", "login", "list", "search") for code in (200, 404, 500)])


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.site = rng, Site(args.port)

    def host(self):
        return f"h{self.rng.randrange(HOSTS)}"

    def send(self, host, times, own=""):
        """A host's samples as an exporter writes them."""
        lines = []
        for place, name in enumerate(SERIES):
            named = name.format(host=host + own)
            lines += [f"{named} {1000 * place + (at - BEGAN) * (1 + place % 7) + 50 * math.sin(at / 900 + place):.3f} {at * 1000}" for at in times]
        self.site.ask("POST", "/api/v1/import/prometheus", "\n".join(lines).encode(), {"Content-Type": "text/plain"})

    def scrape(self):
        now = int(time.time())
        self.send(self.host(), range(now - 600, now, 15))

    def new_pod(self):
        """Names that were not there before, as each deployment brings them."""
        now = int(time.time())
        self.send(self.host(), [now], f"-pod{self.rng.getrandbits(40):x}")

    def ask(self, query, hours=6, step=60):
        asked = {"query": query, "start": BEGAN + 86400 - hours * 3600, "end": BEGAN + 86400, "step": step}
        self.site.get("/api/v1/query_range?" + urllib.parse.urlencode(asked))

    def cpu(self):
        self.ask(f'100 - avg by (host) (rate(node_cpu_seconds_total{{mode="idle",host="{self.host()}"}}[5m])) * 100')

    def memory(self):
        self.ask(f'node_memory_MemFree_bytes{{host=~"{self.host()}.*"}} / on (host) node_memory_MemTotal_bytes', 12)

    def top(self):
        self.ask("topk(5, sum by (host) (rate(http_requests_total[10m])))", 3)

    def errors(self):
        self.ask('sum by (path) (increase(http_requests_total{code="500"}[30m])) / sum by (path) (increase(http_requests_total[30m]))', 24, 300)

    def quantile(self):
        self.ask("quantile_over_time(0.9, node_filesystem_avail_bytes[1h])", 6, 600)

    def lists(self):
        self.site.get("/api/v1/label/host/values")
        self.site.get("/api/v1/series?" + urllib.parse.urlencode({"match[]": f'{{host="{self.host()}"}}', "start": BEGAN}))

    def export(self):
        self.site.get("/api/v1/export?" + urllib.parse.urlencode({"match[]": f'{{host="{self.host()}"}}', "start": BEGAN, "end": BEGAN + 86400}))

    def federate(self):
        self.site.get("/federate?" + urllib.parse.urlencode({"match[]": '{__name__=~"http_.*"}'}))

    def all(self):
        for number in range(HOSTS):
            self.send(f"h{number}", range(BEGAN, BEGAN + 86400, STEP))
        self.site.get("/internal/force_flush")


MIXES = {
    "fill": {"all": 1},
    "scrape": {"scrape": 5, "new_pod": 3},
    "dashboard": {"cpu": 6, "memory": 4, "top": 2, "errors": 1, "quantile": 1},
    "export": {"lists": 3, "export": 4, "federate": 1},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
