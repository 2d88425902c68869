# SPDX-License-Identifier: Apache-2.0
"""How a case is started: untouched, in production or in a trial, under one candidate."""

import json
import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

from case import BUILD, PATH, ROOT

sys.path.insert(0, str(ROOT / "tests" / "hook"))
import page  # noqa: E402

LIBRARIES = Path(os.environ.get("IMAS_LIB_DIR", BUILD / "lib" / "imas")).resolve()
LAUNCH = BUILD / "compatibility" / "launch"
FRONT = {"production": LIBRARIES / "libimas-guard.so", "trial": LIBRARIES / "libimas.so"}
MODES = list(FRONT)
# Pages belong on tmpfs, as in real use.
PAGES = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def candidates(imas):
    """What `imas list` shows of each candidate for all programs."""
    shown = subprocess.run([imas, "list", "--json"], capture_output=True, text=True, check=True, env=_own_store())
    return [one for one in json.loads(shown.stdout)["candidates"] if not one["runtime"]]


def left_alone(imas, case):
    """Why `imas run` starts the case's program untouched under every candidate; empty if it does not."""
    command = [imas, "run", "--dry-run", "--candidate", "jemalloc", "--", *case.command]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=_own_store())
    _, found, why = (shown.stdout + shown.stderr).strip().partition(" under system: ")
    return why if found else ""


def _own_store():
    """Variables that keep the user's files untouched."""
    return {**os.environ, "PATH": PATH, "IMAS_STORE": str(BUILD / "compatibility" / "imas.db")}


def environment(case):
    """The same for every run: few variables, and the same paths for every user."""
    return {"PATH": PATH, "HOME": "{folder}/work", "TMPDIR": "{folder}/work", "LANG": "C.UTF-8", "TERM": "dumb",
            "USER": case.user or "root", **dict(case.environment)}


def _as_user(case):
    if not case.user or os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={case.user}", f"--regid={pwd.getpwnam(case.user).pw_gid}", "--clear-groups", "--"]


def untouched(case):
    """The command without IMAS."""
    return [*_as_user(case), *case.before, *case.command]


def _entry(library, follow):
    """The entry of LD_PRELOAD for a library; if children inherit it, a path in the folder for programs of
    every kind."""
    through = LIBRARIES / "preload"
    if follow and through.is_dir() and Path(library).is_relative_to(LIBRARIES):
        return str(through / "$LIB" / Path(library).relative_to(LIBRARIES))
    return str(library)


def under(case, candidate, mode, page_file):
    """The command under a candidate: what `imas run` gives a decided start (production) or a trial."""
    wanted = (FRONT[mode], candidate["library"])
    libraries = [_entry(library, case.follow) for library in wanted if library]
    flags = ["-g"] if mode == "production" else []
    if case.follow:
        flags.append("-f" if mode == "production" else "-t")
    for name, value in candidate["environment"].items():
        flags += ["-s", f"{name}={value}"]
    launcher = [str(LAUNCH), *flags, "-p", str(page_file), "-l", ":".join(libraries), "--"]
    return [*_as_user(case), *case.before, *launcher, *case.command]


def served(page_file):
    """From the page: the library that served, or why the program was left alone."""
    try:
        left = page.read(page_file)
    except (OSError, AssertionError, ValueError, IndexError):
        return "no page"
    if left["state"] in ("ACTIVE", "TRIAL"):
        return left["served"]
    return f"{left['state']} {left['pass_reason']}" if left["state"] == "PASS" else left["state"]
