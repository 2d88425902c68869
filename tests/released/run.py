#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/released/run.py IMAS [--write]: what a release wrote is read by this version, and what it had is there.

Each folder beside this file is of a release: a store, runs and a result that `imas bench` exported, a catalogue, and `interface`:
the options of each verb, the fields of each JSON answer, the exit statuses. From 0.4.0 on these stay (docs/install.md, "What later
releases keep"). --write makes the folder of this version anew, before it is released and never after."""

import gzip
import json
import os
import pathlib
import re
import shutil
import sqlite3
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "testing"))
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
from imas_testing import Failed, case, finish, run  # noqa: E402

# A program that every machine of the tests has, with enough work to be measured.
WORK = ["/usr/bin/perl", "-e", "@a = map { 'x' x ($_ % 500) } 1 .. 60000; print scalar(@a), qq(\\n)"]
STARTS = 8
OTHER = ["/usr/bin/sort", "/etc/passwd"]
OPTION = re.compile(r"\\fB((?:\\-){2}(?:[a-z0-9]|\\-)+)")
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
CATALOGUE = """schema = 1

[[candidate]]
name = "own:arenas"
allocator = "glibc"
origin = "a test"
licence = "none"
summary = "glibc with three arenas."
default = false
environment = { GLIBC_TUNABLES = "glibc.malloc.arena_max=3" }

[[candidate]]
name = "own:python"
allocator = "cpython"
runtime = "cpython"
origin = "a test"
licence = "none"
summary = "CPython on malloc."
default = false
environment = { PYTHONMALLOC = "malloc" }
"""
# What is asked for its fields. STORE has the program of WORK as number 1.
ANSWERS = {
    "list": ["list"], "show": ["show"], "show PROGRAM": ["show", "1"], "explain PROGRAM": ["explain", "1"],
    "explain --pid": ["explain", "--pid", "PID"], "doctor": ["doctor"],
    "bundle": ["bundle", "mimalloc", "--out", "FOLDER/bundle"], "env": ["env", "--candidate", "mimalloc", "--bundle", "FOLDER/bundle"],
    "trim": ["trim", "PID"],
    "bench": ["bench", "-n", "3", "--with", "mimalloc", "--", *WORK], "pin": ["pin", "1", "mimalloc"], "unpin": ["unpin", "1"],
    "exclude add": ["exclude", "add", "/usr/bin/env"], "exclude list": ["exclude", "list"],
    "exclude remove": ["exclude", "remove", "/usr/bin/env"], "report": ["report", "--html", "FOLDER/page.html"], "forget": ["forget", "1"],
}
# Benches that end in other ways: what only some of their answers have is no promise.
BENCHES = [["bench", "-n", "3", "--with", "glibc:arena1", "--", *WORK], ["bench", "-n", "6", "--with", "mimalloc,jemalloc", "--", *WORK],
           ["bench", "-n", "3", "--with", "mimalloc", "--", *OTHER]]
STATUSES = [["run", "--", "sh", "-c", "exit 3"], ["run", "--", "/nonexistent"], ["run", "--", "/etc/passwd"],
            ["run", "--candidate", "nosuch", "--", "true"], ["run", "--nosuch"], ["nosuch"], ["show", "/nonexistent"],
            ["list", "--nosuch"], ["explain", "/nonexistent"], ["pin", "true", "nosuch"], ["--version"]]


