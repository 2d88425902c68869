# SPDX-License-Identifier: Apache-2.0
# memcache.py SOCKET REQUESTS: sets and gets values of many sizes over four connections; fails when a value is not what was set.
import socket
import sys

path, requests = sys.argv[1], int(sys.argv[2])


def value(n):
    return (b"%d-" % n) * (n * 7919 % 300 + 1)


def client(number):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        stream = connection.makefile("rwb")
        for at in range(0, requests // 4, 50):
            keys = range(at, at + 50)
            for n in keys:
                stream.write(b"set k%d-%d 0 0 %d noreply\r\n%s\r\n" % (number, n, len(value(n)), value(n)))
            stream.write(b"get " + b" ".join(b"k%d-%d" % (number, n) for n in keys) + b"\r\n")
            stream.flush()
            for n in keys:
                head = stream.readline()
                if head == b"END\r\n":
                    break
                size = int(head.split()[3])
                got = stream.read(size + 2)[:-2]
                want = value(int(head.split()[1].split(b"-")[1]))
                if got != want:
                    sys.exit("a value is not what was set")
            else:
                stream.readline()


for number in range(4):
    client(number)
