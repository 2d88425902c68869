#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/arm/quick.py [-k PART]: the libraries for arm64 under qemu's emulation of one process: two real programs under the
guard, the hook and the recorder, with glibc's malloc and with mimalloc, and a program of musl under what is built for it. `make
arm-test` is the whole test."""

import os
import pathlib
import shutil
import struct
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "testing"), str(HERE.parent / "hook")]
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
import page  # noqa: E402
from imas_testing import Skipped, check, finish, run, skipped  # noqa: E402

BUILD = PROJECT / "build/arm64"
LIB = BUILD / "lib/imas"
QEMU, CC = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"
CONTROL_MAGIC, RAW_MAGIC, RECORD_VERSION = 0x314C544352414D49, 0x3157415252414D49, 2
CONTROL_BYTES = HEADER_BYTES = 4096

PROGRAMS = {
    "python3": ["usr/bin/python3", "-c", "import json, os; print(len(json.dumps(list(range(100000)))), "
                "[name for name in os.environ if name.startswith(('IMAS', 'LD_'))])"],
    "sqlite3": ["usr/bin/sqlite3", ":memory:", "create table t(a); with recursive n(i) as (select 1 union all select i + 1 from n "
                "where i < 5000) insert into t select i from n; select count(*), sum(a) from t;"],
    # What a function of any number of arguments is given lies elsewhere than on x86. `env` is this machine's.
    "execle": ["usr/bin/python3", "-c", "import ctypes, os\nos.fork() or ctypes.CDLL(None).execle(b'/usr/bin/env', b'env', "
               "None, (ctypes.c_char_p * 2)(b'A=1', None))\nos.wait()"],
}


def in_the_way():
    """Why it cannot run here; None: it can."""
    for tool in (QEMU, CC, "debootstrap"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return None


def build(launch):
    """What is tested, and the launcher of the hook's tests for this machine."""
    cross = {**os.environ, "CC": CC, "CXX": CC.replace("gcc", "g++"), "BUILD": str(BUILD), "IMAS_BUILD": str(BUILD)}
    for folder in ("hook", "record"):
        run("make", "--no-print-directory", "-C", PROJECT / folder, env=cross, must=True)
    run(PROJECT / "allocators/build.sh", "--strict", "mimalloc", env=cross, must=True)
    launch.parent.mkdir(parents=True, exist_ok=True)
    run("gcc", "-std=gnu11", "-o", launch, HERE.parent / "hook/launch.c", must=True)


def emulated(root, words):
    # With qemu, the files of the root are looked for first, then this machine's.
    return [QEMU, "-L", root, root / words[0], *words[1:]]


def starts(root, launch, folder):
    """Each program is the same as untouched, and its page says who served it."""
    for name, words in PROGRAMS.items():
        plain = run(*emulated(root, words), must=True)
        for kind, library in [("guard", LIB / "libimas-guard.so"), ("trial", LIB / "libimas.so")]:
            for allocator in ("system", "mimalloc"):
                label = f"{name} {kind} {allocator}"
                more = [] if allocator == "system" else [LIB / f"allocators/lib{allocator}.so"]
                at = folder / "page"
                flags = ["-g"] if kind == "guard" else []
                ended = run(launch, *flags, "-p", at, "-l", ":".join(map(str, [library, *more])), "--", *emulated(root, words))
                check(f"{label}: as untouched", ended == plain and ended.stderr == plain.stderr, ended)
                left = page.read(at)
                served = "libc.so.6" if allocator == "system" else allocator
                check(f"{label}: served", left["served"].startswith(served), left["served"])
                if kind == "trial":
                    check(f"{label}: counted", left["state"] == "TRIAL" and left["clean_exit"] == 1, left["state"])
                at.unlink()


def recording(root, folder):
    """A process writes its calls down; addresses of 48 bits are no reason to refuse."""
    control = folder / "control"
    control.write_bytes(struct.pack("=QIIQQQIIQ", CONTROL_MAGIC, RECORD_VERSION, 0, 1 << 30, 0, 0, 0, 0, 0).ljust(CONTROL_BYTES, b"\0"))
    words = PROGRAMS["sqlite3"]
    plain = run(*emulated(root, words), must=True)
    variables = {**os.environ, "LD_PRELOAD": str(LIB / "libimas-record.so"), "IMAS_PAGE": str(control), "IMAS_UNSET": "LD_PRELOAD"}
    ended = run(*emulated(root, words), env=variables)
    check("recorded: as untouched", ended == plain and ended.stderr == plain.stderr, ended)
    raw = [path for path in folder.iterdir() if path != control]
    if not check("recorded: one raw file", len(raw) == 1, raw):
        return
    content = raw[0].read_bytes()
    magic, version = struct.unpack_from("=QI", content)
    words = struct.unpack_from("=1000Q", content, HEADER_BYTES)
    check("recorded: calls", (magic, version) == (RAW_MAGIC, RECORD_VERSION) and all(words), words[:10])


def of_musl(folder):
    """A program of musl is the same as untouched, its malloc is the allocator's, and its children start clean."""
    program, compiler = folder / "work", BUILD / "allocators/musl/libc/bin/musl-gcc"
    if not compiler.exists():
        raise Skipped("nothing is built for musl on arm64 (make ARCH=arm64 musl)")
    run(compiler, "-O1", "-fno-builtin", "-pthread", "-o", program, HERE.parent / "musl/work.c", must=True)
    plain = run(QEMU, program, must=True)
    for allocator in sorted((LIB / "musl/allocators").glob("lib*.so")):
        preload = {"PATH": os.environ["PATH"], "LD_PRELOAD": f"{LIB}/musl/libimas-guard.so:{allocator}", "IMAS_UNSET": "LD_PRELOAD"}
        ended = run(QEMU, program, "children", env=preload)
        check(f"musl: {allocator.name}: as untouched, children clean", ended.stdout == f"{plain.stdout}malloc: {allocator}\nclean\n", ended)


def main():
    imas_testing.Arguments(__doc__).parse_args()
    if why := in_the_way():
        skipped("arm-quick", why)
        finish("arm-quick")
    made = run(HERE / "root", "bookworm", timeout=1800)
    if made.returncode != 0:
        skipped("arm-quick", made.stderr.strip()[-400:])
        finish("arm-quick")
    root = pathlib.Path(made.stdout.split()[-1]) / "root"
    launch = PROJECT / "build/tests/arm/launch"
    imas_testing.case("build", build, launch)
    with tempfile.TemporaryDirectory(prefix="imas-arm-") as folder:
        imas_testing.case("starts", starts, root, launch, pathlib.Path(folder))
    with tempfile.TemporaryDirectory(prefix="imas-arm-") as folder:
        imas_testing.case("recording", recording, root, pathlib.Path(folder))
    with tempfile.TemporaryDirectory(prefix="imas-arm-") as folder:
        imas_testing.case("musl", of_musl, pathlib.Path(folder))
    finish("arm-quick")


if __name__ == "__main__":
    main()
