#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--package DIR] [-k PART] IMAS [WORD...]: attacks imasd as unprivileged users, in private namespaces (harness.py).

Each file in this folder is a group of attacks: its list ATTACKS. With words, only attacks with one of them in their
name are made. --package: a folder that `packaging/stage` has made; otherwise it is made anew."""

import importlib
import pathlib
import sys

sys.dont_write_bytecode = True

import harness
from imas_testing import Arguments, enter_namespace, run

HERE = pathlib.Path(__file__).resolve().parent


def groups(words):
    """The attacks of every file in this folder, by its name."""
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ["harness", "run"])
    chosen = {}
    for name in names:
        attacks = importlib.import_module(name).ATTACKS
        chosen[name] = [attack for attack in attacks if not words or any(word in f"{name}.{attack.__name__}" for word in words)]
    return chosen


def stage(imas, folder):
    """Makes the tree of a package."""
    package = pathlib.Path(folder) / "package"
    run("packaging/stage", imas, package, cwd=harness.ROOT, must=True)
    return package


def main():
    options = Arguments(__doc__)
    options.add_argument("--package", type=pathlib.Path)
    options.add_argument("imas", type=pathlib.Path)
    options.add_argument("words", nargs="*")
    given = options.parse_args()
    folder = enter_namespace("attacks", "--pid", "--fork", "--kill-child")
    package = given.package or stage(given.imas.resolve(), folder)
    harness.run_all(folder, package.resolve(), groups(given.words))


if __name__ == "__main__":
    main()
