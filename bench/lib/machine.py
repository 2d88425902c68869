# SPDX-License-Identifier: Apache-2.0
"""When and on what machine the figures were measured. No names: the kind of machine matters."""

import datetime
import os
import platform
import subprocess
from pathlib import Path


def _cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _virtual():
    flags = Path("/proc/cpuinfo").read_text()
    return "virtual" if " hypervisor" in flags else "bare metal"


def _memory_gib():
    first = Path("/proc/meminfo").read_text().splitlines()[0]
    return round(int(first.split()[1]) / 2**20)


def _version(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else "none"


def description():
    """Four lines about time and place: date, machine, system, load."""
    load = os.getloadavg()[0]
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return "\n".join([
        f"date     {today}",
        f"machine  {_cpu()}, {os.cpu_count()} CPUs, {_memory_gib()} GiB, {_virtual()}",
        f"system   Linux {platform.release()}, glibc {platform.libc_ver()[1]}, {_version('gcc', '--version')}",
        f"load     {load:.2f} at the start" + (" (busy: timed figures will be wide)" if load > 0.8 else ""),
    ])
