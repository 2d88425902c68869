# SPDX-License-Identifier: Apache-2.0
"""The symbol versions that our libraries ask for: none newer than symbol-versions says."""

import re
import subprocess

from harness import HERE, LIB, check, wanted


def number(name):
    return tuple(map(int, re.findall(r"\d+", name)))


def allowed():
    lines = (line.split() for line in (HERE / "symbol-versions").read_text().splitlines() if not line.startswith("#"))
    return {library: number(version) for library, version in lines}


def newest(library):
    """The newest GLIBC version among the names that the library does not define, as numbers."""
    symbols = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    return max(map(number, re.findall(r"GLIBC_[0-9.]+", symbols)), default=())


def versions():
    if not wanted("symbol versions"):
        return
    most = allowed()
    found = [*LIB.glob("*.so"), *LIB.glob("allocators/*.so")]
    check("symbol versions of something", len(found) > 5, found)
    for library in sorted(found):
        limit = most.get(library.name, most["*"])
        check(f"symbol versions {library.name}", newest(library) <= limit, f"{newest(library)}, allowed {limit}")
