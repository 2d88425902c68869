# SPDX-License-Identifier: Apache-2.0
# queue.py PORT JOBS: puts jobs of many sizes into beanstalkd and takes and deletes them again; fails when one comes back changed.
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    stream = connection.makefile("rwb")
    jobs = int(sys.argv[2])
    for at in range(0, jobs, 500):
        for n in range(at, at + 500):
            body = b"%d:" % n + b"x" * (n * 7919 % 900)
            stream.write(b"put 1 0 60 %d\r\n%s\r\n" % (len(body), body))
        stream.flush()
        for _ in range(500):
            if not stream.readline().startswith(b"INSERTED"):
                sys.exit("a job was not taken")
        for _ in range(400 if at + 500 < jobs else jobs - at // 500 * 400):
            stream.write(b"reserve-with-timeout 5\r\n")
            stream.flush()
            _, number, size = stream.readline().split()
            body = stream.read(int(size) + 2)[:-2]
            n = int(body.split(b":")[0])
            if body != b"%d:" % n + b"x" * (n * 7919 % 900):
                sys.exit("a job came back changed")
            stream.write(b"delete %s\r\n" % number)
            stream.flush()
            stream.readline()
