# SPDX-License-Identifier: Apache-2.0
"""Visitors of Node-RED: node_red.py MIX. `make` writes flows as people draw them; the others call their endpoints and the editor.

Each flow has endpoints for orders, a list, a table and a document. Their nodes are Node-RED's own: http, json, csv, xml, html,
switch, change, split, join, function, template.
"""
import json
import pathlib

from visits import Site, Words, main

FLOWS = 16
WORDS = Words()


def flow(number):
    """The nodes of one tab; `chain` draws wires from each to the next."""
    tab, nodes = f"tab{number}", [{"id": f"tab{number}", "type": "tab", "label": f"Flow {number}"}]

    def chain(name, *made):
        for place, node in enumerate(made):
            last = place == len(made) - 1
            follows = [[]] if last else [[f"{tab}-{name}{place + 1}"]]
            if node["type"] == "switch":
                follows *= len(node["rules"])
            nodes.append({"id": f"{tab}-{name}{place}", "z": tab, "x": 100 + 140 * place, "y": 40 + 60 * len(name), "wires": [] if last and node["type"] == "http response" else follows, **node})

    def entry(method, path):
        return {"type": "http in", "url": f"/{path}{number}", "method": method, "upload": False}

    answer = {"type": "http response", "statusCode": "", "headers": {}}
    chain("order", entry("post", "orders"),
          {"type": "change", "rules": [{"t": "set", "p": "order", "pt": "msg", "to": "payload", "tot": "msg"}]},
          {"type": "switch", "property": "order.lines", "propertyType": "msg", "rules": [{"t": "nempty"}, {"t": "else"}], "checkall": "false", "repair": False},
          {"type": "function", "outputs": 1, "func": "const kept = flow.get('orders') || []; msg.order.sum = msg.order.lines.reduce((s, l) => s + l.price * l.count, 0);"
           "kept.push(msg.order); if (kept.length > 400) kept.shift(); flow.set('orders', kept); msg.payload = {sum: msg.order.sum, kept: kept.length}; return msg;"},
          answer)
    chain("list", entry("get", "list"),
          {"type": "function", "outputs": 1, "func": "msg.payload = (flow.get('orders') || []).slice(-60).map((o, i) => ({number: i, sum: o.sum, first: (o.lines[0] || {}).item})); return msg;"},
          {"type": "template", "field": "payload", "fieldType": "msg", "format": "handlebars", "syntax": "mustache",
           "template": "<html><table>{{#payload}}<tr><td>{{number}}</td><td>{{sum}}</td><td>{{first}}</td></tr>{{/payload}}</table></html>"},
          answer)
    chain("table", entry("post", "table"),
          {"type": "csv", "sep": ",", "hdrin": True, "multi": "mult", "ret": "\\n", "skip": "0", "strings": True},
          {"type": "split", "splt": "\\n", "arraySplt": 1, "arraySpltType": "len"},
          {"type": "change", "rules": [{"t": "set", "p": "payload.total", "pt": "msg", "to": "payload.price * payload.count", "tot": "jsonata"}]},
          {"type": "join", "mode": "auto", "build": "array", "property": "payload"},
          {"type": "json", "property": "payload", "action": "str", "pretty": True},
          answer)
    chain("document", entry("post", "document"),
          {"type": "xml", "property": "payload", "attr": "", "chr": ""},
          {"type": "function", "outputs": 1, "func": "msg.payload = {catalogue: {part: msg.payload.catalogue.part.filter((p, i) => i % 2)}}; return msg;"},
          {"type": "xml", "property": "payload", "attr": "", "chr": ""},
          answer)
    return nodes


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.folder = rng, pathlib.Path(args.folder)
        if args.mix != "make":
            self.site = Site(args.port)

    def some(self):
        return self.rng.randrange(FLOWS)

    def order(self):
        lines = [{"item": WORDS.title(self.rng), "price": self.rng.randrange(900) / 4, "count": self.rng.randrange(1, 9)} for _ in range(self.rng.randrange(1, 40))]
        self.site.json("POST", f"/orders{self.some()}", {"customer": WORDS.title(self.rng), "lines": lines})

    def list(self):
        self.site.get(f"/list{self.some()}")

    def table(self):
        rows = [f"{WORDS.title(self.rng)},{self.rng.randrange(900) / 4},{self.rng.randrange(1, 9)}" for _ in range(self.rng.randrange(20, 600))]
        self.site.ask("POST", f"/table{self.some()}", ("item,price,count\n" + "\n".join(rows)).encode(), {"Content-Type": "text/csv"})

    def document(self):
        parts = "".join(f"<part number='{number}'><name>{WORDS.title(self.rng)}</name><text>{WORDS.text(self.rng, 30)}</text></part>" for number in range(self.rng.randrange(20, 300)))
        self.site.ask("POST", f"/document{self.some()}", f"<catalogue>{parts}</catalogue>".encode(), {"Content-Type": "text/plain"})

    def page(self):
        self.site.get("/admin/")
        self.site.ask("GET", "/admin/nodes", headers={"Accept": "text/html"})
        self.site.get("/admin/locales/nodes?lng=en")

    def deploy(self):
        flows = self.site.json("GET", "/admin/flows", headers={"Node-RED-API-Version": "v2"})
        moved = self.rng.choice([node for node in flows["flows"] if "x" in node])
        moved["x"] += 20
        self.site.json("POST", "/admin/flows", {"flows": flows["flows"]}, headers={"Node-RED-API-Version": "v2", "Node-RED-Deployment-Type": "nodes"})

    def files(self):
        (self.folder / "flows.json").write_text(json.dumps([node for number in range(FLOWS) for node in flow(number)]))


MIXES = {
    "make": {"files": 1},
    "orders": {"order": 5, "list": 2},
    "tables": {"table": 3, "document": 2},
    "editor": {"page": 3, "deploy": 2},
}

if __name__ == "__main__":
    main(Visitor, MIXES, {"folder": "."})
