#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/distributions/run.py [-k PART]: the packages on the C libraries of other distributions. In a root of each, the tarball
(and in one the rpm) is unpacked into a folder, and tests/arm/smoke runs python3 and sqlite3 under every candidate, tries,
measures, records and replays. Where glibc is older than the programs need, bundles that the tarball makes here run them.
`make tarball rpm` has made what is tested.

Needs root, debootstrap and the network, once for each root. What cannot be had prints SKIPPED and why."""

import pathlib
import platform
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "testing"))
sys.dont_write_bytecode = True

import distribution  # noqa: E402
import imas_testing  # noqa: E402
from imas_testing import Skipped, case, check, finish, run  # noqa: E402

ARCH = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}
LIMIT_S = 1800
# Distribution, suite, and what of the packages is unpacked there.
ROOTS = [
    ("Ubuntu", "bionic", "bundles"),  # 2.27
    ("Debian", "bullseye", "tarball"),  # 2.31
    ("Debian", "bookworm", "tarball"),  # 2.36
    ("Debian", "trixie", "tarball"),  # 2.41
    ("Debian", "trixie", "rpm"),
    ("Debian", "testing", "tarball"),
    ("Ubuntu", "jammy", "tarball"),  # 2.35
    ("Ubuntu", "noble", "tarball"),  # 2.39
    ("Ubuntu", "resolute", "tarball"),  # 26.04
]
# Fedora and its relatives have another package manager. Of theirs no root can be made here.
WITHOUT_ROOT = ["RHEL 8 (2.28)", "RHEL 9 (2.34)", "Fedora"]
FIND = """
word=/$(cd "$root" && ls mnt/*/bin/imas)"""
# What makes $word, that with which the script is started in the root.
UNPACK = {
    "tarball": 'tar -xzf "$1" -C "$root/mnt"' + FIND,
    "rpm": 'rpm2cpio "$1" | (cd "$root/mnt" && cpio --quiet -idm)' + FIND,
    "bundles": """
word=/mnt
mount -t proc proc /proc # imas runs out here, in the namespace of processes that is the root's
tar -xzf "$1" -C "$root/tmp"
imas=$(ls "$root"/tmp/*/bin/imas)
for name in $("$imas" list --json | python3 -c "$3"); do
    at=/mnt/$(echo "$name" | tr : -)
    "$imas" bundle "$name" --out "$root$at" --at "$at" >"$root/tmp/made" 2>&1 || { cat "$root/tmp/made"; exit 1; }
done""",
}
ENTER = """
cp "$2" "$root/mnt/script"
echo "libc: $(chroot "$root" getconf GNU_LIBC_VERSION)"
exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 sh -c 'cd /mnt && exec sh script "$1"' sh "$word"
"""
# The candidates that can be bundled: all but settings of runtimes, the machine's own packages, and none at all.
NAMES = """
import json, sys
for one in json.load(sys.stdin)["candidates"]:
    if one["available"] and not one["runtime"] and one["name"] != "system" and not one["name"].startswith("distro-"):
        print(one["name"])
"""


def package(kind):
    """The newest package of the kind for this machine."""
    debian, rpm = ARCH[platform.machine()]
    kind = "rpm" if kind == "rpm" else "tarball"
    pattern = {"tarball": f"imas-*-{debian}.tar.gz", "rpm": f"imas-[0-9]*.{rpm}.rpm"}[kind]
    found = sorted((PROJECT / "build/package").glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Skipped(f"there is no {kind} (make {kind})")
    return found[-1]


def tried(label, suite, kind):
    archive = package(kind)
    root, why = distribution.root(label, suite, "python3", "sqlite3")
    if root is None:
        raise Skipped(why)
    script = HERE / "bundled" if kind == "bundles" else HERE.parent / "arm/smoke"
    ended = run(*distribution.words_inside(root, UNPACK[kind] + ENTER, archive, script, NAMES), timeout=LIMIT_S)
    libc = re.search(r"^libc: (.*)$", ended.stdout, re.M)
    counts = re.findall(r"^(?:smoke|bundled): .*$", ended.stdout, re.M)
    print(f"{label} {suite}, {kind}: {libc[1] if libc else 'no libc'}; {counts[-1] if counts else 'no counts'}", flush=True)
    check(f"{label} {suite} {kind}: programs as untouched", ended.returncode == 0 and counts, ended.stdout[-3000:] + ended.stderr[-2000:])


def main():
    imas_testing.Arguments(__doc__).parse_args()
    for label, suite, kind in ROOTS:
        case(f"{label} {suite} {kind}", tried, label, suite, kind)
    for name in WITHOUT_ROOT:
        if imas_testing.wanted(name):
            imas_testing.skipped(name, "debootstrap makes roots of Debian and its relatives alone; packaging/lowest-glibc checks the symbols")
    finish("distributions")


if __name__ == "__main__":
    main()
