# SPDX-License-Identifier: Apache-2.0
"""Exact user-mode instructions of a program, by cachegrind, which, unlike memcheck, does not replace malloc.

It needs no hardware counter and has no noise: the same run gives the same count, within a few instructions that
depend on addresses and process ids. The kernel's instructions are not counted. src/count.c and src/unveil.c show how
trial mode is counted although libimas.so does nothing under valgrind.
"""

import glob
import os
import platform
import re
import subprocess
import tempfile

TOOL = "cachegrind-amd64-linux" if platform.machine() == "x86_64" else "cachegrind-arm64-linux"
FOLDERS = ["/usr/libexec/valgrind", "/usr/lib/valgrind", "/usr/local/libexec/valgrind", "/usr/lib/*/valgrind"]


def _tool():
    found = [path for folder in FOLDERS for path in glob.glob(os.path.join(folder, TOOL))]
    if not found:
        raise RuntimeError("valgrind is missing (run 'make setup-test')")
    return found[0]


def count(place, command, environment, drive=None):
    """Instructions of the last image that the command's process execs."""
    tool = _tool()
    environment = {**environment, "BENCH_VALGRIND_TOOL": tool, "VALGRIND_LIB": os.path.dirname(tool)}
    with tempfile.NamedTemporaryFile(dir=place.scratch) as log:
        options = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--trace-children=yes"]
        child = subprocess.Popen([place.program("count"), *options, f"--log-file={log.name}", *command],
                                 env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if drive:
            drive()
        if child.wait() != 0:
            raise RuntimeError(f"{command}: ended with {child.returncode} under cachegrind")
        text = log.read().decode()  # each exec begins the file anew
    counts = re.findall(r"I\s+refs:\s+([\d,]+)", text)
    if len(counts) != 1:
        raise RuntimeError(f"{command}: {len(counts)} counts where one was expected")
    return int(counts[0].replace(",", ""))