class World:
    """A home of its own, with a store."""

    def __init__(self, imas, folder):
        self.imas, self.folder = imas, pathlib.Path(folder)
        self.store = self.folder / "imas.db"
        for name in ("home", "run", "data", "config/imas/catalogue.d"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": f"{folder}/home", "XDG_RUNTIME_DIR": f"{folder}/run",
                            "XDG_DATA_HOME": f"{folder}/data", "XDG_CONFIG_HOME": f"{folder}/config", "IMAS_STORE": str(self.store)}
        self.environment |= {name: os.environ[name] for name in ("IMAS_LIB_DIR",) if name in os.environ}

    def run(self, *words, **more):
        return run(self.imas, *words, env=self.environment, **more)

    def json(self, *words):
        ended = self.run(*words[:1], "--json", *words[1:])
        try:
            return json.loads(ended.stdout)
        except ValueError:
            raise Failed(f"{words}: {ended}") from None

    def start(self):
        self.run("run", "--retest", "0", "--", *WORK, must=True)

    def trials(self):
        """Trials of each program by its path."""
        return {program["program"]["path"]: self.json("show", program["program"]["path"])["trials"] for program in self.json("show")["programs"]}


def fields(value, path):
    """The fields of an answer with their kinds, a line each. Keys that are names of things count as one."""
    if isinstance(value, dict):
        names = all(map(NAME.match, value))
        for key, below in value.items():
            yield from fields(below, f"{path}.{key}" if names else f"{path}.*")
    elif isinstance(value, list):
        for below in value:
            yield from fields(below, f"{path}[]")
    else:
        kind = {bool: "true or false", int: "number", float: "number", str: "text", type(None): "null"}[type(value)]
        yield f"{path} {kind}"


def options(world):
    """The options of each verb, as its man page has them."""
    folder = world.folder / "man"
    for name in ("imas", "imas-top", "imas-kube"):
        if (program := world.imas.with_name(name)).exists():
            run(program, "manpages", folder, env=world.environment, must=True)
    for page in sorted(folder.glob("*.1")):
        for option in sorted(set(OPTION.findall(page.read_text()))):
            yield f"option {page.stem.replace('-', ' ')} {option.replace(chr(92), '')}"


def interface(world):
    """All that stays: options, fields and statuses, a line each."""
    for _ in range(STARTS):  # the program of this machine may be another build than the store knows
        world.start()
    found = set(options(world))
    sleeper = imas_testing.subprocess.Popen(["/usr/bin/perl", "-e", "sleep"])
    try:
        for name, words in ANSWERS.items():
            words = [word.replace("FOLDER", str(world.folder)).replace("PID", str(sleeper.pid)) for word in words]
            if words[0] == "exclude":
                answer = json.loads(world.run(*words, "--json").stdout)
            else:
                answer = world.json(*words)
            found |= {f"json {line}" for line in fields(answer, name)}
    finally:
        sleeper.kill()
        sleeper.wait()
    for words in STATUSES:
        found.add(f"status {' '.join(words)}: {world.run(*words).returncode}")
    return sorted(found)


def lacking(then, now):
    """The lines of a release that are no more. A field that was null may have a kind now, or is not shown."""
    kinds = {}
    for line in now:
        path, _, kind = line.rpartition(" ")
        kinds.setdefault(path if line.startswith("json ") and kind != "false" else line, set()).add(kind)
    known = set(now) | {line.rpartition(" ")[0] for line in now if line.startswith("json ")}
    for line in then:
        path, _, kind = line.rpartition(" ")
        if line in known or (line.startswith("json ") and (kind == "null" or f"{path} null" in now)):
            continue
        yield line


def unpacked(release, world):
    world.store.write_bytes(gzip.decompress((release / "imas.db.gz").read_bytes()))


def store_is_read(imas, release):
    with tempfile.TemporaryDirectory() as folder:
        world = World(imas, folder)
        unpacked(release, world)
        expected = json.loads((release / "expected.json").read_text())
        if world.trials() != expected["trials"]:
            raise Failed(f"{world.trials()}, and {expected['trials']} were stored")
        excluded = json.loads(world.run("exclude", "list", "--json").stdout)
        if "/usr/bin/true" not in json.dumps(excluded):
            raise Failed(f"the exclusion is lost: {excluded}")
        # The second start stores what the first has left.
        for _ in range(2):
            world.run("run", "--retest", "0", "--", *OTHER, must=True)
        if world.trials().get(OTHER[0], 0) < 1:
            raise Failed(f"nothing can be added to it: {world.trials()}")


