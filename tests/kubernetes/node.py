#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/node.py IMAS: `imas kube node` beside real processes in control groups that are laid out as kubelet does."""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

from groups import Node, expect, new, pod_group, unified  # noqa: E402
from cluster import free_port  # noqa: E402
from imas_testing import Skipped, cases, finish, imas_of, run, skipped, until, watched  # noqa: E402

PODS = 500
MOST_MIB = 20  # of the observer and of its helper, whatever a pod makes of itself; the limit of the DaemonSet is 128
PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "programs"
SOURCE = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
/* Fills 64 MiB with blocks of 1 KiB and frees all but one of 64: free pages that glibc keeps. Then it works for so many seconds,
   and with a third word it is under a filter of system calls that allows all. */
int main(int count, char **words) {
    static char *blocks[1 << 16];
    int size = count > 1 ? atoi(words[1]) : 0;
    for (int i = 0; i < size; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < size; i++) if (i % 64) free(blocks[i]);
    while (count > 2 && clock() < atoi(words[2]) * CLOCKS_PER_SEC) {}
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    if (count > 3 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))) return 1;
    puts("ready");
    fflush(stdout);
    pause();
}
"""


# What a runtime makes of the container of `imas kube daemonset`: folder of the groups, where it is mounted, the program.
INSIDE = """set -e
mount --bind "$1" "$2"
mount -o remount,bind,ro "$2"
shift 2
exec setpriv --bounding-set=-all,+sys_ptrace,+dac_read_search --inh-caps=-all --no-new-privs "$@"
"""


def metrics(text):
    """Values by the names with their labels."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def scraped(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read().decode()
    expect(answer.status == 200 and answer.headers["Content-Type"].startswith("application/openmetrics-text"), answer.status)
    return text


