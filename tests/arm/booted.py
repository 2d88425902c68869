# SPDX-License-Identifier: Apache-2.0
"""The emulated machine under systemd: tests/arm/with-systemd is run at each of three boots."""

import shutil
import subprocess

import imas_testing
import machine  # of tests/machine
from emulated import BOOT_LIMIT_S, HERE, PROJECT, boot, files, make_disk, newest
from imas_testing import Skipped, check

BOOTS, ENDS = 3, 4  # in the last boot two steps end
# Time that units have to start, where programs are some twenty times slower.
PATIENT = {"system.conf.d/slow.conf": "[Manager]\nDefaultTimeoutStartSec=900\n",
           "system/imas-boot.service.d/slow.conf": "[Service]\nTimeoutStartSec=900\n"}


def equip(root, package):
    """What the steps need; two of them are tests/machine's."""
    test = root / "imas-test"
    (test / "lib/aarch64-linux-gnu").mkdir(parents=True)
    for file in (HERE / "with-systemd", package, *(HERE.parent / "machine/inside" / name for name in ("lib.sh", "rescue", "rescued"))):
        shutil.copy2(file, test)
    (test / package.name).rename(test / "imas.deb")
    made = [test / "crashes.so", test / "foreign.so"]
    imas_testing.run("make", "-C", HERE.parent / "machine/programs", "CC=aarch64-linux-gnu-gcc", f"OUT={test}", *made, must=True)
    made[1].rename(test / "lib/aarch64-linux-gnu/foreign.so")
    (test / "with-systemd").rename(test / "step")
    (test / "rescued").rename(test / "after-rescue")  # the step 'rescue' writes a file of its name
    units = root / "etc/systemd/system"
    (units / "imas-test.target").write_text(machine.TARGET)
    (units / "imas-test.service").write_text(machine.SERVICE.replace("TimeoutStartSec=600", f"TimeoutStartSec={BOOT_LIMIT_S}"))
    for name, text in PATIENT.items():
        (root / "etc/systemd" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "etc/systemd" / name).write_text(text)
    (root / "imas/init").symlink_to("/lib/systemd/systemd")


def results_of(made, processor, logs):
    """What the steps have written, line by line, and the end of their other output."""
    package = newest("imas_*_arm64.deb")
    if package is None:
        raise Skipped("there is no package for arm64 (make ARCH=arm64 deb)")
    with files(made) as folder:
        equip(folder / "root", package)
        disk = make_disk(folder)
        for log in logs:
            boot(made, processor, disk, log, BOOT_LIMIT_S)
        subprocess.run(["e2fsck", "-fy", disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # replays the journal
        written, output = (imas_testing.run("debugfs", "-R", f"cat /imas-test/{name}", disk).stdout for name in ("results", "output"))
    return [line.split("\t") for line in written.splitlines()], output[-2000:]


def run(made, processor):
    """Boots, and judges what the steps have written."""
    logs = [PROJECT / f"build/test-arm-machine-{number + 1}.console" for number in range(BOOTS)]
    results, output = results_of(made, processor, logs)
    for kind, *words in results:
        if kind in ("ok", "no"):
            check(f"machine: {words[0]}", kind == "ok", words[1:])
        elif kind != "end":
            print(f"  {kind}: {' '.join(words)}")
    ends = results.count(["end"])
    print(f"machine: {len(results) - ends} results", flush=True)
    check(f"machine: {BOOTS} boots came to their end", ends == ENDS, "\n".join([output, *(log.read_text(errors="replace")[-600:] for log in logs)]))
