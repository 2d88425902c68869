#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/replicas.py IMAS: a Deployment of ten replicas that really run, under load, on a real apiserver.

The pods are those that the policy made. Each runs in an image of a program and its libraries alone, in control groups as
kubelet lays them out, and its memory and CPU time are its processes'. `imas kube settle` has to choose the candidate
that needs less memory and to take back the one under which the program crashes."""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

import cluster  # noqa: E402
import runner  # noqa: E402
from cluster import Cluster, free_port  # noqa: E402
from groups import Node, expect, new, pod_group, unified  # noqa: E402
from imas_testing import Skipped, cases, finish, imas_of, run, skipped, until  # noqa: E402
from kubelet import DEFINITION, Kubelet  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CANDIDATES = "glibc:lean,mimalloc"
LIBRARIES = {"glibc.lean": "libimas-guard.so", "mimalloc": "libmimalloc.so"}
IMAGE = "registry.test/imas:1"
REPLICAS = 10
LIMIT = 256 << 20  # memory of a pod
PAGE = 4096
SECONDS = 90  # that settle looks
ASKS_S = 0.1  # time between two questions to a replica
BUSY = 100  # one question of a hundred is a busy one
REDRAWS = 40


class Container:
    """The container of one pod: started again when it ends, as kubelet does."""

    def __init__(self, pod, start, group, identity):
        self.group, self.identity, self.port = group, identity, free_port()
        self.start = lambda: start(pod, group, self.port)
        self.started = time.time()
        self.ends = threading.Event()
        self.restarts, self.failure, self.first_failure = 0, None, None
        self.began = time.monotonic()
        self.child = self.start()
        self.asker = threading.Thread(target=self._ask)
        self.asker.start()

    def _ask(self):
        """The load: the same for each replica."""
        asked = 0
        while not self.ends.wait(ASKS_S):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=10) as one:
                    while not self.ends.wait(ASKS_S):
                        asked += 1
                        one.sendall(b"b" if asked % BUSY == BUSY // 2 else b"q")
                        if not one.recv(1):
                            break
            except OSError:
                pass  # it starts, or ended

    def look(self):
        code = self.child.poll()
        if code is not None:
            self.first_failure = self.first_failure or time.monotonic()
            self.restarts += 1
            self.failure = {"exitCode": 128 - code if code < 0 else code, "reason": "Error", "restarts": self.restarts}
            self.child, self.started = self.start(), time.time()

    def figures(self):
        """Bytes of its processes, millicores since its start, and how it ended last."""
        memory = 0
        for pid in (self.group / "cgroup.procs").read_text().split():
            try:
                process = pathlib.Path("/proc") / pid
                if (process / "comm").read_text().strip() == "app":
                    memory += int((process / "statm").read_text().split()[1]) * PAGE
            except OSError:
                pass  # it ended
        used = next(line for line in (self.group / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec "))
        cpu = int(used.split()[1]) / 1000 / max(time.monotonic() - self.began, 1)
        return (memory, round(cpu), self.failure) if memory else None

    def end(self):
        self.ends.set()
        self.child.kill()
        self.child.wait()
        self.asker.join()


class Runner(Kubelet):
    """A kubelet that runs the pods of its namespace."""

    every = 1.0

    def __init__(self, here, namespace, node, start, logs):
        super().__init__(here, namespace, lambda pod: self.containers[pod["metadata"]["uid"]].figures())
        self.node, self.start, self.logs = node, start, logs
        self.containers = {}

    def started(self, pod):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.containers[pod["metadata"]["uid"]].started))

    def look(self, pods):
        there = {one["metadata"]["uid"]: one for one in pods}
        for uid in set(self.containers) - set(there):
            self._end(uid)
        for uid, pod in there.items():
            if uid not in self.containers:
                _, identity = new()
                group = self.node.group(f"{pod_group(uid)}/cri-containerd-{identity}.scope")
                if (group / "memory.max").exists():
                    (group / "memory.max").write_text(str(LIMIT))
                self.containers[uid] = Container(pod, self.start, group, identity)
                (self.logs / f"{pod['metadata']['name']}_{self.namespace}_app-{identity}.log").symlink_to("/nowhere")
            self.containers[uid].look()

    def _end(self, uid):
        gone = self.containers.pop(uid)
        gone.end()
        for link in self.logs.glob(f"*-{gone.identity}.log"):
            link.unlink()

    def __exit__(self, *words):
        try:
            super().__exit__(*words)
        finally:
            for uid in list(self.containers):
                self._end(uid)


class Tests:
    def __init__(self, imas, here, node):
        self.imas, self.here, self.node, self.work = imas, here, node, here.work
        self.logs = self.work / "logs"
        self.logs.mkdir()
        self.libraries = runner.unpacked(imas, CANDIDATES, self.work)
        app = self.work / "app"
        run("gcc", "-O1", "-pthread", "-o", app, HERE / "app.c", must=True)
        libraries = [file for file in self.libraries.iterdir() if file.suffix == ".so"]
        self.image = runner.image_of(self.work / "distroless", app, *libraries)
        printed = run(imas, "kube", "policy", "--with", CANDIDATES, "--image", IMAGE, "--image-volume", must=True).stdout
        here.kubectl("apply", "-f", "-", input=printed)
        for name in ("roots", "shop"):
            body = {"metadata": {"name": name, "labels": {"imas.io/policy": "enabled"}}}
            expect(here.request("POST", "/api/v1/namespaces", body).status == 201, name)
        data = {name: f"{name}=100" for name in LIBRARIES} | {"untouched": "mimalloc=0"}
        here.request("POST", "/api/v1/namespaces/roots/configmaps", {"metadata": {"name": "imas"}, "data": data})
        expect(until(lambda: self.admitted("mimalloc")["metadata"]["labels"].get("imas.io/candidate") == "mimalloc"), "no policy")

    def admitted(self, workload, **spec):
        """A pod as the apiserver would store it."""
        app = {"name": "app", "image": "registry.test/app:1", "env": [{"name": "OWN", "value": "mine"}]}
        pod = {"metadata": {"generateName": "x-", "labels": {"imas.io/workload": workload}}, "spec": {"containers": [app], **spec}}
        answer = self.here.create("pods", "roots", pod, dry_run=True)
        expect(answer.status == 201, answer)
        return answer.body

    def kube(self, *words, status=0):
        done = run(self.imas, "kube", *words, env=self.here.environment, timeout=300)
        expect(done.returncode == status, done)
        return done

    # ---- images

    def an_image_without_a_shell(self):
        """As a user of no rights, with a read-only root: the candidate serves, and the program has its variables and the pod's."""
        strict = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
        for workload, library in {**LIBRARIES, "untouched": None}.items():
            child = runner.start(self.admitted(workload, securityContext=strict), self.libraries, ["/app"], image=self.image)
            out, err = child.communicate(timeout=60)
            given = self.admitted(workload)["spec"]["containers"][0]["env"]
            expected = {*(one["name"] for one in given), *(["/opt/imas/libimas-guard.so", f"/opt/imas/{library}"] if library else [])}
            expect(child.returncode == 0 and set(out.split()) == expected and "OWN" in expected and not err, (workload, out, err))

    def an_image_with_musl(self):
        """No program starts there under a library for glibc, as is said; an untouched one does."""
        image = runner.musl_image(self.work / "musl", HERE / "app.c")
        for workload in (*LIBRARIES, "untouched"):
            child = runner.start(self.admitted(workload), self.libraries, ["/app"], image=image)
            out, err = child.communicate(timeout=60)
            if workload == "untouched":
                expect(child.returncode == 0 and out.split() == ["OWN"], (out, err))
            else:
                expect(child.returncode == 127 and "/opt/imas/" in err, (workload, child.returncode, out, err))

    # ---- the Deployment

    def start(self, pod, group, port):
        return runner.start(pod, self.libraries, ["/app", port], group, self.image, output=subprocess.DEVNULL)

    def pods(self):
        listed = self.here.get("/api/v1/namespaces/shop/pods").body["items"]
        return [one for one in listed if "deletionTimestamp" not in one["metadata"]]

    def given(self):
        return [one["metadata"]["labels"].get("imas.io/candidate") for one in self.pods()]

    def entry(self):
        return self.here.get("/api/v1/namespaces/shop/configmaps/imas").body.get("data", {}).get("web", "")

    def deploy(self):
        app = {"name": "app", "image": "registry.test/app:1", "env": [{"name": "OWN", "value": "mine"}],
               "resources": {"limits": {"memory": str(LIMIT)}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [app]}}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template, "strategy": {"type": "Recreate"}}
        answer = self.here.create("apis/apps/v1/deployments", "shop", {"metadata": {"name": "web"}, "spec": spec})
        expect(answer.status == 201, answer)
        expect(until(lambda: len(self.pods()) == REPLICAS), "no pods")

    def drawn(self):
        """Pods, at least three with the better candidate and three without: chance decides, so it is asked again."""
        def is_enough():
            given = self.given()
            return len(given) == REPLICAS and None not in given

        for _ in range(REDRAWS):
            expect(until(is_enough), self.given())
            given = self.given()
            if given.count("glibc.lean") >= 3 and given.count("system") >= 3 and given.count("mimalloc") >= 1:
                return
            names = {one["metadata"]["name"] for one in self.pods()}
            self.here.kubectl("delete", "pods", "-n", "shop", "--all", "--wait=false")
            expect(until(lambda names=names: not names & {one["metadata"]["name"] for one in self.pods()}), "pods are there still")
        raise Skipped(f"chance gave no such pods {REDRAWS} times")

    def advised(self):
        """What the observer says before any trial: the free memory of the workload on this node."""
        done = run(self.imas, "kube", "node", *self.node.words, "--advise", "--json", "--logs", self.logs, must=True)
        rows = json.loads(done.stdout)["workloads"]
        return next((one for one in rows if (one["namespace"], one["workload"]) == ("shop", "web")), None)

    def settle_chooses(self):
        answer = self.here.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        expect(answer.status == 201, answer)
        until(lambda: self.here.get("/apis/metrics.k8s.io/v1beta1").status == 200)
        self.deploy()
        with Runner(self.here, "shop", self.node, self.start, self.logs) as kubelet:
            expect(until(lambda: len(kubelet.seen) >= REPLICAS, 120), kubelet.seen)
            enough = lambda: (seen := self.advised()) and seen["containers"] == REPLICAS and (seen["free"] or 0) > 80 << 20 and seen
            advised = until(enough, 120)
            expect(advised and "imas kube try web -n shop --with glibc:arena1" in advised["advice"], self.advised())
            print(f"before a trial: {advised['free'] >> 20} of {advised['resident'] >> 20} MiB are free", flush=True)
            self.kube("try", "web", "-n", "shop", "--with", CANDIDATES, "--share", "30%", "--write")
            self.drawn()
            print("replicas:", {name: self.given().count(name) for name in sorted(set(self.given()))}, flush=True)
            began = time.monotonic()
            child = subprocess.Popen(
                [self.imas, "kube", "settle", "web", "-n", "shop", "--for", str(SECONDS), "--every", "2", "--write", "--json"],
                env=self.here.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            crash = lambda: min((one.first_failure for one in list(kubelet.containers.values()) if one.first_failure), default=None)
            crashed = until(crash)
            expect(crashed, "nothing crashes")
            expect(until(lambda: "withdrawn=mimalloc" in self.entry()), self.entry())
            print(f"from a crash to the withdrawal: {time.monotonic() - max(began, crashed):.1f} s", flush=True)
            expect(until(lambda: "mimalloc" not in self.given()), self.given())
            out, err = child.communicate(timeout=SECONDS + 120)
        expect(child.returncode == 0, (out, err))
        document = json.loads(out)
        candidates = {one["candidate"]: one for one in document["candidates"]}
        low, middle, high = candidates["glibc.lean"]["memory"]
        print(f"memory under glibc.lean by untouched pods': {middle:.2f} [{low:.2f}, {high:.2f}]", flush=True)
        expect(document["best"] == "glibc.lean" and high < 0.9, document)
        expect("its pods fail (Error" in candidates["mimalloc"]["withdraw"], candidates["mimalloc"])
        expect(self.entry() == "container=app glibc.lean=100 withdrawn=mimalloc", self.entry())


def main():
    imas = imas_of(__doc__)
    cgroups = unified()
    why = cluster.missing() or ("" if cgroups else "control groups of version 2 cannot be made here")
    if why or not shutil.which("umoci"):
        skipped("replicas", why or "umoci is not installed")
        finish("kubernetes-replicas")
    with tempfile.TemporaryDirectory(prefix="imas-replicas-") as work, Cluster(pathlib.Path(work)) as here, Node(cgroups) as node:
        tests = Tests(imas, here, node)
        cases(tests, "an_image_without_a_shell", "an_image_with_musl", "settle_chooses")
    finish("kubernetes-replicas")


main()
