#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/arm/run.py [--kernel 4k|16k|64k|5.10] [--limit MINUTES] [--at-once N] [--resume] [-k PART] [PART...]: the
build for arm64 on an emulated machine of that kind.

Boots a Debian's kernel under qemu-system-aarch64 with the files of a Debian and of this project, once for each part of
the project's own tests. None has pages of 64 KiB: that kernel is compiled from Debian's source. `make ARCH=arm64` has
built what is tested; the programs of the tests are compiled there. Emulated processors are some twenty times slower than
real ones, so no time is judged. Logs: build/test-arm-KERNEL-PART.console."""

import collections
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import runpy
import shutil
import subprocess
import sys

TESTS_FOLDER = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS_FOLDER / "testing"), str(TESTS_FOLDER / "machine")]
sys.dont_write_bytecode = True

import booted  # noqa: E402
import imas_testing  # noqa: E402
from emulated import HERE, KERNELS, PROJECT, boot, files, made_root, make_disk, newest  # noqa: E402
from imas_testing import check, finish, skipped, wanted  # noqa: E402

BUILD = PROJECT / "build/arm64"
TARGET = PROJECT / os.environ.get("CARGO_TARGET_DIR", "target") / "aarch64-unknown-linux-gnu"
TESTS = BUILD / "rust-tests.json"  # what cargo has printed (make rust-tests)

# Each part: the command, as a person would give it there.
IMAS = "target/release/imas"
PARTS = {
    "smoke": f"sh tests/arm/smoke {IMAS}",
    "tarball": "cd unpacked && sh ../tests/arm/smoke ./*/bin/imas",
    # The libraries and tools in C, compiled there by the same make; arch.mk says IMAS_BUILD.
    "native": f"make hook record tools && sh tests/arm/smoke {IMAS}",
    "record": f"python3 tests/record/run.py {IMAS}-lab",
    "musl": f"python3 tests/musl/run.py {IMAS}",
    "conformance": "tests/conformance/run --mode short",
    "hook": "python3 tests/hook/run.py -a jemalloc -a mimalloc",
    "preload": f"IMAS_TEST_PUBLISH={TARGET}/checked/examples/publish python3 tests/hook/preload.py",
    "compatibility": f"IMAS_LIB_DIR=$IMAS_BUILD/lib/imas tests/compatibility/run {IMAS} --quick --fresh --candidates jemalloc,mimalloc",
    "yama": f"python3 tests/arm/yama.py {IMAS}",
    "instructions": "python3 tests/arm/counted.py",
}
RUST = 'cd {}; for test in {}; do echo "== $test"; $test {} || broken=1; done; test -z "$broken"'
# Tests in Rust that would fail there, by the folder of their crate: a part of the name, and why.
LEFT_OUT = {"imas": {"programs::java": "the root lacks that program"},
            "imas-linux": {"package::tests::a_packaged_file": "dpkg knows no package of the root: they are unpacked alone"}}
COPIED = ["abi", "allocators/glue", "allocators/catalogue.toml", "allocators/lib", "hook", "record", "tests", "bench", "crates",
          "docs", "fleet/nats", "packaging", "system", "Cargo.toml", "Makefile"]
PROGRAMS = ["imas", "imasd", "imas-top", "imas-lab"]
INSTRUCTIONS = re.compile(r"^(.+): ([\d.]+) instructions$", re.M)
MOST = 2  # times the instructions of this machine
count = runpy.run_path(str(HERE.parent / "count"))["count"]


def in_the_way():
    """Why it cannot run here; None: it can."""
    for tool in ("qemu-system-aarch64", "debootstrap", "cpio", "mke2fs"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (make arm-test installs it)"
    if not (BUILD / "lib/imas/libimas-guard.so").exists():
        return "there is no build for arm64 (make ARCH=arm64)"
    return None


def tarball():
    return newest("imas-*-arm64.tar.gz")


def of_cargo():
    """What cargo has built for the tests: the folder of the package, whether it is tests, and the program."""
    messages = map(json.loads, TESTS.read_text().splitlines() if TESTS.exists() else [])
    return [(pathlib.Path(message["manifest_path"]).parent, message["profile"]["test"], pathlib.Path(message["executable"]))
            for message in messages if message.get("executable")]


def rust_parts():
    """A part for each crate: its tests, started in its folder, as cargo does."""
    tests = collections.defaultdict(list)
    for folder, is_test, program in of_cargo():
        if is_test:
            tests[folder].append(str(program))
    parts = {}
    for folder, programs in tests.items():
        less = " ".join(f"--skip {test}" for test in LEFT_OUT.get(folder.name, {}))
        parts[f"rust:{folder.name}"] = RUST.format(folder, " ".join(programs), less)
    return parts or {"rust": ""}


def lacking(name):
    """Why the part cannot run; None: it can."""
    if name == "tarball" and tarball() is None:
        return "there is none for arm64 (make ARCH=arm64 tarball)"
    if name in ("rust", "preload") and not TESTS.exists():
        return "there are no tests in Rust for arm64 (make ARCH=arm64 rust-tests)"
    return None


def in_root(root, file):
    """The same place in the machine: programs that cargo has built name others by their place."""
    return root / file.relative_to("/")


def equip(root, parts, limit_s):
    """The files of the project that the parts need; `parts`: the command of each, which has so many seconds."""
    project = in_root(root, PROJECT)
    for name in COPIED:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, project / name, symlinks=True)
        else:
            shutil.copy2(PROJECT / name, project / name)
    for name in ("lib", "sbin"):
        shutil.copytree(BUILD / name, project / "build" / name, symlinks=True)
    (project / "target/release").mkdir(parents=True)
    for name in PROGRAMS:
        if (TARGET / "release" / name).exists():
            shutil.copy2(TARGET / "release" / name, project / "target/release" / name)
    for _, _, program in of_cargo() if any(name.startswith(("rust", "preload")) for name in parts) else []:
        in_root(root, program.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, in_root(root, program))
    if "tarball" in parts:
        (project / "unpacked").mkdir()
        subprocess.run(["tar", "-xzf", tarball(), "-C", project / "unpacked"], check=True)
    (root / "imas/project").symlink_to(PROJECT)
    (root / "imas/parts").write_text("".join(f"{name} {limit_s} {command}\n" for name, command in parts.items()))
    shutil.copy2(HERE / "init", root / "imas/init")
    (root / "imas/init").chmod(0o755)


def side_by_side(output):
    """Prints what was counted there beside what is counted of the same programs here."""
    here = dict(INSTRUCTIONS.findall(imas_testing.run(sys.executable, HERE / "counted.py", timeout=1800).stdout))
    for name, there in INSTRUCTIONS.findall(output):
        if name not in here:
            skipped(name, f"not counted on {platform.machine()}: tests/arm/counted.py shows why")
            continue
        print(f"  {name}: {there} instructions, on {platform.machine()} {here[name]}", flush=True)
        check(f"{name}: at most {MOST} times those of {platform.machine()}", float(there) <= MOST * float(here[name]), (there, here[name]))


def text_of(log):
    return log.read_text(errors="replace").replace("\r", "") if log.exists() else ""


def ended(name, log):
    """What the part printed, its status and its seconds; None: it did not come to its end."""
    found = re.search(rf"^imas: begin {name}\n(.*?)^imas: end {name} (\d+) (\d+)$", text_of(log), re.M | re.S)
    return found and found.groups()


def judge(name, log):
    """The part ran to its end, and says that all its checks passed."""
    for line in re.findall(r"^imas: pages of .*$", text_of(log), re.M):
        print(line)
    end = ended(name, log)
    if not check(f"{name} came to its end", end is not None, text_of(log)[-2000:]):
        return
    output, status, seconds = end
    for line in re.findall(r"^.*(?:SKIPPED|FAILED|panicked).*$", output, re.M):
        print(f"  {line[:200]}")
    passed, failed, left_out = count(output)
    print(f"{name}: {passed} passed, {failed} failed, {left_out} skipped; {seconds} s", flush=True)
    check(name, status == "0" and failed == 0, output[-6000:])
    if name == "instructions":
        side_by_side(output)


def run_parts(parts, options, made, processor):
    """Each part in a boot of its own: one that takes the machine down ends no other."""
    logs = {name: PROJECT / f"build/test-arm-{options.kernel}-{name.replace(':', '-')}.console" for name in parts}
    due = {name: command for name, command in parts.items() if not (options.resume and ended(name, logs[name]))}
    for name in (name for name in parts if name not in due):
        judge(name, logs[name])
    if not due:
        return
    with files(made) as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        equip(folder / "root", due, options.limit * 60)
        disk = make_disk(folder)
        boots = {pool.submit(boot, made, processor, disk, logs[name], options.limit * 60 + 600, part=name): name for name in due}
        for done in concurrent.futures.as_completed(boots):
            done.result()
            judge(boots[done], logs[boots[done]])


def chosen(parser, words):
    """The commands of the parts that are asked for, in that order."""
    known = {**PARTS, **rust_parts()}
    if unknown := set(words) - {*known, "machine"}:
        parser.error(f"no part is named {', '.join(sorted(unknown))}: {' '.join(known)} machine")
    return {name: known[name] for name in words or known if name != "machine" and wanted(name)}


def main():
    parser = imas_testing.Arguments(__doc__)
    parser.add_argument("--kernel", choices=KERNELS, default="4k", help="by the size of its pages, or the oldest that IMAS serves")
    parser.add_argument("--resume", action="store_true", help="what came to its end in an earlier run is not run again")
    parser.add_argument("--limit", type=int, default=180, metavar="MINUTES", help="of each part; then it is ended and judged")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="machines at a time: many parts use one processor")
    parser.add_argument("part", nargs="*", help="only these, in this order")
    options = parser.parse_args()
    if why := in_the_way():
        skipped("arm", why)
        finish("arm")
    suite, kernel, processor = KERNELS[options.kernel]
    made = made_root(suite, kernel)
    parts = chosen(parser, options.part)
    for name in [name for name in parts if lacking(name)]:
        skipped(name, lacking(name))
        del parts[name]
    for crate, tests in LEFT_OUT.items():
        for test, why in tests.items() if f"rust:{crate}" in parts else []:
            skipped(test, why)
    run_parts(parts, options, made, processor)
    if not options.part or "machine" in options.part:
        imas_testing.case("machine", booted.run, made, processor)
    finish(f"arm {options.kernel}")


if __name__ == "__main__":
    main()