def exports_are_read(imas, release):
    with tempfile.TemporaryDirectory() as folder:
        world = World(imas, folder)
        world.run("report", "--data", release / "runs.jsonl", "--html", world.folder / "page.html", must=True)
        if "mimalloc" not in (world.folder / "page.html").read_text():
            raise Failed("the page does not have its runs")
        compared = world.run("bench", "-n", "3", "--with", "mimalloc", "--baseline", release / "bench.json", "--fail-if", "cpu>900%", "--", *WORK)
        if compared.returncode not in (0, 1) or "baseline" not in compared.stdout + compared.stderr:
            raise Failed(f"it is no baseline: {compared}")


def catalogue_is_read(imas, release):
    with tempfile.TemporaryDirectory() as folder:
        world = World(imas, folder)
        shutil.copy(release / "catalogue.toml", world.folder / "config/imas/catalogue.d/own.toml")
        own = [one for one in world.json("list")["candidates"] if one["name"].startswith("own:")]
        if len(own) != 2 or not own[0]["available"]:
            raise Failed(f"its candidates are not there: {own}")


def interface_is_there(imas, release):
    with tempfile.TemporaryDirectory() as folder:
        world = World(imas, folder)
        unpacked(release, world)
        now = interface(world)
        if gone := list(lacking((release / "interface").read_text().splitlines(), now)):
            raise Failed("these were released:\n  " + "\n  ".join(gone[:60]))


def write(imas):
    """The folder of this version."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(imas, folder)
        release = HERE / world.run("--version", must=True).stdout.split()[1]
        release.mkdir(exist_ok=True)
        for _ in range(STARTS):
            world.start()
        world.json("show")
        world.run("pin", WORK[0], "jemalloc")
        world.run("exclude", "add", "/usr/bin/true", must=True)
        whole = world.folder / "whole.db"
        with sqlite3.connect(world.store) as store:
            store.execute("VACUUM INTO ?", [str(whole)])
        (release / "imas.db.gz").write_bytes(gzip.compress(whole.read_bytes(), mtime=0))
        kept = World(imas, folder + "/kept")
        unpacked(release, kept)  # without the pages that are not stored yet
        (release / "expected.json").write_text(json.dumps({"trials": kept.trials()}, indent=1) + "\n")
        world.run("bench", "-n", "3", "--with", "mimalloc", "--export-runs", world.folder / "runs.jsonl", "--export-json", world.folder / "bench.json",
                  "--", *WORK, must=True)
        for name in ("runs.jsonl", "bench.json"):
            shutil.copy(world.folder / name, release / name)
        (release / "catalogue.toml").write_text(CATALOGUE)
    # Twice: what is there by chance is no promise.
    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            world = World(imas, folder)
            unpacked(release, world)
            found.append(interface(world))
            others = [{f"json {line}" for line in fields(world.json(*words), "bench")} for words in BENCHES]
    kept = [line for line in found[0] if not list(lacking([line], found[1]))]
    for other in others:
        kept = [line for line in kept if not line.startswith("json bench.") or not list(lacking([line], other))]
    (release / "interface").write_text("".join(f"{line}\n" for line in kept))
    print(f"written: {release}")


def main():
    arguments = imas_testing.Arguments(__doc__)
    arguments.add_argument("imas", type=pathlib.Path)
    arguments.add_argument("--write", action="store_true", help="make the folder of this version")
    chosen = arguments.parse_args()
    imas = chosen.imas.resolve()
    if chosen.write:
        write(imas)
        return
    for release in sorted(folder for folder in HERE.iterdir() if folder.is_dir() and folder.name[0].isdigit()):
        for test in (store_is_read, exports_are_read, catalogue_is_read, interface_is_there):
            case(f"{release.name}: {test.__name__.replace('_', ' ')}", test, imas, release)
    finish("released")


if __name__ == "__main__":
    main()
