# SPDX-License-Identifier: Apache-2.0
"""Where everything is: the tree, the imas under test, its libraries, the benchmarks' own programs and scratch."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
OUT = ROOT / "build" / "bench"

# product -> (source, flags)
PROGRAMS = {
    "spawn": ("bench/src/spawn.c", []),
    "count": ("bench/src/count.c", ["-static"]),
    "unveil.so": ("bench/src/unveil.c", ["-shared", "-fPIC"]),
    "resident": ("bench/src/resident.c", []),
    "pairs": ("bench/hook/pairs.c", []),
    "launch": ("tests/hook/launch.c", []),
    "untake": ("bench/src/untake.c", []),
    "lookup": ("tests/hook/lookup.c", [str(ROOT / f"hook/{name}.c") for name in ("index", "table", "given", "sample")]),
}


class Place:
    """An imas and a scratch folder of its own: neither the user's store nor the user's settings are touched."""

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
        for folder in (self.scratch, self.disk):
            shutil.rmtree(folder, ignore_errors=True)

    def _build(self):
        OUT.mkdir(parents=True, exist_ok=True)
        for product, (source, flags) in PROGRAMS.items():
            command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", *flags]
            subprocess.run([*command, "-o", OUT / product, ROOT / source], check=True)

    def program(self, name):
        return str(OUT / name)

    def environment(self, store=None):
        """PATH and what keeps imas within the scratch folder."""
        for folder in ("run", "config", "data"):
            (self.scratch / folder).mkdir(mode=0o700, exist_ok=True)
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.scratch),
            "LC_ALL": "C",
            "XDG_RUNTIME_DIR": str(self.scratch / "run"),
            "XDG_CONFIG_HOME": str(self.scratch / "config"),
            "XDG_DATA_HOME": str(self.scratch / "data"),
            "IMAS_LIB_DIR": str(self.lib),
            "IMAS_POLICY": "paper",  # its number of trials is known beforehand, so every start measured is what it is taken for
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
        """Those that load here and change something: {name: variables by which they are preloaded by hand}."""
        listed = json.loads(self.call("list", "--json"))["candidates"]
        preload = lambda c: {"LD_PRELOAD": c["library"]} if c["library"] else {}  # noqa: E731
        return {c["name"]: {**preload(c), **c["environment"]} for c in listed
                if c["available"] and (c["library"] or c["environment"])}

    def default_allocators(self):
        """Name and library of the four that are tested by default."""
        listed = self.candidates()
        return {name: listed[name]["LD_PRELOAD"] for name in ("jemalloc", "tcmalloc", "hoard", "mimalloc") if name in listed}
