# SPDX-License-Identifier: Apache-2.0
"""Jobs of celery: JSON built and parsed, and results that are kept for a while."""
import collections
import json
import os

from celery import Celery

URL = f"redis://127.0.0.1:{os.environ['PORT2']}/0"
app = Celery("celery_app", broker=URL, backend=URL)
app.conf.update(worker_hijack_root_logger=False, task_acks_late=False, result_expires=300)
KEPT = collections.deque(maxlen=300)


@app.task
def work(size):
    rows = [{"id": i, "name": f"item {i}" * 3, "tags": [f"{tag}{i}" for tag in "abc"]} for i in range(size)]
    names = [row["name"].upper() for row in json.loads(json.dumps(rows))]
    KEPT.append(names)
    return len(names)
