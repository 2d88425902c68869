# SPDX-License-Identifier: Apache-2.0
"""An arm64 machine under qemu-system-aarch64: its files, its disk, a boot."""

import contextlib
import pathlib
import subprocess
import tempfile

import imas_testing
from imas_testing import finish, skipped

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
BOOT_LIMIT_S = 3600  # of a boot under systemd; 21 s of it are systemd's
DISK_MIB = 6000

# By the size of its pages, or its version: Debian's suite, the package of the kernel or the script here that compiles
# one, and a processor that has such pages.
# Debian 13 signs return addresses; the architecture's own way to do so is slow where it is emulated.
KERNELS = {"4k": ("bookworm", "linux-image-cloud-arm64", "cortex-a72"),
           "5.10": ("bullseye", "linux-image-cloud-arm64", "cortex-a72"),
           "16k": ("trixie", "linux-image-arm64-16k", "max,pauth-impdef=on"),
           "64k": ("bookworm", "kernel-64k", "cortex-a72")}


def newest(pattern):
    """The newest package of that name; None: there is none."""
    found = sorted((PROJECT / "build/package").glob(pattern), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def made_root(suite, kernel):
    words = [kernel, suite] if (HERE / kernel).exists() else ["root", suite, kernel]
    made = imas_testing.run(HERE / words[0], *words[1:], timeout=3600)
    if made.returncode != 0:
        skipped("arm", made.stderr.strip()[-400:])
        finish("arm")
    return pathlib.Path(made.stdout.split()[-1])


@contextlib.contextmanager
def files(made):
    """A folder with a copy of the root."""
    with tempfile.TemporaryDirectory(prefix="imas-arm-", dir=PROJECT / "build") as folder:
        subprocess.run(["cp", "-aH", made / "root", folder], check=True)
        yield pathlib.Path(folder)


def make_disk(folder):
    disk = folder / "disk"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", folder / "root", disk, f"{DISK_MIB}M"], check=True)
    return disk


def boot(made, processor, disk, log, limit_s, part=None):
    """Boots the machine from a disk, and returns when it has turned itself off or the time is up. `part`: what tests/arm/init
    runs; the disk stays as it is then. The log of an earlier boot is kept beside its own."""
    line = "console=ttyAMA0 quiet panic=-1 systemd.unit=imas-test.target" + (f" imas.part={part}" if part else "")
    drive = f"file={disk},format=raw,if=none,id=disk,snapshot={'on' if part else 'off'}"
    # It ends with this process, however that ends.
    command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-aarch64",
               "-M", "virt", "-cpu", processor, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "4096",
               "-nographic", "-no-reboot", "-net", "none", "-kernel", made / "kernel", "-initrd", made / "first.gz",
               "-append", line, "-drive", drive, "-device", "virtio-blk-device,drive=disk"]
    if log.exists():
        log.replace(log.with_suffix(".before"))
    with log.open("wb") as console:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=limit_s, check=False)
