#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/containers.py IMAS: a bundle in real containers of runc and podman, as docs/containers.md says, started by
root and by a user of no rights ("rootless"), and under gVisor.

The image is a program with its libraries alone, so nothing is pulled. Where a runtime cannot start it without a bundle, as in
many sandboxes, the runtime's own words are the reason why it is SKIPPED."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

import cluster  # noqa: E402
import runner  # noqa: E402
from groups import Node, expect, new, pod_group, unified  # noqa: E402
from imas_testing import Skipped, case, finish, imas_of, run, skipped, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = {"glibc:lean": "settings", "mimalloc": "libmimalloc.so"}
USER = 65532  # of no rights
NOBODY = 65534  # who starts containers without being root
OWN = "OWN=mine"
RUN_S = 60


def installed(name):
    if not shutil.which(name):
        raise Skipped(f"{name} is not installed (apt install {name})")
    return name


def owned(folder):
    """A folder of the user who is not root."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)
    return folder


def as_nobody(home):
    """Words before a command of that user."""
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
            "env", f"HOME={home}", f"XDG_RUNTIME_DIR={home}"]


class Runc:
    """runc as kubelet's runtimes call it: they make the file and say where the control group is."""

    name, shown = "runc", "containerd"
    is_rootless, is_seen, before = False, True, ()

    def __init__(self, work, image, top):
        self.work, self.image, self.top = work / type(self).__name__.lower(), image, top
        self.uid = None

    def command(self):
        """The program with what holds for each call of it."""
        return [*self.before, installed("runc"), "--root", self.work / "state"]

    def words(self, bundle, *command):
        """The command line of a new container, and its id."""
        self.uid, identity = new()
        folder = self.work / identity
        folder.mkdir(parents=True)
        if self.is_rootless:
            owned(folder)
        run(*self.before, installed("runc"), "spec", *(["--rootless"] if self.is_rootless else []), "--bundle", folder, must=True)
        file = folder / "config.json"
        spec = json.loads(file.read_text())
        spec["root"] = {"path": str(self.image), "readonly": True}
        variables = (bundle / "imas.env").read_text().split("\n") if bundle else []
        user = 0 if self.is_rootless else USER
        spec["process"] |= {"terminal": False, "args": [str(one) for one in command], "user": {"uid": user, "gid": user},
                            "env": [OWN, *(one for one in variables if "=" in one and not one.startswith("#"))]}
        spec["mounts"] = [one for one in spec["mounts"] if one["type"] not in ("cgroup", "mqueue")]  # nothing needs them
        if bundle:
            spec["mounts"].append({"destination": "/opt/imas", "type": "bind", "source": str(bundle), "options": ["bind", "ro"]})
        if not self.is_rootless:
            spec["linux"]["cgroupsPath"] = f"/{self.top}/{pod_group(self.uid)}/cri-containerd-{identity}.scope"
        file.write_text(json.dumps(spec))
        return [*self.command(), "run", "--bundle", folder, identity], identity

    def pid(self, identity):
        return json.loads(run(*self.command(), "state", identity, must=True).stdout)["pid"]

    def end(self, identity):
        run(*self.command(), "delete", "--force", identity)


class RootlessRunc(Runc):
    """runc by a user of no rights, who is the container's root: the one user that he may give it."""

    name, is_rootless, is_seen = "runc without root", True, False  # it stays in its user's control group

    def __init__(self, work, image, top):
        super().__init__(work, image, top)
        self.before = as_nobody(owned(self.work))


class Gvisor(Runc):
    """gVisor: its sentry is the kernel of the container, and all that the node sees of it."""

    name, is_seen = "gVisor", False

    def command(self):
        runsc = cluster.program("runsc", builds=True)
        return [runsc, "--root", self.work / "state", "--platform", "systrap", "--network", "none", "--ignore-cgroups"]


