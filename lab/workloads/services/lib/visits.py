# SPDX-License-Identifier: Apache-2.0
"""Visitors of a web application. A script beside this one has what they do there: `main(Visitor, mixes)`.

Each of -c clients makes a Visitor, which logs in, and draws its share of -n visits from a mix: a method's name with its
weight. Draws follow a seed, so every candidate gets the same work. Throughput, latency and errors go to $IMAS_METRICS.
"""
import argparse
import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.parse
import uuid


class Refused(RuntimeError):
    """An answer that no visitor should get."""


class Site:
    """A connection to the application with its cookies; `base` is the path before each path."""

    def __init__(self, port, base="", headers=None, timeout=120):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        self.base, self.headers, self.cookies = base, dict(headers or {}), {}
        self.status, self.location = 0, ""

    def ask(self, method, path, body=None, headers=None, most=399):
        """The answer's status and bytes. A status above `most` is an error."""
        sent = {**self.headers, **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        self.http.request(method, self.base + path, body, sent)
        answer = self.http.getresponse()
        found = answer.read()
        for line in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = line.split(";")[0].partition("=")
            self.cookies[name.strip()] = value
        self.status, self.location = answer.status, answer.headers.get("Location", "")
        if answer.status > most:
            raise Refused(f"{method} {path}: {answer.status} {found[:200]!r}")
        return answer.status, found

    def get(self, path, **words):
        return self.ask("GET", path, **words)[1]

    def json(self, method, path, value=None, headers=None, **words):
        """Sends and gets JSON."""
        body = None if value is None else json.dumps(value).encode()
        found = self.ask(method, path, body, {"Content-Type": "application/json", **(headers or {})}, **words)[1]
        return json.loads(found) if found else None

    def form(self, path, fields, headers=None, **words):
        body = urllib.parse.urlencode(fields).encode()
        return self.ask("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}, **words)[1]

    def upload(self, path, fields, files, **words):
        """A form with files: (field, file's name, type, bytes)."""
        mark = uuid.uuid4().hex
        parts = [f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
        for field, name, kind, content in files:
            head = f'--{mark}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'
            parts += [head.encode(), content, b"\r\n"]
        body = b"".join(parts) + f"--{mark}--\r\n".encode()
        return self.ask("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={mark}"}, **words)[1]


class Words:
    """Text as people write it: few words are frequent and many are rare, so that a search finds some pages and not all."""

    def __init__(self, file="/usr/share/dict/american-english", most=6000):
        with open(file) as lines:
            known = [line.strip() for line in lines if line.strip().isalpha() and line.islower() and line.isascii()]
        random.Random(1).shuffle(known)
        self.known = known[:most]
        self.weights, total = [], 0.0
        for place in range(1, len(self.known) + 1):
            total += 1 / place
            self.weights.append(total)

    def some(self, rng, count):
        return rng.choices(self.known, cum_weights=self.weights, k=count)

    def title(self, rng):
        return " ".join(self.some(rng, rng.randrange(3, 8))).capitalize()

    def text(self, rng, count):
        """Paragraphs of sentences, of about this number of words."""
        out, left = [], count
        while left > 0:
            sentences = []
            for _ in range(rng.randrange(2, 6)):
                length = rng.randrange(5, 20)
                left -= length
                sentences.append(" ".join(self.some(rng, length)).capitalize() + ".")
            out.append(" ".join(sentences))
        return "\n\n".join(out)


def share(args, number, make, mix, spans, errors):
    """The visits of one client."""
    rng = random.Random(f"{args.seed} {number}")
    names, weights = list(mix), list(mix.values())
    try:
        one = make(args, rng, number)
    except Exception as error:  # noqa: BLE001  whatever it is, the load has failed
        errors.append(f"{type(error).__name__}: {error}")
        return
    for _ in range(args.n // args.c):
        name = rng.choices(names, weights)[0]
        began = time.perf_counter()
        try:
            getattr(one, name)()
        except Exception as error:  # noqa: BLE001
            errors.append(f"{name}: {type(error).__name__}: {error}")
            if len(errors) > args.n // 10:
                return
            try:
                one = make(args, rng, number)
            except Exception:  # noqa: BLE001
                return
            continue
        spans.append(time.perf_counter() - began)


def main(make, mixes, options=None):
    """`make(args, rng, number)` is a visitor that has logged in."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mix", choices=sorted(mixes))
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", 0)))
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("-c", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    for name, default in (options or {}).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    args = parser.parse_args()
    spans, errors = [], []
    threads = [threading.Thread(target=share, args=(args, number, make, mixes[args.mix], spans, errors)) for number in range(args.c)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    wanted = args.n // args.c * args.c
    if len(spans) < wanted * 0.9:
        sys.exit(f"{len(spans)} of {wanted} visits were made, {len(errors)} failed; {errors[0] if errors else 'no error'}")
    spans.sort()
    with open(os.environ.get("IMAS_METRICS", "/dev/stdout"), "a") as file:
        file.write(f"rate {len(spans) / took} 1/s higher\nerrors {len(errors)} - lower\n")
        for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
            file.write(f"{name} {spans[min(len(spans) - 1, int(part * len(spans)))] * 1000} ms lower\n")
    for error in errors[:3]:
        print(error, file=sys.stderr)
