# SPDX-License-Identifier: Apache-2.0
"""Forks from the main thread while three others allocate; each child allocates and ends."""
import os
import threading

stop = False


def churn():
    while not stop:
        [bytes(100 * i) for i in range(200)]


threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for number in range(10):
    child = os.fork()
    if child == 0:
        kept = [bytes(1000 * i) for i in range(300)]
        os._exit(len(kept) % 7)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
for thread in threads:
    thread.join()
print(statuses)
