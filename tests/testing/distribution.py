# SPDX-License-Identifier: Apache-2.0
"""Roots of other distributions, made once by debootstrap and kept in the user's cache."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "imas"
SCRIPTS = pathlib.Path("/usr/share/debootstrap/scripts")
# How newer suites than this machine's debootstrap knows are made.
OF_NEWER = {"Debian": "sid", "Ubuntu": "gutsy"}
# What the kernel shows and the test writes is mounted, so nothing stays in the root, and nothing outlives the test.
INSIDE = """set -e
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in tmp run mnt dev/shm; do mount -t tmpfs tmpfs "$root/$folder"; done
"""


def mirror(label):
    """The mirror of that distribution: IMAS_MIRROR_DEBIAN or IMAS_MIRROR_UBUNTU, else that from which apt on this machine
    installs; None: it has none."""
    if given := os.environ.get(f"IMAS_MIRROR_{label.upper()}"):
        return given
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Label: {label}"]
    if shutil.which("apt-get") is None:
        return None
    return (subprocess.run(words, capture_output=True, text=True).stdout.split() or [None])[0]


def obstacle():
    """Why no root can be made or entered here; None: it can."""
    if os.geteuid() != 0:
        return "root alone can make one"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "no namespaces can be made here"
    return None


def root(label, suite, *packages):
    """The folder of a minimal root with the packages, and None; or None, and why there is none."""
    key = "".join(f"-{name}" for name in packages)
    folder = CACHE / f"bare-{suite}{'-' + hashlib.sha256(key.encode()).hexdigest()[:12] if key else ''}"
    if why := obstacle():
        return None, why
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "bare.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".complete").exists():
            return folder, None
        source = mirror(label)
        if source is None:
            return None, f"apt on this machine knows no mirror of {label}, and IMAS_MIRROR_{label.upper()} names none"
        shutil.rmtree(folder, ignore_errors=True)
        more = [f"--include={','.join(packages)}"] if packages else []
        script = SCRIPTS / (suite if (SCRIPTS / suite).exists() else OF_NEWER[label])
        words = ["debootstrap", "--variant=minbase", *more, suite, folder, source, script]
        with open(f"{folder}.log", "w") as log:
            made = subprocess.run(words, stdout=log, stderr=log)
        if made.returncode != 0:
            lines = pathlib.Path(f"{folder}.log").read_text(errors="replace").strip().splitlines() or [""]
            return None, f"debootstrap failed: {lines[-1]} ({folder}.log)"
        (folder / ".complete").touch()
    return folder, None


def words_inside(folder, script, *words):
    """The command that runs a script of sh in namespaces with the root's folders mounted: $root, $1, $2, ..."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE + script, "sh", folder, *words]
