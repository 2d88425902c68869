# SPDX-License-Identifier: Apache-2.0
"""Control groups that are laid out as kubelet does, with processes in them."""

import os
import pathlib
import subprocess
import uuid

from imas_testing import Failed, until


def expect(good, what):
    if not good:
        raise Failed(str(what)[:3000])


def unified():
    """Where control groups of version 2 are, if this user may make some."""
    for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        folder = pathlib.Path(place)
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK) and os.geteuid() == 0:
            return folder
    return None


class Node:
    """Groups and processes; all end with it."""

    def __init__(self, cgroups):
        # Below a group of its own: a real kubelet may run here.
        self.cgroups = cgroups
        self.top = cgroups / f"imas-test-{os.getpid()}"
        self.children, self.groups = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        for group in sorted(self.groups, key=lambda one: -len(str(one))):
            until(lambda group=group: not group.exists() or not group.rmdir(), 5, ignoring=(OSError,))

    @property
    def words(self):
        """What `imas kube node` is told, for which these groups are a whole node's."""
        return ["--cgroup-root", f"/{self.top.name}"]

    def group(self, path):
        group = self.top
        for part in ("", *path.split("/")):
            group = group / part
            if not group.exists():
                group.mkdir()
                self.groups.append(group)
        return group

    def start(self, path, *words, waits=True, user=None):
        """A process that is in the group before it executes."""
        group = self.group(path)

        def enter():
            (group / "cgroup.procs").write_text(str(os.getpid()))
            if user is not None:
                os.setuid(user)

        child = subprocess.Popen([str(word) for word in words], preexec_fn=enter, stdout=subprocess.PIPE)
        self.children.append(child)
        if waits:
            expect(child.stdout.readline() == b"ready\n", words)
        return child


def pod_group(uid, quality="burstable"):
    slices = f"kubepods.slice/kubepods-{quality}.slice/kubepods-{quality}-pod{uid.replace('-', '_')}.slice"
    return slices if quality != "guaranteed" else f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"


def new():
    return str(uuid.uuid4()), os.urandom(32).hex()