class Podman:
    """podman with places of its own, so that it sees no container of this machine."""

    name, shown, uid = "podman", "podman", None
    is_rootless, is_seen, before = False, True, ()

    def __init__(self, work, image, top):
        self.work, self.image, self.top = work / type(self).__name__.lower(), image, top

    @property
    def podman(self):
        return [*self.before, installed("podman"), "--root", self.work / "storage", "--runroot", self.work / "run", "--tmpdir", self.work / "tmp",
                       "--runtime", installed("runc"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def words(self, bundle, *command):
        self.work.mkdir(exist_ok=True)
        _, name = new()
        given = ["--volume", f"{bundle}:/opt/imas:ro", "--env-file", bundle / "imas.env"] if bundle else []
        return [*self.podman, "run", "--rm", "--name", name, "--network", "none", "--no-hosts", "--read-only", "--cap-drop", "ALL",
                "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--log-driver", "none", *self.rights, "--env", OWN, *given,
                "--rootfs", self.image, *command], name

    @property
    def rights(self):
        """The user in the container, and its control group."""
        return ["--user", USER, "--cgroup-parent", f"/{self.top}/libpod_parent"]

    def pid(self, name):
        return int(run(*self.podman, "inspect", "--type", "container", "--format", "{{.State.Pid}}", name, must=True).stdout)

    def end(self, name):
        run(*self.podman, "rm", "--force", "--time", "0", name)


class RootlessPodman(Podman):
    """podman by a user of no rights. He has no other users to give (no /etc/subuid), so he is the container's root."""

    name, is_rootless, is_seen, rights = "podman without root", True, False, ()

    def __init__(self, work, image, top):
        super().__init__(work, image, top)
        self.before = as_nobody(owned(self.work))

    def end(self, name):
        super().end(name)
        for file in self.work.rglob("pause.pid"):  # a process that keeps the user's namespaces
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
                file.unlink()


class Tests:
    def __init__(self, imas, work, runtime):
        self.imas, self.runtime = imas, runtime
        self.bundles = {}
        for candidate in LIBRARIES:
            folder = work / "bundles" / candidate.replace(":", "-")
            if not folder.exists():
                folder.parent.mkdir(exist_ok=True)
                run(imas, "bundle", candidate, "--out", folder, must=True)
            folder.chmod(0o755)
            self.bundles[candidate] = folder

    def shown(self, bundle):
        """What the program says of itself: libraries of the bundle, and its variables."""
        words, identity = self.runtime.words(bundle, "/app")
        try:
            return run(*words, timeout=RUN_S, may_hang=True)
        finally:
            self.runtime.end(identity)

    def starts_at_all(self):
        done = self.shown(None)
        if done.returncode != 0:
            raise Skipped(f"{self.runtime.name} starts no container here: {(done.stderr.strip() or 'it hangs').splitlines()[-1]}")
        expect("OWN" in done.stdout.split() and "/opt/imas/" not in done.stdout, done)

    def the_candidate_serves(self):
        for candidate, bundle in self.bundles.items():
            done = self.shown(bundle)
            seen = done.stdout.split()
            libraries = {f"/opt/imas/{file.name}" for file in bundle.glob("*.so")}
            expect(done.returncode == 0 and "/opt/imas/libimas-guard.so" in libraries, (candidate, done))
            expect({one for one in seen if one.startswith("/opt/imas/")} == libraries, (candidate, seen))
            expect({"OWN", "LD_PRELOAD"} <= set(seen), (candidate, seen))  # they are for every process (decision 51)

    @contextlib.contextmanager
    def running(self, bundle, *more):
        words, identity = self.runtime.words(bundle, "/app", 8080, *more)
        child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            pid = until(lambda: self.runtime.pid(identity), ignoring=(Exception,))
            expect(pid, "it does not start")
            expect(until(lambda: "app" in pathlib.Path(f"/proc/{pid}/comm").read_text(), ignoring=(OSError,)), pid)
            yield pid
        finally:
            self.runtime.end(identity)
            child.kill()
            child.communicate()

    def the_node_finds_it(self):
        """By the control group that the runtime made, as the program inside its own root."""
        for candidate, bundle in self.bundles.items():
            with self.running(bundle) as pid:
                group = next(line for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
                if f"/{self.runtime.top}/" not in group:
                    raise Skipped(f"{self.runtime.name} makes no control group of version 2 here: {group}")
                rows = json.loads(run(self.imas, "kube", "node", "--cgroup-root", f"/{self.runtime.top}", "--json", "--logs", "/nowhere", must=True).stdout)["containers"]
                found = [one for one in rows if one["id"] in group]
                expect(len(found) == 1, (candidate, group, rows))
                row = found[0]
                expect(row["runtime"] == self.runtime.shown and row["pod_uid"] == self.runtime.uid, row)
                expect(row["program"] == "/app" and row["libc"] == "glibc" and row["library"] == LIBRARIES[candidate], row)


    def memory_comes_back(self):
        """A trim by the node's root: of a program without anything of IMAS, in an image without a shell, on a read-only root, in
        a namespace of users where the container is rootless."""
        with self.running(None, "full") as pid:
            def trimmed():
                return json.loads(run(self.imas, "trim", pid, "--at-least", "8M", "--json").stdout)["processes"][0]
            row = until(lambda: row if (row := trimmed())["thread"] or "MiB" not in row["why"] else None)
            if row and "may not be traced" in (row["why"] or ""):
                raise Skipped("processes cannot be traced here")
            expect(row and row["thread"] and row["returned_bytes"] > 12 << 20, row or trimmed())
            expect(pathlib.Path(f"/proc/{pid}/root/app").exists(), "it has ended")


def removed(top):
    """Takes the groups away that the runtimes made, in each hierarchy."""
    places = [place for pattern in (top, f"*/{top}") for place in pathlib.Path("/sys/fs/cgroup").glob(pattern)]
    for place in places:
        folders = sorted((one for one in place.rglob("*") if one.is_dir()), key=lambda one: -len(one.parts))
        for folder in (*folders, place):
            until(lambda folder=folder: not folder.exists() or folder.rmdir() is None, 5, ignoring=(OSError,))


def main():
    imas = imas_of(__doc__)
    cgroups = unified()
    if not cgroups:
        skipped("containers", "control groups of version 2 cannot be made here")
        finish("kubernetes-containers")
    top = Node(cgroups).top.name
    with tempfile.TemporaryDirectory(prefix="imas-run-", ignore_cleanup_errors=True) as work:
        work = pathlib.Path(work)
        work.chmod(0o755)
        app = work / "app"
        run("gcc", "-O1", "-pthread", "-o", app, HERE / "app.c", must=True)
        try:
            for kind in (Runc, Podman, RootlessRunc, RootlessPodman, Gvisor):
                # An image for each: a runtime makes its mount points there.
                tests = Tests(imas, work, kind(work, work / f"image-{kind.__name__.lower()}", top))
                libraries = [file for bundle in tests.bundles.values() for file in bundle.glob("*.so")]
                runner.image_of(tests.runtime.image, app, *libraries)
                if kind.is_rootless:
                    run("chown", "-R", f"{NOBODY}:{NOBODY}", tests.runtime.image, must=True)
                if not case(f"{kind.name} starts a container", tests.starts_at_all):
                    continue
                case(f"{kind.name}: the candidate serves", tests.the_candidate_serves)
                if kind is not Gvisor:  # its sentry has no heap of glibc
                    case(f"{kind.name}: memory comes back", tests.memory_comes_back)
                if kind.is_seen:
                    case(f"{kind.name}: the node finds it", tests.the_node_finds_it)
        finally:
            removed(top)
    finish("kubernetes-containers")


main()
