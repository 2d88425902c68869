#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--package DIR] IMAS [WORD...]: attacks imasd as unprivileged users, in private namespaces (harness.py).

Each file in this folder is a group of attacks: its list ATTACKS. With words, only attacks with one of them in their
name are made.
--package: a folder that `packaging/stage` has made; otherwise it is made anew. Ends with "attacks: N passed, N failed"."""

import argparse
import importlib
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

import harness

HERE = pathlib.Path(__file__).resolve().parent


def groups(words):
    """The attacks of every file in this folder, by its name."""
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ["harness", "run"])
    chosen = {}
    for name in names:
        attacks = importlib.import_module(name).ATTACKS
        chosen[name] = [attack for attack in attacks if not words or any(word in f"{name}.{attack.__name__}" for word in words)]
    return chosen


def stage(imas):
    """Makes the tree of a package."""
    package = pathlib.Path(os.environ["IMAS_ATTACKS_FOLDER"]) / "package"
    done = subprocess.run(["packaging/stage", imas, package], cwd=harness.ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the package cannot be laid out: {done.stderr}")
    return package


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("--package", type=pathlib.Path)
    options.add_argument("imas", type=pathlib.Path)
    options.add_argument("words", nargs="*")
    given = options.parse_args()
    harness.enter(sys.argv)
    package = given.package or stage(given.imas.resolve())
    harness.run_all(package.resolve(), groups(given.words))


if __name__ == "__main__":
    main()
