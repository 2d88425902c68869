# SPDX-License-Identifier: Apache-2.0
"""A data job with what Python brings: CSV and JSON into a database, groups and joins, a report: report.py FOLDER"""
import collections
import csv
import json
import sqlite3
import sys

folder = sys.argv[1]
with open(f"{folder}/sales.csv", newline="") as file:
    rows = list(csv.DictReader(file))
names = list(rows[0])
with open(f"{folder}/sales.json") as file:
    text = file.read()
other = json.loads(text)
base = sqlite3.connect(":memory:")
base.execute(f"create table sales ({', '.join(names)})")
base.executemany(f"insert into sales values ({', '.join('?' * len(names))})", ([row[name] for name in names] for row in rows))
groups = collections.defaultdict(list)
for row in rows:
    groups[row[names[1]]].append(row)
print(len(rows), len(other), base.execute("select count(*) from sales").fetchone())
for name, found in sorted(groups.items())[:40]:
    words = collections.Counter(word for row in found for value in row.values() for word in value.split())
    print(name, len(found), sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
for row in base.execute(f"select {names[1]}, count(*), min({names[0]}) from sales group by {names[1]} order by 2 desc, 1 limit 20"):
    print(*row)
print(len(json.dumps(sorted(rows, key=lambda row: [row[name] for name in reversed(names)]), indent=1)))
