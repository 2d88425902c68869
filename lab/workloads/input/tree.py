# SPDX-License-Identifier: Apache-2.0
# tree.py FILES: a source tree in the folder tree/: C, Python, text and HTML files in nested folders, with names and dates that never change.
import os
import random
import sys

random.seed(2)
names = ["".join(random.choices("abcdefghijklmnop", k=random.randint(4, 9))) for _ in range(3000)]


def c_file():
    parts = ["/* made by tree.py */", "#include <stddef.h>", "#include <string.h>"]
    for _ in range(random.randint(5, 25)):
        f, a, b = random.sample(names, 3)
        parts.append(f"int {f}(int {a}, const char *{b})\n{{\n    if ({a} > {random.randint(1, 99)})\n        return (int) strlen({b});\n    return {a} * {random.randint(2, 99)}; /* TODO {random.choice(names)} */\n}}\n")
    return "\n".join(parts)


def py_file():
    parts = ['"""Made by tree.py."""', "import os", "import sys", ""]
    for _ in range(random.randint(4, 15)):
        f, a, b = random.sample(names, 3)
        parts.append(f"def {f}({a}, {b}=None):\n    \"\"\"Return {a} of {b}.\"\"\"\n    if {b} is None:\n        {b} = []\n    for item in range({a}):\n        {b}.append(item * {random.randint(2, 99)})\n    return {{'{f}': {b}, 'path': os.sep, 'size': sys.maxsize}}\n\n")
    return "\n".join(parts)


def text_file():
    return "\n".join(" ".join(random.choices(names, k=12)) for _ in range(random.randint(30, 200))) + "\n"


def html_file():
    rows = "".join(f"<tr><td>{random.choice(names)}</td><td><a href='{random.choice(names)}.html'>{random.randint(1, 9999)}</a></td></tr>\n" for _ in range(60))
    return f"<!DOCTYPE html><html><head><title>{random.choice(names)}</title></head><body><h1>{random.choice(names)}</h1><table>\n{rows}</table></body></html>\n"


kinds = [("c", c_file), ("py", py_file), ("txt", text_file), ("html", html_file)]
for n in range(int(sys.argv[1])):
    ending, make = kinds[n % len(kinds)]
    folder = os.path.join("tree", f"d{n % 17}", f"e{n % 5}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{names[n % len(names)]}{n}.{ending}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(make())
    os.utime(path, (1e9, 1e9))
