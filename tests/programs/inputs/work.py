# SPDX-License-Identifier: Apache-2.0
"""Python at work in threads: every object by malloc when PYTHONMALLOC=malloc."""

import hashlib
import json
import re
import threading

results = {}


def work(number):
    text = ""
    rows = [{"id": i, "name": f"name {i * number}", "tags": [str(j) for j in range(i % 7)]} for i in range(1500)]
    for _ in range(3):
        text = json.dumps(rows, sort_keys=True)
        rows = json.loads(text)
    found = re.findall(r"name (\d+)", text)
    results[number] = hashlib.sha256("".join(sorted(found)).encode()).hexdigest()


threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in sorted(results):
    print(number, results[number])
