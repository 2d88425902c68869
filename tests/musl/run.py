#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/musl/run.py IMAS [-k PART]: programs of musl under the allocators that are built for it: the same output as untouched, a
clean environment for children, settings that arrive, a comparison from outside, and a bundle in a root that has musl
alone. `make musl` has built what is tested. Without musl-gcc, or as another user than root, it says what it leaves out."""

import functools
import json
import os
import pathlib
import platform
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "testing"))
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
from imas_testing import Failed, Skipped, case, check, finish, run, skipped  # noqa: E402

LIB = PROJECT / "build/lib/imas"
BUILT = LIB / "musl"
ALLOCATORS = ("jemalloc", "mimalloc", "snmalloc")
LOADER = pathlib.Path(f"/lib/ld-musl-{platform.machine()}.so.1")
# A real program of musl: SQLite, whose source comes with the crate that IMAS is built with.
SQLITE_MAIN = r"""
#include "sqlite3.h"
#include <stdio.h>
static int row(void *unused, int count, char **values, char **names) {
    (void)unused, (void)names;
    for (int i = 0; i < count; i++) printf("%s%c", values[i], i + 1 < count ? '|' : '\n');
    return 0;
}
int main(int count, char **words) {
    sqlite3 *db;
    char *error = 0;
    if (count < 2 || sqlite3_open(":memory:", &db) || sqlite3_exec(db, words[1], row, 0, &error))
        return printf("error: %s\n", error ? error : "open"), 1;
    return sqlite3_close(db) != SQLITE_OK;
}
"""
SQL = ("create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<20000) "
       "insert into t select i, hex(i*i) from n; create index x on t(b); select count(*), sum(a), max(b) from t;")


def in_the_way():
    """Why it cannot run here; None: it can."""
    if shutil.which("musl-gcc") is None or not LOADER.exists():
        return "musl-gcc is not installed (make musl installs it)"
    for file in [BUILT / "libimas-guard.so", *(BUILT / f"allocators/lib{name}.so" for name in ALLOCATORS)]:
        if not file.exists():
            return f"{file} is missing (make musl)"
    return None


def sqlite_source():
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    found = sorted(home.glob("registry/src/*/libsqlite3-sys-*/sqlite3/sqlite3.c"))
    if not found:
        raise Skipped("the source of SQLite is not in cargo's registry (cargo fetch)")
    return found[-1].parent


class Tests:
    def __init__(self, imas, work):
        self.imas, self.work = imas, work
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(work), "XDG_DATA_HOME": str(work / "data"),
                    "XDG_RUNTIME_DIR": str(work), "IMAS_LIB_DIR": str(LIB)}
        self.program = work / "work"
        run("musl-gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-pthread", "-o", self.program, HERE / "work.c", must=True)
        self.plain = run(self.program, env=self.env, must=True)
        if "wrong" not in self.plain.stdout or self.plain.stdout.count("wrong") != self.plain.stdout.count(" 0 wrong"):
            raise Failed(f"the program fails untouched: {self.plain}")

    def under(self, candidate, *words, **more):
        return run(self.imas, "run", "-v", "--candidate", candidate, "--", *words, env={**self.env, **more})

    def serves(self, allocator):
        ended = self.under(allocator, self.program)
        check(f"{allocator}: as untouched", ended == self.plain, ended)
        said = self.under(allocator, self.program, "children").stdout.splitlines()
        file = BUILT / f"allocators/lib{allocator}.so"
        check(f"{allocator}: malloc is its", f"malloc: {file}" in said, said)
        check(f"{allocator}: children start clean", said[-1:] == ["clean"], said)

    def settings(self):
        """An allocator reads its settings, then they are as the user had them."""
        for given, left in [({}, "clean"), ({"MALLOC_CONF": "narenas:2"}, "MALLOC_CONF=narenas:2")]:
            ended = self.under("jemalloc?narenas:1", self.program, "children", **given)
            check(f"settings beside {given}: as untouched", ended.stdout.startswith(self.plain.stdout) and ended.returncode == 0, ended)
            check(f"settings beside {given}: taken away", ended.stdout.splitlines()[-1:] == [left], ended)

    def left_alone(self):
        for candidate, why in [("glibc:lean", "for programs of glibc alone"), ("hoard", "is missing")]:
            ended = self.under(candidate, self.program)
            check(f"{candidate}: untouched, and it is said why", ended == self.plain and why in ended.stderr, ended)
        ended = run(self.imas, "run", "-v", "--", self.program, env=self.env)
        check("without a candidate by name: untouched", ended == self.plain and "not glibc" in ended.stderr, ended)
        ended = run(self.imas, "run", "-v", "--follow", "--candidate", "jemalloc", "--", self.program, env=self.env)
        check("--follow: untouched", ended == self.plain and "--follow" in ended.stderr, ended)
        static = self.work / "static"
        run("musl-gcc", "-static", "-O1", "-fno-builtin", "-pthread", "-o", static, HERE / "work.c", must=True)
        ended = self.under("jemalloc", static)
        check("static: untouched", ended == self.plain and "statically linked" in ended.stderr, ended)

    def compared(self):
        file = self.work / "bench.json"
        names = ",".join([*ALLOCATORS, "hoard", "jemalloc?narenas:1"])
        ended = run(self.imas, "bench", "-n", "3", "--with", names, "--export-json", file, "--", self.program, "child", env=self.env)
        check("bench: it ends well", ended.returncode == 0, ended)
        found = json.loads(file.read_text())["candidates"]
        usable = {one["name"] for one in found if one["available"]}
        check("bench: those that are built are compared with system, and hoard is not", usable == {"system", *ALLOCATORS, "jemalloc?narenas:1"}, found)
        check("bench: a child of glibc starts", all(one["ineligible"] is None for one in found if one["available"]), found)

    def pinned(self):
        run(self.imas, "pin", self.program, "mimalloc", env=self.env, must=True)
        said = run(self.imas, "run", "--", self.program, "children", env=self.env).stdout
        check("a pin is followed", f"malloc: {BUILT}/allocators/libmimalloc.so" in said.splitlines(), said)
        shown = run(self.imas, "explain", self.program, env=self.env)
        check("a pin is shown", "pinned" in shown.stdout and "mimalloc" in shown.stdout, shown)
        run(self.imas, "exclude", "add", self.program, env=self.env, must=True)
        said = run(self.imas, "run", "--", self.program, "children", env=self.env).stdout
        check("a pin goes before an exclusion", f"malloc: {BUILT}/allocators/libmimalloc.so" in said.splitlines(), said)
        run(self.imas, "unpin", self.program, env=self.env, must=True)
        ended = run(self.imas, "run", "--", self.program, env=self.env)
        check("an exclusion: untouched", ended == self.plain, ended)
        run(self.imas, "exclude", "remove", self.program, env=self.env, must=True)

    def sqlite(self):
        source = sqlite_source()
        main, program = self.work / "main.c", self.work / "sqlite"
        main.write_text(SQLITE_MAIN)
        run("musl-gcc", "-O1", "-w", "-DSQLITE_OMIT_LOAD_EXTENSION", f"-I{source}", "-pthread", "-o", program, main, source / "sqlite3.c",
            must=True, timeout=900)
        plain = run(program, SQL, env=self.env, must=True)
        for allocator in ALLOCATORS:
            ended = self.under(allocator, program, SQL)
            check(f"sqlite under {allocator}: as untouched", ended == plain and not ended.stderr.count("rror"), ended)

    def bundle(self):
        """In a root with musl's loader and the program alone, as an image of Alpine has them."""
        if os.geteuid() != 0:
            raise Skipped("root alone can enter a root")
        for allocator in ALLOCATORS:
            root = self.work / f"root-{allocator}"
            for folder in ("lib", "opt", "proc", "dev", "tmp"):
                (root / folder).mkdir(parents=True)
            shutil.copy(LOADER.resolve(), root / "lib" / LOADER.name)
            shutil.copy(self.program, root / "work")
            run(self.imas, "bundle", allocator, "--musl", "--out", root / "opt/imas", env=self.env, must=True)
            variables = dict(line.split("=", 1) for line in (root / "opt/imas/imas.env").read_text().splitlines())
            # Entered by this process: chroot(1) is a program of glibc, which would have the variables too.
            inside = functools.partial(os.chroot, root)
            plain = run("/work", env={}, preexec_fn=inside)
            ended = run("/work", env=variables, preexec_fn=inside)
            check(f"bundle of {allocator}: as untouched", plain.returncode == 0 and ended == plain and not ended.stderr, ended)
            listed = run("/work", "children", env=variables, preexec_fn=inside)
            check(f"bundle of {allocator}: it serves", f"malloc: /opt/imas/lib{allocator}.so" in listed.stdout, listed)


def main():
    parser = imas_testing.Arguments(__doc__)
    parser.add_argument("imas", type=pathlib.Path)
    options = parser.parse_args()
    if why := in_the_way():
        skipped("musl", why)
        finish("musl")
    with tempfile.TemporaryDirectory(prefix="imas-musl-") as folder:
        tests = Tests(options.imas.resolve(), pathlib.Path(folder))
        for allocator in ALLOCATORS:
            case(f"serves {allocator}", tests.serves, allocator)
        case("settings", tests.settings)
        case("left alone", tests.left_alone)
        case("compared", tests.compared)
        case("pinned", tests.pinned)
        case("sqlite", tests.sqlite)
        case("bundle", tests.bundle)
    finish("musl")


if __name__ == "__main__":
    main()
