# SPDX-License-Identifier: Apache-2.0
"""Typical work of Python programs: read JSON, split text, fill dictionaries, sort, make strings, write JSON.
argv[1]: rounds."""

import json
import re
import sys


class Account:
    def __init__(self, name, rows):
        self.name = name
        self.rows = rows

    def total(self):
        return sum(row["amount"] for row in self.rows)


def rows(seed):
    state = seed
    for i in range(2000):
        state = (state * 1103515245 + 12345) % (1 << 31)
        yield {"id": i, "owner": f"owner-{state % 97}", "amount": state % 1000 / 10, "note": "x" * (state % 600)}


def work(seed):
    text = json.dumps(list(rows(seed)))
    read = json.loads(text)
    by_owner = {}
    for row in read:
        by_owner.setdefault(row["owner"], []).append(row)
    accounts = [Account(name, found) for name, found in sorted(by_owner.items())]
    words = re.findall(r"owner-\d+", text)
    lines = "\n".join(f"{account.name:>12} {account.total():10.2f}" for account in accounts)
    return len(words) + len(lines.split())


print(sum(work(seed) for seed in range(int(sys.argv[1]))))