class Tests:
    def __init__(self, imas, work, node):
        self.imas, self.work, self.node = imas, work, node
        self.logs = work / "logs"
        self.logs.mkdir()
        source = work / "app.c"
        source.write_text(SOURCE)
        self.app, self.fixed, self.musl, self.many = work / "app", work / "fixed", work / "musl", work / "many"
        run("gcc", "-O1", "-Wall", "-o", self.many, PROGRAMS / "many_mappings.c", must=True)
        run("gcc", "-O1", "-o", self.app, source, must=True)
        run("gcc", "-O1", "-static", "-o", self.fixed, source, must=True)
        if shutil.which("musl-gcc"):
            run("musl-gcc", "-O1", "-o", self.musl, source, must=True)

    def seen(self, *words):
        done = run(self.imas, "kube", "node", *self.node.words, "--json", "--logs", self.logs, *words, must=True)
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
            target = "/var/log/pods/shop_web-5d4f8c7b9-x2x5q_5334ab05/app/3.log" if name == "app" else "/nowhere"
            (self.logs / f"web-5d4f8c7b9-x2x5q_shop_{name}-{identity}.log").symlink_to(target)
        for odd in (b"\xff_\xfe_x-1.log", b"a_b_c-\xe2\x80\xae.log", b"x" * 250, b"..log"):
            open(os.fsencode(self.logs) + b"/" + odd, "wb").close()
        seen = self.seen()
        row = seen[full[:12]]
        expect(row["name"] == {"namespace": "shop", "workload": "web", "pod": "web-5d4f8c7b9-x2x5q", "container": "app"}, row)
        expect(row["free"] > 40 << 20 and row["free"] < row["resident"], row)
        expect("imas kube try web -n shop --with glibc:arena1" in row["advice"], row)
        kinds, version = row["memory"], os.confstr("CS_GNU_LIBC_VERSION").split()[1]
        expect(row["restarts"] == 3 and row["glibc"] == version and row["group"]["cpu_s"] > 0, row)
        expect(kinds["heaps"] > row["free"] and kinds["stacks"] and kinds["files"] and sum(kinds.values()) == row["resident"], row)
        expect(seen[static[:12]]["restarts"] is None and seen[static[:12]]["glibc"] is None, seen[static[:12]])
        expect(seen[static[:12]]["libc"] == "static" and "no library can be given" in seen[static[:12]]["advice"], seen[static[:12]])
        if self.musl.exists():
            expect(seen[musl[:12]]["libc"] == "musl" and "no library can be given" in seen[musl[:12]]["advice"], seen[musl[:12]])
        page = run(self.imas, "kube", "node", *self.node.words, "--logs", self.logs, must=True).stdout
        expect("shop/web-5d4f8c7b9-x2x5q/app" in page and f"glibc {version}" in page, page)
        self.workloads()
        for link in os.listdir(os.fsencode(self.logs)):
            os.unlink(os.fsencode(self.logs) + b"/" + link)

    def workloads(self):
        """The same by workload: as advice and as metrics, which agree."""
        words = ["kube", "node", *self.node.words, "--logs", self.logs]
        gains = json.loads(run(self.imas, *words, "--advise", "--json", must=True).stdout)["workloads"]
        gain = next(one for one in gains if (one["namespace"], one["workload"], one["container"]) == ("shop", "web", "app"))
        expect(gain["containers"] == 1 and gain["free"] > 40 << 20 and "imas kube try web -n shop" in gain["advice"], gain)
        page = run(self.imas, *words, "--advise", must=True).stdout
        expect("shop/web/app" in page and "shop/web/fixed" in page, page)
        text = run(self.imas, *words, "--metrics", must=True).stdout
        expect(text.endswith("# EOF\n") and str(self.work) not in text, text)
        values = metrics(text)
        labels = 'namespace="shop",workload="web",container="app"'
        expect(abs(values[f"imas_node_returnable_bytes{{{labels}}}"] - gain["free"]) < 1 << 20, values)
        expect(values[f"imas_node_containers{{{labels}}}"] == 1 and values[f"imas_node_restarts{{{labels}}}"] == 3, values)
        expect(values[f"imas_node_cpu_seconds{{{labels}}}"] > 0, values)

    def as_the_daemonset_runs_it(self):
        """Two capabilities, a namespace of control groups of its own, read-only folders: it sees what root sees."""
        if run("unshare", "--cgroup", "true").returncode:
            raise Skipped("there are no namespaces of control groups here")
        (uid, seen), (own_uid, own), (_, pause) = new(), new(), new()
        path = f"{pod_group(uid)}/cri-containerd-{seen}.scope"
        self.node.start(path, self.app, 1 << 16, user=65534)
        self.node.start(f"{pod_group(own_uid)}/cri-containerd-{pause}.scope", self.fixed, 0)  # the sandbox of its own pod
        (self.logs / f"web-5d4f8c7b9-x2x5q_shop_app-{seen}.log").symlink_to("/nowhere")
        (self.logs / f"imas-node-x2x5q_imas-node_node-{own}.log").symlink_to("/nowhere")
        plain = self.seen()[seen[:12]]
        unnamed = 'imas_node_containers{namespace="",workload="",container=""}'
        plainly_unnamed = metrics(run(self.imas, "kube", "node", *self.node.words, "--metrics", "--logs", self.logs, must=True).stdout).get(unnamed)
        for one in ("sys_ptrace", "dac_read_search"):  # each of the two capabilities is needed
            words = ["setpriv", f"--bounding-set=-all,+{one}", "--inh-caps=-all", "--no-new-privs", self.imas.parent / "imas-kube", "node", *self.node.words]
            rows = json.loads(run(*words, "--json", "--logs", self.logs, must=True).stdout)["containers"]
            expect(not any(row["free"] for row in rows if row["id"] == seen[:12]), f"{one}: {rows}")
        here = self.work / "cgroup"
        here.mkdir()
        port = free_port()
        words = ["unshare", "--mount", "--propagation", "private", "--cgroup", "sh", "-c", INSIDE, "sh", self.node.cgroups, here,
                 self.imas.parent / "imas-kube", "node", *self.node.words, "--cgroups", here, "--logs", self.logs, "--listen", f"127.0.0.1:{port}", "--every", "1"]
        child = self.node.start(f"{pod_group(own_uid)}/cri-containerd-{own}.scope", *words, waits=False)
        text = until(lambda: scraped(port), ignoring=(OSError,))
        expect(text, f"no metrics; it ended with {child.poll()}")
        values = metrics(text)
        labels = 'namespace="shop",workload="web",container="app"'
        expect(abs(values[f"imas_node_returnable_bytes{{{labels}}}"] - plain["free"]) < 1 << 20, text)
        expect(values[f"imas_node_unreadable_containers{{{labels}}}"] == 0, text)
        expect(values.get(unnamed) == plainly_unnamed, f"{plainly_unnamed} containers of no pod: {text}")
        limit = plain["group"]["used"] and plain["group"]["limit"]
        expect((f"imas_node_limit_ratio{{{labels}}}" in values) == bool(limit), text)
        self.hostile_requests(port)
        for link in self.logs.iterdir():
            link.unlink()

    def hostile_requests(self, port):
        """What is no request for the metrics harms nobody; who says nothing holds others for no longer than a moment."""
        for words in (b"", b"\0" * 20_000, b"GET /metrics", b"GET " + b"x" * 20_000 + b"\r\n\r\n", b"GET /metrics\r\nx: y\r\n" * 2000):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as one, contextlib.suppress(OSError):
                one.sendall(words)
                one.shutdown(socket.SHUT_WR)
                expect(b"200 OK" not in one.recv(1 << 16), words[:50])
        self.silent_connections(port)

    def silent_connections(self, port):
        """Eight peers hold as many connections as they get, and open each again that is closed: a collector is answered."""
        ends = threading.Event()

        def hold(address):
            held = []
            while not ends.is_set():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(address, 0)))
                    held[-1].setblocking(False)
                for one in list(held) if len(held) >= 64 else ():
                    with contextlib.suppress(BlockingIOError):
                        with contextlib.suppress(ConnectionError):
                            one.recv(1)
                        one.close()
                        held.remove(one)
                ends.wait(0.005)
            for one in held:
                one.close()

        threads = [threading.Thread(target=hold, args=(f"127.0.0.{number}",)) for number in range(2, 10)]
        for thread in threads:
            thread.start()
        try:
            ends.wait(2)
            began, answered = time.monotonic(), 0
            for _ in range(20):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    scraped(port)
                    answered += 1
            took = time.monotonic() - began
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        print(f"  beside silent connections of eight peers: {answered} of 20 answers, {took:.2f} s", flush=True)
        expect(answered == 20, f"{answered} of 20 answers")

    def start_pod(self, identity, *words, uid=None, **more):
        return self.node.start(f"{pod_group(uid or new()[0])}/cri-containerd-{identity}.scope", *words, **more)

    def looked_at(self):
        """What one look shows, with the most memory of a process of it, MiB, and its time."""
        done, most, took = watched(self.imas, "kube", "node", *self.node.words, "--json", "--logs", self.logs)
        expect(done.returncode == 0, done)
        look = json.loads(done.stdout)
        return {row["id"]: row for row in look["containers"]}, look, most, took

    def namespaces_whose_pods_are_trimmed(self):
        """As the DaemonSet with --trim runs it: pods of the namespaces that are named give back, also under a filter of system
        calls, and no others. Each capability is needed, and none beside them."""
        kinds = {"plain": (self.app, "shop"), "filtered": (self.app, "shop"), "other": (self.app, "bank"), "static": (self.fixed, "shop")}
        kinds |= {"musl": (self.musl, "shop")} if self.musl.exists() else {}
        capabilities = "+sys_ptrace,+dac_override,+sys_admin"
        for without in ("", "sys_ptrace", "dac_override", "sys_admin"):
            pods = {}
            for kind, (program, namespace) in kinds.items():
                pod, identity = new()
                words = [program, 1 << 16, 2, *(["filter"] if kind == "filtered" else [])]
                pods[kind] = self.start_pod(identity, *words, uid=pod, user=65534)
                (self.logs / f"{kind}-x2x5q_{namespace}_app-{identity}.log").symlink_to("/nowhere")
            kept = ",".join(one for one in capabilities.split(",") if one != f"+{without}")
            port, log = free_port(), self.work / f"log-{without}"
            with log.open("w") as out:
                observer = subprocess.Popen(["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs",
                                             self.imas.parent / "imas-kube", "node", *self.node.words, "--logs", self.logs,
                                             "--listen", f"127.0.0.1:{port}", "--every", "1", "--trim", "shop"], stderr=out)
            try:
                until(lambda: all(f"process {pods[kind].pid} " in log.read_text() for kind in kinds if kind != "other"))
                said = {kind: next((line for line in log.read_text().splitlines() if f"process {pods[kind].pid} " in line), "") for kind in kinds}
                text = until(lambda: scraped(port), ignoring=(OSError,))
                until(lambda: metrics(scraped(port))["imas_node_trims"] == sum("MiB back" in line for line in said.values()))
                text = scraped(port)
            finally:
                observer.terminate()
                observer.wait()
                for child in pods.values():
                    self.node.children.remove(child)
                    child.kill()
                    child.wait()
                for link in self.logs.iterdir():
                    link.unlink()
            if "may not be traced" in said["plain"] and not without:
                raise Skipped("processes cannot be traced here")
            gave = {kind for kind, line in said.items() if "MiB back" in line}
            expected = {"": {"plain", "filtered"}, "sys_admin": {"plain"}}.get(without, set())
            expect(gave == expected, f"without {without or 'none'}: {said}")
            expect(said["other"] == "" and "left alone" in said["static"], said)
            expect((metrics(text)["imas_node_trim_returned_bytes"] > 40 << 20) == bool(expected), text)
            print(f"  without {without or 'none'}: {sorted(gave)} gave back; static: {said['static'].rpartition('left alone: ')[2]}", flush=True)

    def as_many_mappings_as_a_pod_may_have(self):
        """Pods whose processes have 65,000 mappings, of pages or of files with long names, beside one that is looked at."""
        folder = self.work / "mapped"
        folder.mkdir()
        plain, paged, filed = (new()[1] for _ in range(3))
        self.start_pod(plain, self.app, 1 << 16)
        self.start_pod(paged, self.many, "pages")
        self.start_pod(filed, self.many, "files", folder)
        rows, look, most, took = self.looked_at()
        print(f"  pods with 65,000 mappings: {most:.1f} MiB, {took:.2f} s", flush=True)
        expect(most < MOST_MIB, f"{most:.1f} MiB")
        expect(rows[plain[:12]]["free"] > 40 << 20, rows)
        unseen = {one["id"] for one in look["unseen"]}
        expect(paged[:12] in rows or paged[:12] in unseen, look)
        expect(filed[:12] not in rows and filed[:12] in unseen, look)

    def pods_of_one_user(self):
        """A pod that is slow to look at silences itself, and no other pod whose processes have the same uid."""
        slow, quiet, uid = new()[1], new()[1], new()[0]
        for _ in range(12):
            self.start_pod(slow, self.many, "pages", uid=f"00000000{uid[8:]}", user=65534)  # it is looked at first
        self.start_pod(quiet, self.app, 1 << 16, uid=f"ffffffff{uid[8:]}", user=65534)
        rows, look, most, took = self.looked_at()
        unseen = {one["id"]: one["processes"] for one in look.get("unseen", ())}
        print(f"  beside a slow pod, {unseen.get(slow[:12])} of whose 12 processes were not looked at: {most:.1f} MiB, {took:.2f} s", flush=True)
        expect(quiet[:12] in rows and (rows[quiet[:12]]["free"] or 0) > 40 << 20 and quiet[:12] not in unseen, look)
        expect(unseen.get(slow[:12], 0) > 0, look)
        page = run(self.imas, "kube", "node", *self.node.words, "--logs", self.logs, must=True).stdout
        expect(f"processes of {slow[:12]}" in page and "not looked at" in page, page)
        text = run(self.imas, "kube", "node", *self.node.words, "--metrics", "--logs", self.logs, must=True).stdout
        expect(metrics(text).get('imas_node_unseen_processes{namespace="",workload="",container=""}', 0) > 0, text)

    def names_that_others_give(self):
        """Groups named as containers by a container, a service or a user make none, and what two claim counts for nobody."""
        (victim_uid, victim), (own_uid, own), (_, invented), (_, twice) = new(), new(), new(), new()
        self.start_pod(victim, self.app, 0, uid=victim_uid)
        below = f"{pod_group(own_uid)}/cri-containerd-{own}.scope"
        self.node.start(f"{below}/{pod_group(victim_uid)}/cri-containerd-{victim}.scope", self.app, 0)
        self.node.start(f"{below}/crio-{invented}.scope", self.app, 0)
        for place in ("user.slice/user-1000.slice/user@1000.service", "system.slice/mallory.service"):
            self.node.start(f"{place}/docker-{invented}.scope", self.app, 0)
            self.node.start(f"{place}/{pod_group(victim_uid)}/cri-containerd-{victim}.scope", self.app, 0)
        for runtime in ("cri-containerd", "crio"):
            self.node.start(f"{pod_group(new()[0])}/{runtime}-{twice}.scope", self.app, 0)
        rows, look, _, _ = self.looked_at()
        expect(rows[victim[:12]]["processes"] == 1 and rows[victim[:12]]["pod_uid"] == victim_uid, rows)
        expect(rows[own[:12]]["processes"] == 2 and invented[:12] not in rows, rows)
        expect([one["id"] for one in look["disputed"]] == [twice] and twice[:12] not in rows, look)
        page = run(self.imas, "kube", "node", *self.node.words, "--logs", self.logs, must=True).stdout
        expect(f"left out: 2 groups have the id of container {twice}" in page, page)
        text = run(self.imas, "kube", "node", *self.node.words, "--metrics", "--logs", self.logs, must=True).stdout
        expect(metrics(text)["imas_node_disputed_containers"] == 1, text)

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
        peak = run("/usr/bin/time", "-f", "%M", self.imas, "kube", "node", *self.node.words, "--json", "--logs", self.logs, must=True).stderr.split()[-1]
        print(f"a look at {len(seen)} containers: {took:.2f} s of CPU, {took / 60:.2%} of a core once a minute, {int(peak) / 1024:.1f} MiB", flush=True)
        expect(int(peak) < 50 * 1024, peak)

    def bad_input(self):
        done = run(self.imas, "kube", "node", "--cgroups", "/nowhere")
        expect(done.returncode == 2 and "no control groups of version 2" in done.stderr, done)
        done = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", self.imas, "kube", "node", env={**os.environ, "HOME": "/nonexistent"})
        expect(done.returncode == 0 and "no container that you may look into" in done.stdout, done)


def main():
    imas = imas_of(__doc__)
    cgroups = unified()
    if not cgroups:
        skipped("node", "control groups of version 2 cannot be made here")
        finish("kubernetes-node")
    with tempfile.TemporaryDirectory(prefix="imas-node-") as work, Node(cgroups) as node:
        pathlib.Path(work).chmod(0o755)
        tests = Tests(imas, pathlib.Path(work), node)
        cases(tests, "layouts", "libraries_and_free_memory", "as_the_daemonset_runs_it", "namespaces_whose_pods_are_trimmed", "as_many_mappings_as_a_pod_may_have", "pods_of_one_user", "names_that_others_give", "processes_that_vanish", "five_hundred_pods", "bad_input")
    finish("kubernetes-node")


main()
