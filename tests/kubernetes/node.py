#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/node.py IMAS: `imas kube node` beside real processes in control groups that are laid out as kubelet does."""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

import imas_testing  # noqa: E402
from groups import Node, expect, new, pod_group, unified  # noqa: E402
from imas_testing import case, finish, run, skipped  # noqa: E402

PODS = 500
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
/* Fills 64 MiB with blocks of 1 KiB and frees all but one of 64: free pages that glibc keeps. */
int main(int count, char **words) {
    static char *blocks[1 << 16];
    int size = count > 1 ? atoi(words[1]) : 0;
    for (int i = 0; i < size; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < size; i++) if (i % 64) free(blocks[i]);
    puts("ready");
    fflush(stdout);
    pause();
}
"""


class Tests:
    def __init__(self, imas, work, node):
        self.imas, self.work, self.node = imas, work, node
        self.logs = work / "logs"
        self.logs.mkdir()
        source = work / "app.c"
        source.write_text(SOURCE)
        self.app, self.fixed, self.musl = work / "app", work / "fixed", work / "musl"
        run("gcc", "-O1", "-o", self.app, source, must=True)
        run("gcc", "-O1", "-static", "-o", self.fixed, source, must=True)
        if shutil.which("musl-gcc"):
            run("musl-gcc", "-O1", "-o", self.musl, source, must=True)

    def seen(self, *words):
        done = run(self.imas, "kube", "node", "--json", "--logs", self.logs, *words, must=True)
        rows = json.loads(done.stdout)["containers"]
        return {one["id"]: one for one in rows}

    def layouts(self):
        uid, containerd = new()
        self.node.start(f"{pod_group(uid)}/cri-containerd-{containerd}.scope", self.app, 0)
        other, crio = new()
        self.node.start(f"{pod_group(other, 'guaranteed')}/crio-{crio}.scope/container", self.app, 0)
        plain, file_driver = new()
        self.node.start(f"kubepods/besteffort/pod{plain}/{file_driver}", self.app, 0)
        _, docker = new()
        self.node.start(f"system.slice/docker-{docker}.scope", self.app, 0)
        seen = self.seen()
        for identity, pod, runtime in (
            (containerd, uid, "containerd"), (crio, other, "cri-o"), (file_driver, plain, None), (docker, None, "docker"),
        ):
            row = seen.get(identity[:12])
            expect(row and row["pod_uid"] == pod and row["runtime"] == runtime, (identity, row, list(seen)))
            expect(row["program"] == str(self.app) and row["processes"] == 1 and row["libc"] == "glibc" and row["resident"] > 0, row)

    def libraries_and_free_memory(self):
        (uid, full), (_, static), (_, musl) = new(), new(), new()
        self.node.start(f"{pod_group(uid)}/cri-containerd-{full}.scope", self.app, 1 << 16)
        self.node.start(f"{pod_group(uid)}/cri-containerd-{static}.scope", self.fixed, 0)
        if self.musl.exists():
            self.node.start(f"{pod_group(uid)}/cri-containerd-{musl}.scope", self.musl, 0)
        for identity, name in ((full, "app"), (static, "fixed"), (musl, "musl")):
            (self.logs / f"web-5d4f8c7b9-x2x5q_shop_{name}-{identity}.log").symlink_to("/nowhere")
        for odd in (b"\xff_\xfe_x-1.log", b"a_b_c-\xe2\x80\xae.log", b"x" * 250, b"..log"):
            open(os.fsencode(self.logs) + b"/" + odd, "wb").close()
        seen = self.seen()
        row = seen[full[:12]]
        expect(row["name"] == {"namespace": "shop", "workload": "web", "pod": "web-5d4f8c7b9-x2x5q", "container": "app"}, row)
        expect(row["free"] > 40 << 20 and row["free"] < row["resident"], row)
        expect("imas kube try web --with glibc:lean-trim" in row["advice"], row)
        expect(seen[static[:12]]["libc"] == "static" and "no library can be given" in seen[static[:12]]["advice"], seen[static[:12]])
        if self.musl.exists():
            expect(seen[musl[:12]]["libc"] == "musl" and "no library can be given" in seen[musl[:12]]["advice"], seen[musl[:12]])
        page = run(self.imas, "kube", "node", "--logs", self.logs, must=True).stdout
        expect("shop/web-5d4f8c7b9-x2x5q/app" in page, page)
        for link in os.listdir(os.fsencode(self.logs)):
            os.unlink(os.fsencode(self.logs) + b"/" + link)

    def processes_that_vanish(self):
        uid, identity = new()
        path = f"{pod_group(uid)}/cri-containerd-{identity}.scope"
        ends = threading.Event()

        def come_and_go():
            while not ends.is_set():
                child = self.node.start(path, "sleep", "0.01", waits=False)
                child.wait()
                self.node.children.remove(child)

        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            for _ in range(5):
                self.seen()
        finally:
            ends.set()
            thread.join()

    def five_hundred_pods(self):
        for _ in range(PODS):
            uid, identity = new()
            self.node.start(f"{pod_group(uid)}/cri-containerd-{identity}.scope", "sleep", "1000", waits=False)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seen = self.seen()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        expect(sum(one["program"].endswith("/sleep") for one in seen.values()) >= PODS, len(seen))
        peak = run("/usr/bin/time", "-f", "%M", self.imas, "kube", "node", "--json", "--logs", self.logs, must=True).stderr.split()[-1]
        print(f"a look at {len(seen)} containers: {took:.2f} s of CPU, {took / 60:.2%} of a core once a minute, {int(peak) / 1024:.1f} MiB", flush=True)
        expect(int(peak) < 50 * 1024, peak)

    def bad_input(self):
        done = run(self.imas, "kube", "node", "--cgroups", "/nowhere")
        expect(done.returncode == 2 and "no control groups of version 2" in done.stderr, done)
        done = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", self.imas, "kube", "node", env={**os.environ, "HOME": "/nonexistent"})
        expect(done.returncode == 0 and "no container that you may look into" in done.stdout, done)


def main():
    arguments = imas_testing.Arguments(__doc__)
    arguments.add_argument("imas", type=pathlib.Path)
    imas = arguments.parse_args().imas.resolve()
    cgroups = unified()
    if not cgroups:
        skipped("node", "control groups of version 2 cannot be made here")
        finish("kubernetes-node")
    with tempfile.TemporaryDirectory(prefix="imas-node-") as work, Node(cgroups) as node:
        tests = Tests(imas, pathlib.Path(work), node)
        for name in ("layouts", "libraries_and_free_memory", "processes_that_vanish", "five_hundred_pods", "bad_input"):
            case(name.replace("_", " "), getattr(tests, name))
    finish("kubernetes-node")


main()
