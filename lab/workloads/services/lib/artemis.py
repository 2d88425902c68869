# SPDX-License-Identifier: Apache-2.0
"""Visitors of a message broker that speaks STOMP: artemis.py MIX."""
import socket

from visits import Refused, Words, main

QUEUES, TOPICS = 12, 6
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.receipts = rng, 0
        self.sock = socket.create_connection(("127.0.0.1", args.port), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        self.frame("CONNECT", {"accept-version": "1.2", "host": "lab", "login": "lab", "passcode": "lab"})
        self.read("CONNECTED")
        self.queue, self.waiting = f"lab.queue{number % QUEUES}", []
        self.told("SUBSCRIBE", {"id": "0", "destination": self.queue, "destination-type": "ANYCAST", "ack": "client-individual"})
        if args.mix == "topics":
            for topic in range(3):
                self.told("SUBSCRIBE", {"id": str(1 + topic), "destination": f"lab.topic{(number + topic) % TOPICS}", "subscription-type": "MULTICAST", "ack": "auto"})

    def frame(self, command, headers, body=b""):
        head = "".join(f"{name}:{value}\n" for name, value in headers.items())
        self.sock.sendall(f"{command}\n{head}content-length:{len(body)}\n\n".encode() + body + b"\0")

    def one(self):
        """The next frame: its command, headers and body."""
        command = b"\n"
        while command == b"\n":
            command = self.file.readline()
        if not command:
            raise ConnectionError("the connection is closed")
        headers = {}
        while (line := self.file.readline()) not in (b"\n", b"\r\n", b""):
            name, _, value = line.decode().strip().partition(":")
            headers.setdefault(name, value)
        if "content-length" in headers:
            body = self.file.read(int(headers["content-length"]))
            self.file.read(1)
        else:
            body = bytearray()
            while (byte := self.file.read(1)) not in (b"\0", b""):
                body += byte
        return command.strip().decode(), headers, bytes(body)

    def read(self, wanted):
        """The next frame of this kind; messages that come before it wait."""
        while True:
            command, headers, body = self.one()
            if command == wanted:
                return headers, body
            if command != "MESSAGE":
                raise Refused(f"{command}: {body[:100]!r}")
            if headers["subscription"] == "0":
                self.waiting.append((headers, body))

    def told(self, command, headers, body=b""):
        """Sends a frame and waits until the broker has it."""
        self.receipts += 1
        self.frame(command, {**headers, "receipt": str(self.receipts)}, body)
        self.read("RECEIPT")

    def send(self, size=None, queue=None):
        body = WORDS.text(self.rng, self.rng.randrange(4, 200)).encode() if size is None else self.rng.randbytes(size)
        headers = {"destination": queue or self.queue, "destination-type": "ANYCAST", "persistent": "true", "kind": self.rng.choice("abc"), "priority": self.rng.randrange(10)}
        self.told("SEND", headers, body)

    def take(self):
        headers, _ = self.waiting.pop(0) if self.waiting else self.read("MESSAGE")
        while headers["subscription"] != "0":  # of a topic
            headers, _ = self.read("MESSAGE")
        self.told("ACK", {"id": headers["ack"]})

    # visits
    def pass_on(self):
        self.send()
        self.take()

    def burst(self):
        for _ in range(8):
            self.send()
        for _ in range(8):
            self.take()

    def leave(self):
        """A message that nobody takes: the backlog grows."""
        self.send(queue="lab.backlog")

    def publish(self):
        self.told("SEND", {"destination": f"lab.topic{self.rng.randrange(TOPICS)}", "destination-type": "MULTICAST"}, WORDS.text(self.rng, 60).encode())

    def big(self):
        self.send(self.rng.randrange(150_000, 1_500_000))
        self.take()


MIXES = {
    "queues": {"pass_on": 12, "burst": 1, "leave": 2},
    "topics": {"publish": 6, "pass_on": 1},
    "large": {"big": 1},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
