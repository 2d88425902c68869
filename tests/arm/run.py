#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/arm/run.py [--kernel 4k|16k] [-k PART]: the build for arm64 on an emulated machine of that kind.

Boots a Debian's kernel under qemu-system-aarch64 with the files of a Debian and of this project, and runs the project's
own tests there. `make ARCH=arm64` has built what is tested; the programs of the tests are compiled there. Emulated
processors are some twenty times slower than real ones, so no time is judged."""

import collections
import contextlib
import json
import os
import pathlib
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "testing"))
sys.dont_write_bytecode = True

import imas_testing  # noqa: E402
from imas_testing import check, finish, skipped, wanted  # noqa: E402

PROJECT = HERE.parent.parent
BUILD = PROJECT / "build/arm64"
TARGET = PROJECT / os.environ.get("CARGO_TARGET_DIR", "target") / "aarch64-unknown-linux-gnu"
TESTS = BUILD / "rust-tests.json"  # what cargo has printed (make rust-tests)
LIMIT_S = 3 * 3600  # of a part
DISK_MIB = 6000

# Debian's suite, the package of the kernel, and a processor that has pages of that size.
KERNELS = {"4k": ("bookworm", "linux-image-cloud-arm64", "cortex-a72"), "16k": ("trixie", "linux-image-arm64-16k", "max")}

# Each part: the command, as a person would give it there.
IMAS = "target/release/imas"
PARTS = {
    "smoke": f"sh tests/arm/smoke {IMAS}",
    "tarball": "cd unpacked && sh ../tests/arm/smoke ./*/bin/imas",
    "record": f"python3 tests/record/run.py {IMAS}",
    "conformance": "tests/conformance/run --mode short",
    "hook": "python3 tests/hook/run.py -a jemalloc -a mimalloc",
    "preload": f"IMAS_TEST_PUBLISH={TARGET}/checked/examples/publish python3 tests/hook/preload.py",
    "compatibility": f"IMAS_LIB_DIR=$IMAS_BUILD/lib/imas tests/compatibility/run {IMAS} --quick --fresh --candidates jemalloc,mimalloc",
    "instructions": "python3 tests/arm/counted.py",
}
RUST = 'cd {}; for test in {}; do echo "== $test"; $test {} || broken=1; done; test -z "$broken"'
LEFT_OUT = {"imas": "programs::java"}  # a test of a program that the root lacks
COPIED = ["abi", "allocators/glue", "allocators/catalogue.toml", "allocators/lib", "hook", "record", "tests", "bench", "crates",
          "docs", "packaging", "Cargo.toml"]
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
    """The newest one for arm64; None: there is none."""
    found = sorted((PROJECT / "build/package").glob("imas-*-arm64.tar.gz"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


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
        less = f"--skip {LEFT_OUT[folder.name]}" if folder.name in LEFT_OUT else ""
        parts[f"rust:{folder.name}"] = RUST.format(folder, " ".join(programs), less)
    return parts or {"rust": ""}


def lacking(name):
    """Why the part cannot run; None: it can."""
    if name == "tarball" and tarball() is None:
        return "there is none for arm64 (make ARCH=arm64 tarball)"
    if name in ("rust", "preload") and not TESTS.exists():
        return "there are no tests in Rust for arm64 (make ARCH=arm64 rust-tests)"
    return None


def made_root(suite, kernel):
    made = imas_testing.run(HERE / "root", suite, kernel, timeout=1800)
    if made.returncode != 0:
        skipped("arm", made.stderr.strip()[-400:])
        finish("arm")
    return pathlib.Path(made.stdout.split()[-1])


def in_root(root, file):
    """The same place in the machine: programs that cargo has built name others by their place."""
    return root / file.relative_to("/")


def equip(root, parts):
    """The files of the project that the parts need; `parts`: the command of each."""
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
    (root / "imas/parts").write_text("".join(f"{name} {LIMIT_S} {command}\n" for name, command in parts.items()))
    shutil.copy2(HERE / "init", root / "imas/init")
    (root / "imas/init").chmod(0o755)


def boot(made, processor, folder, log, limit_s):
    """Boots the machine from a disk of the folder, and returns when it has turned itself off or the time is up."""
    disk = folder / "disk"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", folder / "root", disk, f"{DISK_MIB}M"], check=True)
    command = ["qemu-system-aarch64", "-M", "virt", "-cpu", processor, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "3072",
               "-nographic", "-no-reboot", "-net", "none", "-kernel", made / "kernel", "-initrd", made / "first.gz",
               "-append", "console=ttyAMA0 quiet panic=-1", "-drive", f"file={disk},format=raw,if=none,id=disk",
               "-device", "virtio-blk-device,drive=disk"]
    with log.open("wb") as console:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=limit_s, check=False)


def side_by_side(output):
    """Prints what was counted there beside what is counted of the same programs here."""
    here = dict(INSTRUCTIONS.findall(imas_testing.run(sys.executable, HERE / "counted.py", timeout=1800).stdout))
    for name, there in INSTRUCTIONS.findall(output):
        if name not in here:
            skipped(name, f"not counted on {platform.machine()}: tests/arm/counted.py shows why")
            continue
        print(f"  {name}: {there} instructions, on {platform.machine()} {here[name]}", flush=True)
        check(f"{name}: at most {MOST} times those of {platform.machine()}", float(there) <= MOST * float(here[name]), (there, here[name]))


def judge(parts, text):
    """Each part ran to its end, and says that all its checks passed."""
    for line in re.findall(r"^imas: pages of .*$", text, re.M):
        print(line)
    for name in parts:
        found = re.search(rf"^imas: begin {name}\r?\n(.*?)^imas: end {name} (\d+) (\d+)", text, re.M | re.S)
        if not check(f"{name} came to its end", found is not None, text[-2000:]):
            continue
        output, status, seconds = found.group(1).replace("\r", ""), found.group(2), found.group(3)
        for line in re.findall(r"^.*(?:SKIPPED|FAILED|panicked).*$", output, re.M):
            print(f"  {line[:200]}")
        passed, failed, left_out = count(output)
        print(f"{name}: {passed} passed, {failed} failed, {left_out} skipped; {seconds} s", flush=True)
        check(name, status == "0" and failed == 0, output[-6000:])
        if name == "instructions":
            side_by_side(output)


def main():
    parser = imas_testing.Arguments(__doc__)
    parser.add_argument("--kernel", choices=KERNELS, default="4k", help="the size of its pages")
    options = parser.parse_args()
    if why := in_the_way():
        skipped("arm", why)
        finish("arm")
    suite, kernel, processor = KERNELS[options.kernel]
    made = made_root(suite, kernel)
    parts = {name: command for name, command in {**PARTS, **rust_parts()}.items() if wanted(name)}
    for name in [name for name in parts if lacking(name)]:
        skipped(name, lacking(name))
        del parts[name]
    for crate, test in LEFT_OUT.items():
        if f"rust:{crate}" in parts:
            skipped(test, "the root lacks that program")
    if not parts:
        finish(f"arm {options.kernel}")
    log = PROJECT / f"build/test-arm-{options.kernel}.console"
    with tempfile.TemporaryDirectory(prefix="imas-arm-", dir=PROJECT / "build") as folder:
        folder = pathlib.Path(folder)
        subprocess.run(["cp", "-a", made / "root", folder / "root"], check=True)
        equip(folder / "root", parts)
        boot(made, processor, folder, log, 1800 + LIMIT_S * len(parts))
    judge(parts, log.read_text(errors="replace"))
    finish(f"arm {options.kernel}")


if __name__ == "__main__":
    main()
