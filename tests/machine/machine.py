# SPDX-License-Identifier: Apache-2.0
"""A Debian that systemd-nspawn boots for each step of the machine test, without a network."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent

# A target that comes last, and one unit that runs the step and ends the machine in any case.
TARGET = """[Unit]
Description=A step of the IMAS machine test
Wants=multi-user.target imas-test.service
After=multi-user.target
AllowIsolate=yes
"""
SERVICE = """[Unit]
Description=A step of the IMAS machine test
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=600
ExecStart=/bin/sh /imas-test/step
StandardOutput=file:/imas-test/output
StandardError=file:/imas-test/output
"""
# nspawn gives the machine another boot id by a mount over the kernel's. The protections of imasd.service hide
# that mount from the daemon, and its index would have another boot id than programs see. Here all see the
# kernel's.
BOOT_ID = """[Unit]
Description=One boot id for all
DefaultDependencies=no
Before=sysinit.target imas-boot.service
[Service]
Type=oneshot
ExecStart=/usr/bin/umount /proc/sys/kernel/random/boot_id
"""

# nspawn's own system call filter would apply to every process, and a filtered process is never placed.
ENVIRONMENT = dict(os.environ, SYSTEMD_SECCOMP="0")


class Machine:
    """A copy of the Debian made by tests/machine/root."""

    def __init__(self, origin, folder):
        self.root = pathlib.Path(folder) / "machine"
        self.logs = pathlib.Path(folder) / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(origin), str(self.root)], check=True)
        self.test = self.root / "imas-test"
        self.test.mkdir()
        shutil.copy(HERE / "inside" / "lib.sh", self.test)
        units = self.root / "etc/systemd/system"
        (units / "imas-test.target").write_text(TARGET)
        (units / "imas-test.service").write_text(SERVICE)
        (units / "imas-test-boot-id.service").write_text(BOOT_ID)
        (units / "sysinit.target.wants").mkdir(exist_ok=True)
        (units / "sysinit.target.wants/imas-test-boot-id.service").symlink_to("../imas-test-boot-id.service")

    def put(self, source, name, mode=None):
        """Copies a file of the host to /imas-test/NAME."""
        place = self.test / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
        if mode is not None:
            os.chmod(place, mode)

    def boot(self, step, timeout=900, init=None):
        """Boots the machine, with `init` as process 1 if given, to run inside/STEP; returns (ended by itself,
        seconds)."""
        shutil.copy(HERE / "inside" / step, self.test / "step")
        (self.test / "results").write_text("")
        command = ["systemd-nspawn", "-q", "-D", str(self.root), "--register=no", "--keep-unit", "--private-network",
                   "--console=pipe"]
        command += ["-b"] if init is None else init
        command += ["systemd.unit=imas-test.target", "quiet"]
        began = time.monotonic()
        with open(self.logs / f"{step}.console", "ab") as console:
            nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=ENVIRONMENT)
            try:
                nspawn.wait(timeout)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
                self._end(nspawn)
        return ended, time.monotonic() - began

    @staticmethod
    def _end(nspawn):
        for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            nspawn.send_signal(sent)
            try:
                nspawn.wait(10)
                return
            except subprocess.TimeoutExpired:
                pass

    def results(self):
        """The results of the step: [(kind, name, why)]."""
        lines = []
        for line in (self.test / "results").read_text(errors="replace").splitlines():
            kind, _, rest = line.partition("\t")
            name, _, why = rest.partition("\t")
            lines.append((kind, name, why))
        return lines

    def output(self):
        """The end of the step's other output."""
        try:
            return (self.test / "output").read_text(errors="replace")[-2000:]
        except OSError:
            return ""
