#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fixed work on servers for which Debian has no load generator: load.py KIND [--port P] [-n N] [-c CLIENTS] [options].

N operations by as many threads as there are clients; throughput, latency and errors go to $IMAS_METRICS. The numbers and
sizes are drawn with a seed, so that every candidate gets the same.
"""
import argparse
import base64
import gzip
import json
import os
import random
import socket
import ssl  # noqa: F401  imported before the threads start
import struct
import sys
import threading
import time


def connect(args):
    sock = socket.create_connection((args.host, args.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Http:
    """GET or POST of a path; %d in it is a number drawn up to --range, %s a size up to --size. --expect is in the answer."""

    def __init__(self, args, rng):
        import http.client
        self.args, self.rng = args, rng
        self.http = http.client.HTTPConnection(args.host, args.port, timeout=120)

    def once(self):
        number = str(self.rng.randrange(self.args.range))
        path = self.args.path.replace("%d", number)
        path = path.replace("%s", str(self.rng.randrange(1, self.args.size + 1)))
        body, headers = None, {"Accept-Encoding": self.args.accept}
        if self.args.body == "mail":
            body = mail(self.rng, self.args.size)
        elif self.args.body == "order":
            body, headers["Content-Type"] = order(self.rng, self.args.size), "application/json"
        elif self.args.body:
            body = b"x" * self.rng.randrange(1, self.args.size + 1)
        self.http.request("POST" if body else "GET", path, body, headers)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.headers["Content-Encoding"] == "gzip":
            text = gzip.decompress(text)
        return answer.status < 400 and self.args.expect.replace("%d", number).encode() in text


def words(rng, count):
    return " ".join("".join(rng.choices("etaoinshrdlucmfw", k=rng.randrange(2, 10))) for _ in range(count))


def mail(rng, size):
    """A mail with a text of about this size, a link, and an attachment for every other."""
    text = words(rng, max(4, rng.randrange(size // 12 + 1, size // 6 + 2)))
    head = (f"From: a{rng.randrange(1000)}@example.org\r\nTo: b{rng.randrange(1000)}@example.net\r\nSubject: {words(rng, 5)}\r\n"
            f"Date: Mon, 02 Jan 2023 10:00:00 +0000\r\nMessage-ID: <{rng.getrandbits(64)}@example.org>\r\nMIME-Version: 1.0\r\n")
    if rng.random() < 0.5:
        return (head + f"Content-Type: text/plain\r\n\r\n{text}\r\nhttp://example.com/{rng.randrange(999)}\r\n").encode()
    part = base64.encodebytes(rng.randbytes(max(1, size))).decode()
    return (head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n"
            f"<html><body><p>{text}</p><a href='http://example.com/'>x</a></body></html>\r\n--b\r\n"
            "Content-Type: application/octet-stream; name=x.bin\r\nContent-Transfer-Encoding: base64\r\n"
            f"Content-Disposition: attachment; filename=x.bin\r\n\r\n{part}\r\n--b--\r\n").encode()


def order(rng, size):
    """JSON of up to this number of lines."""
    lines = [{"item": words(rng, 4), "price": rng.randrange(1, 900) / 4, "count": rng.randrange(1, 9)} for _ in range(rng.randrange(1, size + 1))]
    return json.dumps({"lines": lines}).encode()


class Memcache:
    """Sets and gets of random sizes."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)
        self.file = self.sock.makefile("rb")

    def once(self):
        key = f"k{self.rng.randrange(self.args.range)}".encode()
        if self.rng.random() < 0.5:
            value = b"v" * self.rng.randrange(1, self.args.size)
            self.sock.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            return self.file.readline().startswith(b"STORED")
        self.sock.sendall(b"get " + key + b"\r\n")
        line = self.file.readline()
        if line.startswith(b"VALUE"):
            self.file.read(int(line.split()[3]) + 2)
            line = self.file.readline()
        return line.startswith(b"END")


