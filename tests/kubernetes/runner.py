# SPDX-License-Identifier: Apache-2.0
"""Runs a pod that came back from the apiserver: its image is a bare Debian, its image volume is unpacked by umoci, and its
environment is exactly that of the pod. What kubelet and a runtime do, without either."""

import os
import pathlib
import shutil
import subprocess

from imas_testing import Failed, Skipped, run

# What the names stand for: root of the image, what is mounted, where in the container.
INSIDE = """set -e
root=$1 image=$2 at=$3; shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
if [ -n "$image" ]; then
    mount -t tmpfs tmpfs "$root/opt"
    mkdir -p "$root$at"
    mount --bind "$image" "$root$at"
    mount -o remount,bind,ro "$root$at"
fi
exec chroot "$root" /usr/bin/env -i "$@"
"""


def bare():
    """The bare Debian that tests/bundle has made."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "imas/bare-bookworm"
    if os.geteuid() != 0:
        raise Skipped("a root of its own takes root")
    if not (cache / ".complete").exists():
        raise Skipped(f"there is no {cache}; tests/bundle makes it")
    return cache


def unpacked(imas, candidates, work):
    """The image with the libraries, as a node has it."""
    if not shutil.which("umoci"):
        raise Skipped("umoci is not installed")
    folder = work / "unpacked"
    if not folder.exists():
        run(imas, "kube", "image", "--with", candidates, "--out", work / "image", must=True)
        run("umoci", "unpack", "--rootless", "--image", f"{work / 'image'}:imas", folder, must=True)
    return folder / "rootfs"


def start(pod, image, command, group=None):
    """Starts the container `app` of the pod with that command. `group`: the control group that it is put into first."""
    container = next(one for one in pod["spec"]["containers"] if one["name"] == "app")
    environment = [f"{one['name']}={one.get('value', '')}" for one in container.get("env", [])]
    volumes = {one["name"] for one in pod["spec"].get("volumes", []) if "image" in one}
    mounts = [one["mountPath"] for one in container.get("volumeMounts", []) if one["name"] in volumes]
    if len(mounts) > 1:
        raise Failed(f"one mount is expected: {mounts}")
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh", bare(),
             image if mounts else "", mounts[0] if mounts else "", *environment, *command]
    return subprocess.Popen([str(word) for word in words], preexec_fn=enter, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
