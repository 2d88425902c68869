# SPDX-License-Identifier: Apache-2.0
# table.py ROWS csv|json|xml|sql|tsv: the same made-up sales in another form on standard output.
import json
import random
import sys

random.seed(3)
rows, form = int(sys.argv[1]), sys.argv[2]
towns = ["Ankara", "Bern", "Cairo", "Delhi", "Essen", "Fes", "Ghent", "Hobart", "Izmir", "Jena"]
items = [f"item-{n:04}" for n in range(700)]


def record(n):
    return {
        "id": n,
        "town": random.choice(towns),
        "item": random.choice(items),
        "amount": random.randint(1, 500),
        "price": round(random.random() * 1000, 2),
        "day": f"20{random.randint(10, 25)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}",
        "note": "".join(random.choices("abcdefghij ", k=random.randint(0, 40))).strip(),
    }


records = (record(n) for n in range(rows))
if form in ("csv", "tsv"):
    sign = "," if form == "csv" else "\t"
    for n, row in enumerate(records):
        if n == 0:
            print(sign.join(row))
        print(sign.join(str(value) for value in row.values()))
elif form == "json":
    print(json.dumps(list(records), indent=1))
elif form == "xml":
    print("<?xml version='1.0'?>\n<sales>")
    for row in records:
        print("<sale id='{id}' town='{town}'><item>{item}</item><amount>{amount}</amount><price>{price}</price><day>{day}</day><note>{note}</note></sale>".format(**row))
    print("</sales>")
else:
    print("CREATE TABLE sales (id INTEGER PRIMARY KEY, town TEXT, item TEXT, amount INTEGER, price REAL, day TEXT, note TEXT);\nBEGIN;")
    for row in records:
        print("INSERT INTO sales VALUES ({id},'{town}','{item}',{amount},{price},'{day}','{note}');".format(**row))
    print("COMMIT;")
