# SPDX-License-Identifier: Apache-2.0
"""A web application of Flask: JSON of a size that the path names, a cache that ages, templates."""
import collections
import json
import threading

from flask import Flask, Response, render_template_string

app = Flask(__name__)
CACHE = collections.OrderedDict()
LOCK = threading.Lock()
PAGE = "<html><ul>{% for row in rows %}<li>{{ row.name }}: {{ row.tags|join(', ') }}</li>{% endfor %}</ul></html>"


def rows(count):
    return [{"id": i, "name": f"item {i}" * 3, "tags": [f"{tag}{i}" for tag in "abc"], "price": i * 1.5} for i in range(count)]


@app.route("/json/<key>/<int:count>")
def make(key, count):
    text = json.dumps(rows(count))
    with LOCK:
        CACHE[key] = text
        if len(CACHE) > 400:
            CACHE.popitem(last=False)
    return Response(text, mimetype="application/json")


@app.route("/parse/<key>/<int:count>")
def parse(key, count):
    with LOCK:
        text = CACHE.get(key) or json.dumps(rows(10))
    return str(sum(row["price"] for row in json.loads(text)))


@app.route("/page/<key>/<int:count>")
def page(key, count):
    return render_template_string(PAGE, rows=rows(count))


@app.route("/")
def root():
    return "ok"