class Resp:
    """Redis commands: values whose size changes from phase to phase, appended to, replaced and deleted."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)
        self.file = self.sock.makefile("rb")

    def command(self, *parts):
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
        return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)

    def once(self):
        key, draw = f"k{self.rng.randrange(self.args.range)}", self.rng.random()
        value = b"v" * self.rng.randrange(1, self.args.size)
        if draw < 0.4:
            line = self.command("SET", key, value)
        elif draw < 0.5:
            line = self.command("DEL", key)
        elif draw < 0.6:
            line = self.command("HSET", "h" + key, f"f{self.rng.randrange(40)}", value[:200])
        elif draw < 0.7:
            line = self.command("LPUSH", "l" + key, value[:300])
        elif draw < 0.75:
            line = self.command("LTRIM", "l" + key, 0, 20)
        else:
            line = self.command("GET", key)
        self.sock.sendall(line)
        answer = self.file.readline()
        if answer.startswith(b"$") and not answer.startswith(b"$-1"):
            self.file.read(int(answer[1:]) + 2)
        return answer[:1] not in (b"", b"-")  # nothing: the connection is closed


class Ldap:
    """Searches and, every tenth, a new entry that is deleted again."""

    def __init__(self, args, rng):
        import ldap
        self.ldap, self.args, self.rng = ldap, args, rng
        self.conn = ldap.initialize(f"ldap://{args.host}:{args.port}")
        self.conn.simple_bind_s("cn=admin,dc=test", "secret")
        self.mine = []

    def once(self):
        draw = self.rng.random()
        if draw < 0.1:
            # Each cycle has the same random numbers, and some entries of the one before are still there.
            name = f"cn=t{os.getpid()}-{self.rng.getrandbits(48)},dc=test"
            text = words(self.rng, self.rng.randrange(1, self.args.size // 8 + 2)).encode()
            self.conn.add_s(name, [("objectClass", [b"person"]), ("sn", [b"x"]), ("description", [text])])
            self.mine.append(name)
            if len(self.mine) > 20:
                self.conn.delete_s(self.mine.pop(0))
            return True
        low = self.rng.randrange(self.args.range)
        rule = f"(cn=u{low})" if draw < 0.8 else f"(cn=u{str(low)[:2]}*)"
        return bool(self.conn.search_s("dc=test", self.ldap.SCOPE_SUBTREE, rule)) or draw >= 0.8


class Imap:
    """Append, search, fetch and delete in one mailbox for each client."""

    def __init__(self, args, rng):
        import imaplib
        self.args, self.rng = args, rng
        self.conn = imaplib.IMAP4(args.host, args.port)
        self.conn.login(f"user{rng.randrange(10**6)}", "secret")
        self.count = int(self.conn.select("INBOX")[1][0])

    def once(self):
        draw = self.rng.random()
        if draw < 0.4 or self.count < 5:
            self.count += 1
            return self.conn.append("INBOX", None, None, mail(self.rng, self.args.size))[0] == "OK"
        if draw < 0.6:
            return self.conn.search(None, "SUBJECT", '"et"')[0] == "OK"
        if draw < 0.9:
            self.conn.noop()
            return self.conn.fetch("1:5", "(BODY[] ENVELOPE)")[0] == "OK"
        self.conn.store("1:3", "+FLAGS", "(\\Deleted)")
        self.count -= 3
        return self.conn.expunge()[0] == "OK"


class Clam:
    """INSTREAM scans of generated files."""

    def __init__(self, args, rng):
        self.args, self.rng = args, rng

    def once(self):
        data = mail(self.rng, self.args.size)
        sock = connect(self.args)
        sock.sendall(b"zINSTREAM\0" + struct.pack("!I", len(data)) + data + struct.pack("!I", 0))
        answer = sock.recv(4096)
        sock.close()
        return b"OK" in answer or b"FOUND" in answer


class Syslog:
    """Lines over TCP; one operation is a batch of --batch lines."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)

    def once(self):
        lines = []
        for _ in range(self.args.batch):
            text = words(self.rng, self.rng.randrange(1, self.args.size // 6 + 2))
            lines.append(f"<{self.rng.randrange(8, 190)}>Jan  2 10:00:00 host{self.rng.randrange(50)} app{self.rng.randrange(20)}[{self.rng.randrange(9999)}]: {text}\n")
        self.sock.sendall("".join(lines).encode())
        return True


class Mqtt:
    """Publishes with QoS 1 to topics on which this client is subscribed as well, retained ones among them."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock, self.packet = args, rng, connect(args), 0
        self.file = self.sock.makefile("rb")
        name = f"c{rng.getrandbits(40)}".encode()
        self.send(0x10, b"\0\4MQTT\4\2\0\0" + struct.pack("!H", len(name)) + name)
        self.read()
        topic = f"t/{rng.randrange(50)}/#".encode()
        self.send(0x82, b"\0\1" + struct.pack("!H", len(topic)) + topic + b"\0")
        self.read()

    def send(self, kind, body):
        length, head = len(body), b""
        while True:
            length, digit = divmod(length, 128)
            head += bytes([digit | (128 if length else 0)])
            if not length:
                break
        self.sock.sendall(bytes([kind]) + head + body)

    def read(self):
        kind, shift, length = self.file.read(1)[0], 0, 0
        while True:
            digit = self.file.read(1)[0]
            length |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                break
        return kind, self.file.read(length)

    def once(self):
        self.packet = self.packet % 60000 + 1
        topic = f"t/{self.rng.randrange(50)}/{self.rng.randrange(self.args.range)}".encode()
        body = struct.pack("!H", len(topic)) + topic + struct.pack("!H", self.packet) + b"m" * self.rng.randrange(1, self.args.size)
        self.send(0x33 if self.rng.random() < 0.3 else 0x32, body)
        while True:
            kind, _ = self.read()
            if kind >> 4 == 4:
                return True


class Beanstalk:
    """Puts, reserves and deletes."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)
        self.file = self.sock.makefile("rb")

    def once(self):
        body = b"j" * self.rng.randrange(1, self.args.size)
        self.sock.sendall(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
        if not self.file.readline().startswith(b"INSERTED"):
            return False
        if self.rng.random() < 0.9:
            self.sock.sendall(b"reserve-with-timeout 0\r\n")
            line = self.file.readline().split()
            if line[0] == b"RESERVED":
                self.file.read(int(line[2]) + 2)
                self.sock.sendall(b"delete " + line[1] + b"\r\n")
                return self.file.readline().startswith(b"DELETED")
        return True


class Nats:
    """Publishes to a stream in memory, each acknowledged, and reads of a subject's last message."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)
        self.file = self.sock.makefile("rb")
        self.file.readline()
        self.inbox = b"_INBOX.%x" % rng.getrandbits(60)
        self.sock.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %s 1\r\n' % self.inbox)
        stream = {"name": "S", "subjects": ["s.*"], "storage": "memory", "max_msgs": 40000, "max_bytes": 64 << 20,
                  "max_msgs_per_subject": 400, "retention": "limits", "discard": "old", "allow_direct": True, "num_replicas": 1}
        answer = json.loads(self.ask(b"$JS.API.STREAM.CREATE.S", json.dumps(stream).encode()))
        if "error" in answer:
            raise RuntimeError(answer["error"]["description"])

    def ask(self, subject, body):
        self.sock.sendall(b"PUB %s %s %d\r\n%s\r\n" % (subject, self.inbox, len(body), body))
        while True:
            words = self.file.readline().split()
            if words[0] == b"PING":
                self.sock.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                return self.file.read(int(words[-1]) + 2)
            else:
                raise RuntimeError(b" ".join(words).decode())

    def once(self):
        subject = b"s.k%d" % self.rng.randrange(self.args.range)
        if self.rng.random() < 0.7:
            body = subject + b" " + b"m" * self.rng.randrange(1, self.args.size)
            return b'"seq"' in self.ask(subject, body)
        answer = self.ask(b"$JS.API.DIRECT.GET.S." + subject, b"")
        return subject + b" m" in answer or b"404" in answer


class Etcd:
    """Puts, ranges, deletes and transactions by the JSON gateway."""

    def __init__(self, args, rng):
        import http.client
        self.args, self.rng = args, rng
        self.http = http.client.HTTPConnection(args.host, args.port, timeout=120)

    def ask(self, call, body):
        self.http.request("POST", f"/v3/kv/{call}", json.dumps(body))
        answer = self.http.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else {}

    def once(self):
        key, draw = b"k%d" % self.rng.randrange(self.args.range), self.rng.random()
        name = base64.b64encode(key).decode()
        value = base64.b64encode(key + b" " + b"v" * self.rng.randrange(1, self.args.size)).decode()
        if draw < 0.4:
            return "header" in self.ask("put", {"key": name, "value": value})
        if draw < 0.5:
            return "header" in self.ask("deleterange", {"key": name})
        if draw < 0.6:
            put = {"requestPut": {"key": name, "value": value}}
            compare = {"key": name, "target": "VERSION", "result": "GREATER", "version": "0"}
            return "header" in self.ask("txn", {"compare": [compare], "success": [put], "failure": [put]})
        end = base64.b64encode(key + b"\xff").decode() if draw < 0.7 else None
        found = self.ask("range", {"key": name, **({"range_end": end, "limit": "40"} if end else {})})
        return "header" in found and all(base64.b64decode(one["value"]).startswith(base64.b64decode(one["key"])) for one in found.get("kvs", []))


class Amqp:
    """Publishes of persistent messages with confirmation, and gets with acknowledgement, on queues of a direct exchange."""

    def __init__(self, args, rng):
        import amqp
        self.amqp, self.args, self.rng = amqp, args, rng
        self.conn = amqp.Connection(f"{args.host}:{args.port}", confirm_publish=True)
        self.conn.connect()
        self.channel = self.conn.channel()
        self.queues = [f"q{number}" for number in range(args.range)]
        for name in self.queues:
            self.channel.queue_declare(name, durable=True, auto_delete=False, arguments={"x-max-length": 2000})

    def once(self):
        name = self.rng.choice(self.queues)
        if self.rng.random() < 0.55:
            body = f"{name} " + "m" * self.rng.randrange(1, self.args.size)
            self.channel.basic_publish(self.amqp.Message(body, delivery_mode=2), routing_key=name)
            return True
        message = self.channel.basic_get(name)
        if message is None:
            return True
        self.channel.basic_ack(message.delivery_tag)
        body = message.body if isinstance(message.body, str) else message.body.decode()
        return body.startswith(name + " m")


class Tarantool:
    """Stored functions by the text console of the server."""

    def __init__(self, args, rng):
        self.args, self.rng, self.sock = args, rng, connect(args)
        self.file = self.sock.makefile("rb")
        self.file.readline(), self.file.readline()

    def once(self):
        self.sock.sendall(f"work({self.rng.randrange(self.args.range)}, {self.rng.randrange(1, self.args.size)})\n".encode())
        good = True
        while True:
            line = self.file.readline()
            good &= b"error" not in line
            if not line:
                raise ConnectionError("the connection is closed")
            if line.startswith(b"..."):
                return good


def push_jobs(args):
    """Jobs into a queue of Redis, then wait until all are done; sidekiq and celery have a kind each."""
    rng = random.Random(args.seed)
    sizes = [rng.randrange(1, args.size + 1) for _ in range(args.n)]
    if args.kind == "celery":
        sys.path.insert(0, os.environ["SERVICE_DIR"] + "/lib")
        from celery_app import work
        began = time.time()
        results = [work.delay(size) for size in sizes]
        for result in results:
            result.get(timeout=300)
        return began, []
    import redis
    store = redis.Redis(port=args.port)
    # sidekiq's own count is written every five seconds only.
    before = int(store.get("done") or 0)
    began = time.time()
    store.sadd("queues", "default")
    for number, size in enumerate(sizes):
        job = {"class": "Work", "args": [size], "jid": f"{number:024x}", "queue": "default", "retry": False, "created_at": began, "enqueued_at": began}
        store.lpush("queue:default", json.dumps(job))
    while int(store.get("done") or 0) < before + args.n:
        time.sleep(0.02)
        if time.time() - began > 600:
            sys.exit("the jobs are not done after 600 s")
    return began, []


KINDS = {"http": Http, "memcache": Memcache, "resp": Resp, "ldap": Ldap, "imap": Imap, "clam": Clam, "syslog": Syslog,
         "mqtt": Mqtt, "beanstalk": Beanstalk, "tarantool": Tarantool, "nats": Nats, "etcd": Etcd, "amqp": Amqp}


def client(args, number, spans, errors):
    rng = random.Random(f"{args.seed} {number}")
    try:
        one = KINDS[args.kind](args, rng)
    except Exception as error:  # noqa: BLE001  whatever it is, the load has failed
        errors.append(f"{type(error).__name__}: {error}")
        return
    for turn in range(args.n // args.c):
        began = time.perf_counter()
        if args.rate:
            # A request that had to wait for the one before it waited since it was due: no coordinated omission.
            due = args.began + (turn * args.c + number) / args.rate
            time.sleep(max(0.0, due - began))
            began = due
        try:
            good = one.once()
        except Exception as error:  # noqa: BLE001
            errors.append(f"{type(error).__name__}: {error}")
            if len(errors) > args.n // 20:
                return
            try:
                one = KINDS[args.kind](args, rng)
            except Exception:  # noqa: BLE001
                return
            continue
        spans.append(time.perf_counter() - began)
        if not good:
            errors.append("refused")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*KINDS, "sidekiq", "celery"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", 0)))
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("-c", type=int, default=8)
    parser.add_argument("--path", default="/")
    parser.add_argument("--body", default="")
    parser.add_argument("--expect", default="", help="text in each answer over HTTP; %%d is the number in the path")
    parser.add_argument("--accept", default="identity", help="encodings accepted over HTTP")
    parser.add_argument("--range", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="operations per second, each due at its time; 0: as fast as possible")
    parser.add_argument("--seconds", type=float, default=0.0, help="with a rate: at least so long, with more operations than -n")
    args = parser.parse_args()
    args.n = max(args.n, int(args.rate * args.seconds))
    spans, errors = [], []
    if args.kind in ("sidekiq", "celery"):
        began, errors = push_jobs(args)
        done = args.n
    else:
        began = time.time()
        args.began = time.perf_counter() + (0.2 if args.rate else 0.0)  # the clients connect first
        threads = [threading.Thread(target=client, args=(args, i, spans, errors)) for i in range(args.c)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = len(spans)
    # At a fixed rate the clients have connected before the first operation is due.
    took = time.perf_counter() - args.began if args.rate else time.time() - began
    wanted = args.n // args.c * args.c
    if done < wanted * 0.9 or len(errors) > wanted * 0.1:
        sys.exit(f"{done} of {args.n} operations were done, {len(errors)} failed; {errors[0] if errors else 'no error'}")
    with open(os.environ.get("IMAS_METRICS", "/dev/stdout"), "a") as file:
        file.write(f"rate {done / took} 1/s higher\nerrors {len(errors)} - lower\n")
        spans.sort()
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
            if spans:
                file.write(f"{name} {spans[min(len(spans) - 1, int(share * len(spans)))] * 1000} ms lower\n")


main()
