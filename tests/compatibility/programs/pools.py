# SPDX-License-Identifier: Apache-2.0
"""A pool of processes by fork and one by spawn, each while a thread allocates."""
import multiprocessing
import threading


def length(number):
    return len(str(list(range(number))))


def churn(stop):
    while not stop.is_set():
        [bytes(100 * i) for i in range(100)]


if __name__ == "__main__":
    stop = threading.Event()
    thread = threading.Thread(target=churn, args=(stop,))
    thread.start()
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, pool.map(length, range(0, 3000, 300)))
    stop.set()
    thread.join()
