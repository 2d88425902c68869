# SPDX-License-Identifier: Apache-2.0
"""A case: one command that must behave the same untouched and under every candidate. cases/*.toml have the
fields of Case."""

import dataclasses
import os
import pathlib
import shutil
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("IMAS_BUILD", ROOT / "build"))
PROGRAMS = BUILD / "compatibility" / "programs"
# The environment of a case, independent of who starts the matrix.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONDITIONS = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "systemd": (lambda: os.path.isdir("/run/systemd/system"), "no systemd runs here"),
}
PLACES = {"programs": str(PROGRAMS), "sources": str(HERE / "programs")}


@dataclasses.dataclass(frozen=True)
class Case:
    """name: also its key in the results. what: one line for the page.

    command or shell (run by bash; then `follow` is on unless it is switched off). needs: files, programs in PATH and CONDITIONS,
    without which the case is skipped. before: a command in front of the launcher (limits, namespaces). user: whom it runs as when the
    matrix is run by root. stderr: whether standard error is compared. filters: pairs of a regular expression and what
    replaces it in the output. environment: added. seconds: the deadline, for cases that need more than the usual one.
    under: "all" candidates, or where a case takes long "families" (one setting of each allocator) or the "default" ones.
    quick: part of `run --quick`. repeat: runs under each candidate. each, in a file: a table of word and what is tried; one case
    for each, with the word in place of `{each}`.
    """

    name: str
    group: str
    what: str
    command: tuple
    needs: tuple = ()
    before: tuple = ()
    follow: bool = False
    user: str = ""
    stderr: bool = False
    filters: tuple = ()
    environment: tuple = ()
    seconds: float = 0
    under: str = "all"
    quick: bool = False
    repeat: int = 1


def _filled(word):
    for name, value in PLACES.items():
        word = word.replace("{" + name + "}", value)
    return word


def _expanded(entries):
    """An entry with `each` describes several cases."""
    for entry in entries:
        each = entry.get("each", {"": entry.get("what")})
        for word, what in each.items():
            one = {name: value for name, value in entry.items() if name != "each"}
            texts = {name: value.replace("{each}", word) for name, value in one.items() if name in ("name", "shell")}
            if "command" in one:
                one["command"] = [part.replace("{each}", word) for part in one["command"]]
            yield {**one, **texts, "what": what}


def _case(group, entry):
    entry = dict(entry)
    shell = entry.pop("shell", None)
    if shell is not None:
        entry["command"] = ["/bin/bash", "-c", shell]
        entry.setdefault("follow", True)
    entry["environment"] = tuple(entry.get("environment", {}).items())
    for name in ("command", "needs", "before"):
        entry[name] = tuple(_filled(word) for word in entry.get(name, ()))
    first, *others = entry["command"]
    # Some servers start themselves again by the path that they were started with.
    entry["command"] = (first if "/" in first else shutil.which(first, path=PATH) or first, *others)
    entry["filters"] = tuple(tuple(pair) for pair in entry.get("filters", ()))
    return Case(group=group, **entry)


def read_all():
    """Every case of cases/, in the order of the files' names."""
    found = []
    for file in sorted((HERE / "cases").glob("*.toml")):
        with open(file, "rb") as stream:
            data = tomllib.load(stream)
        found += [_case(data["group"], entry) for entry in _expanded(data["case"])]
    names = [case.name for case in found]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    return found


def missing(case):
    """Why the case cannot run here, or an empty text."""
    for need in (*case.needs, case.command[0]):
        if need in CONDITIONS:
            holds, why = CONDITIONS[need]
            if not holds():
                return why
        elif not (os.path.exists(need) if "/" in need else shutil.which(need, path=PATH)):
            return f"{need.rsplit('/', 1)[-1]} is not here"
    return ""
