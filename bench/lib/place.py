# SPDX-License-Identifier: Apache-2.0
"""Where everything is: the tree, the imas under test, its libraries, the benchmarks' own programs and
scratch."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
OUT = ROOT / "build" / "bench"

# Candidates for figures of IMAS itself, which must not change with the catalogue's default set.
SIX = ["system", "glibc:arena1", "jemalloc", "tcmalloc", "hoard", "mimalloc"]

LOOKUP_PARTS = ["index", "table", "interpreter_target", "service_unit", "sample"]

# product -> (source, flags)
PROGRAMS = {
    "spawn": ("bench/src/spawn.c", []),
    "count": ("bench/src/count.c", ["-static"]),
    "unveil.so": ("bench/src/unveil.c", ["-shared", "-fPIC"]),
    "resident": ("bench/src/resident.c", []),
    "pairs": ("bench/src/pairs.c", []),
    "holes": ("bench/src/holes.c", ["-pthread"]),
    "locks": ("bench/src/locks.c", ["-pthread"]),
    "launch": ("tests/hook/launch.c", []),
    "untake": ("bench/src/untake.c", []),
    "lookup": ("tests/hook/lookup.c", [str(ROOT / f"hook/{name}.c") for name in LOOKUP_PARTS]),
}


class Place:
    """An imas with a scratch folder: neither the user's store nor the user's settings are touched."""

    def __init__(self, imas):
        self.imas = str(Path(imas).resolve())
        self.lib = Path(os.environ.get("IMAS_LIB_DIR", ROOT / "build" / "lib" / "imas")).resolve()
        self.hook = str(self.lib / "libimas.so")
        self.guard = str(self.lib / "libimas-guard.so")
        # Pages belong on tmpfs, as in real use.
        self.scratch = Path(tempfile.mkdtemp(prefix="imas-bench-", dir="/dev/shm"))
        self._build()
        # ... and the store on a disk, which fsync has to wait for.
        self.disk = Path(tempfile.mkdtemp(prefix="stores-", dir=OUT))

    def close(self):
        """Deletes the scratch folders."""
        for folder in (self.scratch, self.disk):
            shutil.rmtree(folder, ignore_errors=True)

    def _build(self):
        OUT.mkdir(parents=True, exist_ok=True)
        for product, (source, flags) in PROGRAMS.items():
            command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", *flags]
            subprocess.run([*command, "-o", OUT / product, ROOT / source], check=True)

    def program(self, name):
        """The path of one of PROGRAMS, built."""
        return str(OUT / name)

    def environment(self, store=None):
        """PATH, and variables that keep imas within the scratch folder."""
        for folder in ("run", "config/imas", "data"):
            (self.scratch / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.scratch / "config/imas/imas.toml").write_text(f"candidates = {json.dumps(SIX)}\n")
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.scratch),
            "LC_ALL": "C",
            "XDG_RUNTIME_DIR": str(self.scratch / "run"),
            "XDG_CONFIG_HOME": str(self.scratch / "config"),
            "XDG_DATA_HOME": str(self.scratch / "data"),
            "IMAS_LIB_DIR": str(self.lib),
            "IMAS_POLICY": "paper",  # its number of trials is known beforehand, and so is the kind of every start
            **({"IMAS_STORE": str(store)} if store else {}),
        }

    def call(self, *arguments, store=None, **options):
        """Runs imas; its standard output."""
        done = subprocess.run([self.imas, *map(str, arguments)], env=self.environment(store), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, **options)
        if done.returncode > 1:
            raise RuntimeError(f"imas {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def candidates(self):
        """Candidates that load here and change something: {name: variables by which they are preloaded by
        hand}."""
        listed = [one for one in json.loads(self.call("list", "--json"))["candidates"] if not one["runtime"]]
        preload = lambda c: {"LD_PRELOAD": c["library"]} if c["library"] else {}  # noqa: E731
        return {c["name"]: {**preload(c), **c["environment"]} for c in listed
                if c["available"] and (c["library"] or c["environment"])}

    def default_set(self):
        """Candidates of the default set that have a library, as in candidates()."""
        default = {c["name"] for c in json.loads(self.call("list", "--default", "--json"))["candidates"]}
        return {name: variables for name, variables in self.candidates().items()
                if name in default and "LD_PRELOAD" in variables}

    def library(self, name):
        """The library of the candidate of that name, whether it is in the default set or not."""
        return self.candidates()[name]["LD_PRELOAD"]
