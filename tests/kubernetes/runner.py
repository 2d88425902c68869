# SPDX-License-Identifier: Apache-2.0
"""Runs a pod that came back from the apiserver: its image is a folder, its image volume is unpacked by umoci, and its
environment is exactly the pod's. What kubelet and a runtime do, without either.

Three kinds of images: a bare Debian or Ubuntu, one with a program and its libraries alone (as "distroless" ones are), one with musl."""

import os
import pathlib
import shutil
import subprocess
import sys

import distribution
from imas_testing import Failed, Skipped, run

# What the names stand for: root of the image, what is mounted, where in the container. The root is read-only.
INSIDE = """set -e
root=$1 image=$2 at=$3 python=$4 enter=$5; shift 5
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
if [ -n "$image" ]; then
    mount -t tmpfs tmpfs "$root/opt"
    mkdir -p "$root$at"
    mount --bind "$image" "$root$at"
    mount -o remount,bind,ro "$root$at"
fi
mount -o remount,bind,ro "$root"
exec "$python" -c "$enter" "$root" "$@"
"""
# The last step is no program of the image: it may have none that sets an environment.
ENTER = """import os, sys
root, user, *words = sys.argv[1:]
at = words.index("--")
os.chroot(root)
os.chdir("/")
if user:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
os.execve(words[at + 1], words[at + 1:], dict(one.split("=", 1) for one in words[:at]))
"""


def bare(label="Debian", suite="bookworm"):
    """The smallest root of a distribution, made once."""
    folder, why = distribution.root(label, suite)
    if folder is None:
        raise Skipped(why)
    return folder


def as_root():
    if os.geteuid() != 0:
        raise Skipped("a root of its own takes root")


def image_of(folder, program, *more):
    """An image with a program as /app, and the libraries that it and these files need; no shell, no other file."""
    as_root()
    for place in ("proc", "opt", "tmp"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(program, folder / "app")
    for file in (program, *more):
        for word in run("ldd", file).stdout.split():
            if word.startswith("/") and pathlib.Path(word).is_file() and not word.startswith(str(folder.parent)):
                target = folder / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, target)
    return folder


def musl_image(folder, source):
    """An image with musl: what Alpine has of a C library, and a program."""
    as_root()
    loader = pathlib.Path(f"/lib/ld-musl-{os.uname().machine}.so.1")
    if not shutil.which("musl-gcc") or not loader.exists():
        raise Skipped("musl is not installed (apt install musl-tools)")
    for place in ("proc", "opt", "lib"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(loader, folder / "lib" / loader.name)
    run("musl-gcc", "-O1", "-o", folder / "app", source, must=True)
    return folder


def unpacked(imas, candidates, work):
    """The image with the libraries, as a node has it."""
    if not shutil.which("umoci"):
        raise Skipped("umoci is not installed")
    folder = work / "unpacked"
    if not folder.exists():
        run(imas, "kube", "image", "--with", candidates, "--out", work / "image", must=True)
        run("umoci", "unpack", "--rootless", "--image", f"{work / 'image'}:imas", folder, must=True)
        (folder / "rootfs").chmod(0o755)  # as a runtime mounts it
    return folder / "rootfs"


def start(pod, libraries, command, group=None, image=None, output=subprocess.PIPE):
    """Starts the container `app` of the pod with that command. `libraries`: what the image volume has. `group`: the control
    group that it is put into first. `image`: its root."""
    container = next(one for one in pod["spec"]["containers"] if one["name"] == "app")
    environment = [f"{one['name']}={one.get('value', '')}" for one in container.get("env", [])]
    volumes = {one["name"] for one in pod["spec"].get("volumes", []) if "image" in one}
    mounts = [one["mountPath"] for one in container.get("volumeMounts", []) if one["name"] in volumes]
    if len(mounts) > 1:
        raise Failed(f"one mount is expected: {mounts}")
    user = pod["spec"].get("securityContext", {}).get("runAsUser", "")
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh",
             image or bare(), libraries if mounts else "", mounts[0] if mounts else "", sys.executable, ENTER, user,
             *environment, "--", *command]
    return subprocess.Popen([str(word) for word in words], preexec_fn=enter, stdout=output, stderr=output, text=True)
