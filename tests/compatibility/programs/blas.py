# SPDX-License-Identifier: Apache-2.0
"""blas.py work|fork|pool: numpy; fork and multiprocessing after BLAS has started its threads."""
import multiprocessing
import os
import sys

import numpy


def product(size):
    matrix = numpy.arange(size * size, dtype=float).reshape(size, size) % 97
    return round(float((matrix @ matrix).sum()), 3)


def work():
    print(product(500))
    numbers = numpy.random.default_rng(1).random(300000)
    print(round(float(numpy.sort(numbers)[1000]), 9), round(float(numpy.linalg.eigvalsh(numpy.eye(50) * 3).max()), 6))
    print(sum(len(numpy.array_split(numbers, n)) for n in range(1, 200)))


def fork():
    print(product(400))
    statuses = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            os._exit(int(product(300) > 0) + 40)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(statuses, product(400))


def pool():
    print(product(400))
    with multiprocessing.get_context("fork").Pool(3) as workers:
        print(workers.map(product, [100, 200, 300, 100, 200, 300]))


{"work": work, "fork": fork, "pool": pool}[sys.argv[1]]()
