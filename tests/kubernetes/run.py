#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/run.py IMAS: what `imas kube` prints, on a real kube-apiserver with its real controllers.

etcd is Debian's; tests/kubernetes/build builds the rest, once. Everything runs on loopback and ends with the test. Pods are
never started here; what the apiserver makes of them is looked at."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import yaml

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

import cluster  # noqa: E402
from admission import BINDING, CANDIDATES, IMAGE, Admission, Seen, container, pod, template  # noqa: E402
from cluster import Cluster  # noqa: E402
from kubelet import DEFINITION, Kubelet  # noqa: E402
from groups import expect  # noqa: E402
from imas_testing import Skipped, case, cases, finish, imas_of, run, skipped, until  # noqa: E402
from prometheus import Prometheus  # noqa: E402

REPLICAS = 40
# Images in which admitted pods run, with the version of their C library.
ROOTS = (("Debian", "bookworm", "2.36"), ("Debian", "trixie", "2.41"), ("Ubuntu", "noble", "2.39"))


class Tests(Admission):
    # ---- a trial

    def entry(self, workload="shop"):
        return self.here.get("/api/v1/namespaces/trial/configmaps/imas").body.get("data", {}).get(workload)

    def pods(self, namespace="trial"):
        """Those that are not about to go."""
        listed = self.here.get(f"/api/v1/namespaces/{namespace}/pods").body["items"]
        return [Seen(one) for one in listed if "deletionTimestamp" not in one["metadata"]]

    def is_replaced(self):
        """Whether all pods came after the entry that is in force."""
        pods = self.pods()
        return len(pods) == REPLICAS and all(one.candidate for one in pods)

    def deployment(self, namespace, replicas, containers=None):
        """A Deployment of the name shop, without a label of ours."""
        made = template(workload=None, labels={"app": "shop"}, containers=containers)
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "shop"}}, "template": made, "strategy": {"type": "Recreate"}}
        answer = self.here.create("apis/apps/v1/deployments", namespace, {"metadata": {"name": "shop"}, "spec": spec})
        expect(answer.status == 201, answer)

    def metrics_server(self):
        answer = self.here.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        expect(answer.status in (201, 409), answer)
        until(lambda: self.here.get("/apis/metrics.k8s.io/v1beta1").status == 200)

    def a_trial_is_begun(self):
        self.metrics_server()
        self.namespace("trial")
        self.configure("trial", {"other": "jemalloc=7"})
        self.deployment("trial", REPLICAS, [container("proxy"), container()])
        expect(until(lambda: len(self.pods()) == REPLICAS), "no pods")
        words = ["try", "shop", "-n", "trial", "--with", "jemalloc,glibc:lean", "--share", "30%"]
        expect("which container? It has proxy, app" in self.kube(*words, status=2).stderr, "a container has to be named")
        words += ["--container", "app"]
        printed = self.kube(*words)
        expect(self.entry() is None and "jemalloc=30" in printed.stdout and "other: jemalloc=7" in printed.stdout, printed)
        self.here.kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-", input=printed.stdout)
        self.kube(*words, "--write")
        expect(self.entry() == "container=app glibc.lean=30 jemalloc=30" and self.entry("other") == "jemalloc=7", self.entry())
        expect(until(self.is_replaced), "the pods are not replaced")
        given = [one.candidate for one in self.pods()]
        print("replicas of a trial:", {name: given.count(name) for name in sorted(set(given))}, flush=True)
        groups = json.loads(self.kube("status", "-n", "trial", "--json").stdout)["groups"]
        counted = {one["candidate"]: one["pods"] for one in groups if one["workload"] == "shop"}
        expect(counted == {name: given.count(name) for name in set(given)}, (counted, given))

    def the_better_one_is_found(self):
        """The candidate with less memory is found, and the one that fails is taken back at once."""
        failing = {}
        sizes = {"system": 100, "jemalloc": 70, "glibc.arena1": 60}

        def figures(one):
            seen = Seen(one)
            if not seen.candidate:
                return None
            noise = sum(map(ord, one["metadata"]["name"])) % 7
            if seen.candidate == "glibc.lean":
                failing.setdefault("name", one["metadata"]["name"])
            failure = {"exitCode": 137, "reason": "OOMKilled"} if failing.get("name") == one["metadata"]["name"] else None
            return (sizes[seen.candidate] * 1_000_000 + noise * 400_000, 100 + noise, failure)

        with Kubelet(self.here, "trial", figures) as kubelet:
            everyone = lambda: len(kubelet.seen) >= REPLICAS
            expect(until(everyone), f"{len(kubelet.seen)} pods are reported")
            said = self.kube("settle", "shop", "-n", "trial", "--for", "1", "--every", "0.5")
            expect("glibc.lean is taken back" in said.stderr and "OOMKilled" in said.stderr and "best: jemalloc" in said.stdout, said)
            printed = self.kube("settle", "shop", "-n", "trial", "--for", "1", "--every", "0.5", "--print").stdout
            decided = {"other": "jemalloc=7", "shop": "container=app jemalloc=100 withdrawn=glibc.lean"}
            expect(yaml.safe_load(printed)["data"] == decided and "# best: jemalloc" in printed, printed)
            self.here.kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-", input=printed)
            expect("lean=30" in self.entry(), "nothing is written without --write")
            began = time.monotonic()
            child = subprocess.Popen(
                [self.imas, "kube", "settle", "shop", "-n", "trial", "--for", "10", "--every", "0.5", "--write", "--json"],
                env=self.here.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            withdrawn = until(lambda: "withdrawn=glibc.lean" in self.entry())
            print(f"from a crash that is there to its withdrawal: {time.monotonic() - began:.1f} s", flush=True)
            expect(withdrawn, self.entry())
            expect(until(lambda: not any(one.candidate == "glibc.lean" for one in self.pods())), "its pods are there still")
            out, err = child.communicate(timeout=90)
        document = json.loads(out)
        expect(child.returncode == 0 and document["best"] == "jemalloc", (out, err))
        expect(self.entry() == "container=app jemalloc=100 withdrawn=glibc.lean" and self.entry("other") == "jemalloc=7", self.entry())
        low, middle, high = {one["candidate"]: one for one in document["candidates"]}["jemalloc"]["memory"]
        expect(0.65 < low < middle < high < 0.75, (low, middle, high))

    def deployed(self, namespace, replicas=16):
        """A Deployment of that many pods in a namespace of its own, half of them under jemalloc."""
        self.metrics_server()
        self.namespace(namespace)
        self.settled(namespace, {})
        self.deployment(namespace, replicas)
        self.kube("try", "shop", "-n", namespace, "--with", "jemalloc", "--share", "50%", "--write")
        pods = lambda: self.pods(namespace)
        expect(until(lambda: len(pods()) == replicas and {one.candidate for one in pods()} == {"jemalloc", "system"}), "no pods of both kinds")
        return pods

    def images_that_cannot_be_had(self):
        """The application's own image says nothing about a candidate; the libraries' image, and a program that crashed, do."""
        pods = self.deployed("images")
        name = next(one.pod["metadata"]["name"] for one in pods() if one.candidate == "jemalloc")
        pulls = lambda image: {"reason": "ErrImagePull", "message": f'failed to pull image "{image}": not found'}
        expected = (
            (pulls("registry.test/app:1"), ""), ({"exitCode": 128, "reason": "StartError"}, ""),
            (pulls(IMAGE), "its pods wait for the libraries (ErrImagePull)"), ({"exitCode": 139, "reason": "Error"}, "its pods fail (Error"),
        )
        for failure, said in expected:
            figures = lambda one, failure=failure: (100_000_000, 100, failure if one["metadata"]["name"] == name else None)
            with Kubelet(self.here, "images", figures) as kubelet:
                expect(until(lambda: len(kubelet.seen) >= 16), kubelet.seen)
                done = self.kube("settle", "shop", "-n", "images", "--for", "1", "--every", "0.5", status=1)
            expect(said in done.stderr and ("is taken back" in done.stderr) == bool(said), (failure, done))

    def an_apiserver_that_is_away(self):
        """From the beginning it is an error that says what to do. While settle runs a look is missing, and what failed meanwhile is
        taken back as soon as it answers. A candidate that somebody begins again is left to him."""
        pods = self.deployed("away")
        here = self.here.work / "away"
        here.mkdir()
        calls, away, said = here / "calls", here / "is-away", here / "said"
        (here / "kubectl").write_text(
            f"#!/bin/sh\necho \"$*\" >>'{calls}'\n[ ! -e '{away}' ] || set -- --server=https://127.0.0.1:1 \"$@\"\n"
            f"exec '{cluster.PROGRAMS}/kubectl' \"$@\"\n")
        (here / "kubectl").chmod(0o755)
        environment = {**self.here.environment, "PATH": f"{here}:{self.here.environment['PATH']}"}
        away.touch()
        done = run(self.imas, "kube", "status", "-n", "away", env=environment)
        expect(done.returncode == 2 and "was refused" in done.stderr and "hint: does 'kubectl cluster-info' answer?" in done.stderr, done)
        expect(len(done.stderr.splitlines()) == 2, done)
        away.unlink()
        crashes = []
        failure = {"exitCode": 139, "reason": "Error"}
        figures = lambda one: (100_000_000, 100, failure if crashes and Seen(one).candidate == "jemalloc" else None)
        entry = lambda: self.here.get("/api/v1/namespaces/away/configmaps/imas").body["data"]["shop"]
        looks = lambda: calls.read_text().count("get pods")
        with Kubelet(self.here, "away", figures) as kubelet, open(said, "w", encoding="utf-8") as errors:
            expect(until(lambda: len(kubelet.seen) >= 16), kubelet.seen)
            words = ["kube", "settle", "shop", "-n", "away", "--for", "600", "--every", "0.2", "--write"]
            child = subprocess.Popen([self.imas, *words], env=environment, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                expect(until(lambda: looks() >= 2), said.read_text())
                away.touch()
                crashes.append("now")
                expect(until(lambda: "was refused" in said.read_text()), said.read_text())
                expect(until(lambda: any(found[2] for found in kubelet.seen.values())), kubelet.seen)
                expect("withdrawn" not in entry(), entry())
                began = time.monotonic()
                away.unlink()
                expect(until(lambda: "withdrawn=jemalloc" in entry()), (entry(), said.read_text()))
                print(f"from the apiserver's return to the withdrawal: {time.monotonic() - began:.1f} s", flush=True)
                named = lambda: {one.pod["metadata"]["name"]: one.candidate for one in pods()}
                gone = lambda: len(named()) == 16 and "jemalloc" not in named().values()
                expect(until(gone), "its pods are there still")
                crashes.clear()
                old = set(named())
                self.kube("try", "shop", "-n", "away", "--with", "jemalloc", "--share", "50%", "--write")
                names = lambda: {name for name, candidate in named().items() if candidate == "jemalloc"}
                expect(until(lambda: len(named()) == 16 and not old & set(named()) and names()), "no pods of it")
                before, seen = names(), looks()
                expect(until(lambda: looks() >= seen + 4), said.read_text())
                expect(before <= names() and "withdrawn" not in entry(), (before, names(), entry(), said.read_text()))
                expect(child.poll() is None, said.read_text())
            finally:
                child.kill()
                child.wait()

    def what_does_not_serve(self):
        """A look into pods that finds the candidate takes nothing back; where it is missed twice it is."""
        self.deployed("inside")
        here = self.here.work / "inside"
        here.mkdir()
        said, asked = here / "said", here / "asked"
        (here / "kubectl").write_text(
            f"#!/bin/sh\ncase $* in *' exec '*) echo \"$*\" >>'{asked}'; exec cat '{said}' ;; esac\nexec '{cluster.PROGRAMS}/kubectl' \"$@\"\n")
        (here / "kubectl").chmod(0o755)
        environment = {**self.here.environment, "PATH": f"{here}:{self.here.environment['PATH']}"}
        words = ["kube", "settle", "shop", "-n", "inside", "--for", "2", "--every", "0.5", "--look-inside"]
        libraries = "/opt/imas/libimas-guard.so\n/opt/imas/libjemalloc.so\n"
        with Kubelet(self.here, "inside", lambda one: (100_000_000, 100, None)) as kubelet:
            expect(until(lambda: len(kubelet.seen) >= 16), kubelet.seen)
            for text, is_back in ((f"= 900 server\n{libraries}= 9 sh\n", False), (f"= 9 sh\n{libraries}= 900 server\n/lib/libc.so.6\n", True)):
                said.write_text(text)
                done = run(self.imas, *words, env=environment)
                expect(("jemalloc is taken back: it does not serve in server, which" in done.stderr) == is_back, done)
        into = [line.split(" exec ")[1].split() for line in asked.read_text().splitlines() if " exec " in line]
        expect(len({words[0] for words in into}) > 1 and all(words[1:3] == ["--container", "app"] for words in into), into)

    def settled_by(self, namespace, *words, status):
        """What a short look at the Deployment of that namespace says of jemalloc."""
        done = self.kube("settle", "shop", "-n", namespace, "--for", "2", "--every", "0.5", "--json", *words, status=status)
        return json.loads(done.stdout)["candidates"][0], json.loads(done.stdout), done.stderr

    def types_of_nodes(self):
        """Pods on small nodes need half as much, and most of the candidate's are there: compared on nodes of one type, they are alike."""
        pods = self.deployed("nodes", 40)
        for name in ("small", "large"):
            labels = {"node.kubernetes.io/instance-type": name}
            answer = self.here.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            expect(answer.status == 201, answer)
        nodes = {}
        for candidate, few, many in (("jemalloc", "large", "small"), ("system", "small", "large")):
            own = [one.pod["metadata"]["name"] for one in pods() if one.candidate == candidate]
            nodes |= {name: few if number < 3 else many for number, name in enumerate(own)}
        for name, node in nodes.items():
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            answer = self.here.request("POST", f"/api/v1/namespaces/nodes/pods/{name}/binding", target)
            expect(answer.status == 201, answer)
        factor = {"jemalloc": 1.0, "system": 1.0}

        def figures(one):
            name = one["metadata"]["name"]
            size = (50 if nodes[name] == "small" else 100) * factor[Seen(one).candidate] * (1 + sum(map(ord, name)) % 7 / 500)
            return int(size * 1_000_000), 100, None

        self.here.kubectl("apply", "-f", "-", input=run(self.imas, "kube", "rbac", must=True).stdout)
        self.here.kubectl("create", "rolebinding", "guest-look", "-n", "nodes", "--clusterrole=imas-look", "--user=guest")
        with Kubelet(self.here, "nodes", figures) as kubelet:
            expect(until(lambda: len(kubelet.seen) == 40), kubelet.seen)
            alike, _, said = self.settled_by("nodes", status=1)
            expect(abs(alike["memory"][1] - 1) < 0.04 and "across all types" not in said, (alike, said))
            words = ["settle", "shop", "-n", "nodes", "--for", "1", "--every", "0.5"]
            expect(until(lambda: self.by("guest", *words).returncode == 0), "who may not list nodes compares across types")
            said = self.by("guest", *words)
            expect(said.stderr.count("across all types of nodes") == 1 and "best: jemalloc" in said.stdout, said)
        factor["jemalloc"] = 0.7
        with Kubelet(self.here, "nodes", figures) as kubelet:
            expect(until(lambda: len(kubelet.seen) == 40), kubelet.seen)
            better = self.settled_by("nodes", status=0)[0]
            expect(0.66 < better["memory"][0] < better["memory"][2] < 0.74, better)

    def load_by_a_prometheus(self):
        """A candidate that answers twice as much with half more CPU is better by request; not where its latency is proven longer."""
        pods = self.deployed("load")
        given = {one.pod["metadata"]["name"]: one.candidate for one in pods()}
        began = time.monotonic()

        def exposed():
            lines = []
            for name, candidate in given.items():
                labels = f'pod="{name}",namespace="load"'
                count = (time.monotonic() - began) * (20 if candidate == "jemalloc" else 10)
                lines.append(f"requests_total{{{labels}}} {count}")
                for histogram, slow in (("even", False), ("slow", candidate == "jemalloc")):
                    for bound in ("0.1", "0.2", "0.4", "+Inf"):
                        below = 0 if bound == "0.1" or (bound == "0.2" and slow) else count
                        lines.append(f'{histogram}_bucket{{{labels},le="{bound}"}} {below}')
            return "\n".join(lines) + "\n"

        def figures(one):
            return 100_000_000, (150 if Seen(one).candidate == "jemalloc" else 100) + sum(map(ord, one["metadata"]["name"])) % 3, None

        requests = "sum by (pod) (rate(requests_total[10s]))"
        p99 = "histogram_quantile(0.99, sum by (pod, le) (rate({}_bucket[10s])))"
        with Prometheus(self.here.work, exposed) as prometheus, Kubelet(self.here, "load", figures) as kubelet:
            prometheus.has(f"{requests} > 5", len(given))
            expect(until(lambda: len(kubelet.seen) == len(given)), kubelet.seen)
            asked = ["--prometheus", prometheus.url, "--requests", requests]
            by_time, document, _ = self.settled_by("load", status=1)
            expect(document["cpu_by"] == "time" and 1.4 < by_time["cpu"][1] < 1.6 and by_time["latency"] is None, document)
            page = self.kube("settle", "shop", "-n", "load", "--for", "0.1", status=1).stdout
            expect("CPU is by time, not by request" in page, page)
            by_request, document, _ = self.settled_by("load", *asked, "--latency", p99.format("even"), status=0)
            print(f"CPU by time {by_time['cpu'][1]:.2f}, by request {by_request['cpu'][1]:.2f}", flush=True)
            expect(document["cpu_by"] == "request" and 0.7 < by_request["cpu"][1] < 0.8 and document["best"] == "jemalloc", document)
            expect(abs(by_request["latency"][1] - 1) < 0.01, document)
            slow, document, _ = self.settled_by("load", *asked, "--latency", p99.format("slow"), status=1)
            expect(slow["cpu"][1] < 0.8 and 1.9 < slow["latency"][1] < 2.1 and document["best"] is None, document)
            for query, said in (("sum by (", "parse error"), ("nothing", "no figure of a pod"), ("sum(requests_total)", "without the label pod")):
                found, _, warned = self.settled_by("load", "--prometheus", prometheus.url, "--requests", query, status=1)
                expect(found["cpu"] is None and said in warned, (query, found, warned))
            self.queries_as_data(prometheus.url, {"_requests": requests, "_latency": p99.format("even")}, p99.format("slow"))
        found, _, warned = self.settled_by("load", *asked, status=1)
        expect(found["cpu"] is None and found["memory"] and "curl" in warned, (found, warned))  # it is away

    def queries_as_data(self, url, kept, slow):
        """The ConfigMap has the queries; an option counts in place of its key."""
        done = self.kube("settle", "shop", "-n", "load", "--prometheus", url, status=2)
        expect("--requests or --latency" in done.stderr and "_requests or _latency" in done.stderr, done)
        answer = self.here.request("PATCH", "/api/v1/namespaces/load/configmaps/imas", {"data": kept})
        expect(answer.status == 200, answer)
        by_request, document, _ = self.settled_by("load", "--prometheus", url, status=0)
        expect(document["cpu_by"] == "request" and abs(by_request["latency"][1] - 1) < 0.01, document)
        found, document, _ = self.settled_by("load", "--prometheus", url, "--latency", slow, status=1)
        expect(document["cpu_by"] == "request" and 1.9 < found["latency"][1] < 2.1, document)
        expect(self.settled_by("load", status=1)[1]["cpu_by"] == "time", "a Prometheus that nobody named")
        expect("_requests" not in str(self.kube("status", "-n", "load")), "a query that is taken for a workload")

    def rights_are_the_least(self):
        """With the printed roles each verb works for people who have no other right, and no verb works with another's."""
        roles = run(self.imas, "kube", "rbac", must=True).stdout
        expect(self.here.kubectl("apply", "-f", "-", input=roles).stdout.count("created") == 5, "the roles")
        pods = self.deployed("rights")
        people = {"looker": ["look"], "trier": ["look", "try"], "settler": ["look", "settle"], "nobody": []}
        for name, given in people.items():
            for role in given:
                self.here.kubectl("create", "rolebinding", f"{name}-{role}", "-n", "rights", f"--clusterrole=imas-{role}", f"--user={name}")
            if given:
                self.here.kubectl("create", "clusterrolebinding", name, "--clusterrole=imas-policy", f"--user={name}")
        tries = ["try", "shop", "-n", "rights", "--with", "mimalloc", "--share", "50%"]
        settles = ["settle", "shop", "-n", "rights", "--for", "1", "--every", "0.5"]
        until(lambda: self.by("looker", *tries).returncode == 0)
        for name, words, status in (
            ("looker", ["status", "-n", "rights"], 0), ("looker", tries, 0), ("looker", [*tries, "--write"], 2), ("looker", settles, 1),
            ("settler", [*tries, "--write"], 2), ("nobody", ["status", "-n", "rights"], 2), ("nobody", tries, 2), ("nobody", settles, 2),
            ("looker", ["status", "-n", "apps"], 2), ("trier", [*tries, "--write"], 0),
        ):
            done = self.by(name, *words)
            expect(done.returncode == status and (status != 2 or "forbidden" in done.stderr.lower()), f"{name} {words}: {done}")
        expect(until(lambda: len(pods()) == 16 and {one.candidate for one in pods()} == {"mimalloc", "system"}), "the pods are not replaced")
        failure = {"exitCode": 139, "reason": "Error"}
        figures = lambda one: (100_000_000, 100, failure if Seen(one).candidate == "mimalloc" else None)
        entry = lambda: self.here.get("/api/v1/namespaces/rights/configmaps/imas").body["data"]["shop"]
        with Kubelet(self.here, "rights", figures) as kubelet:
            expect(until(lambda: len(kubelet.seen) >= 16), kubelet.seen)
            done = self.by("trier", *settles, "--write")
            expect("forbidden" in done.stderr.lower() and any(one.candidate == "mimalloc" for one in pods()), done)
            # The entry says so already; the pods are left. Half of all stay until others are ready.
            self.by("settler", *settles[:4], "--for", "10", "--every", "0.5", "--write")
        expect("withdrawn=mimalloc" in entry() and until(lambda: not any(one.candidate == "mimalloc" for one in pods())), entry())

    def the_observer_has_what_it_says(self):
        """The apiserver takes the DaemonSet; beyond "restricted" its pod has what the file names, and no more."""
        printed = run(self.imas, "kube", "daemonset", "--image", "registry.test/node:1", must=True).stdout
        self.here.kubectl("apply", "-f", "-", input=printed)
        made = self.here.get("/apis/apps/v1/namespaces/imas-node/daemonsets/imas-node").body
        wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "node"}, "spec": made["spec"]["template"]["spec"]}
        answer = self.here.create("pods", "imas-node", wanted, dry_run=True)
        expect(answer.status == 201, answer)
        self.namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"})
        answer = self.here.create("pods", "strict", wanted, dry_run=True)
        said = str(answer.body.get("message", ""))
        expect(answer.status == 403, answer)
        for part in ("hostPID=true", "DAC_READ_SEARCH", "SYS_PTRACE", 'volume type "hostPath"', "runAsNonRoot"):
            expect(part in said, f"{part}: {said}")
        for part in ("allowPrivilegeEscalation", "seccompProfile", "hostNetwork", "hostIPC", "privileged (", "hostPort"):
            expect(part not in said, f"{part}: {said}")

    def bad_input(self):
        refused = (
            (["try", "nothing", "-n", "trial", "--with", "jemalloc"], "there is no deployment nothing"),
            (["try", "shop", "-n", "trial", "--with", "mimalloc2", "--container", "app"], "the cluster's policy has no such candidate"),
            (["try", "shop", "-n", "trial", "--with", "jemalloc,mimalloc", "--share", "50%"], "must stay untouched"),
            (["try", "shop", "-n", "trial", "--with", "jemalloc", "--container", "x"], "which container?"),
            (["try", "a b;c", "--with", "jemalloc"], "not the name of a workload"),
            (["try", "shop", "--with", "jemalloc", "--share", "0%"], "a share from 1% to 100%"),
            (["status", "-n", "-x"], "unexpected argument"),
            (["policy", "--with", "system", "--image", "x"], "nothing to set"),
            (["policy", "--with", "jemalloc", "--image", "x y"], "not an image's reference"),
            (["policy", "--with", "jemalloc", "--image", "x", "--at", "/a:b"], "a whole path"),
            (["policy", "--with", "nonsense", "--image", "x"], "nonsense"),
            (["policy", "--with", "jemalloc", "--image", "x", "--api", "v2"], "v1beta1"),
            (["daemonset", "--image", "x", "-n", "a\"b"], "not a namespace's name"),
            (["daemonset", "--image", "x\ny: z"], "not an image's reference"),
            (["node", "--metrics", "--json"], "cannot be used with"),
            (["node", "--listen", "nowhere"], "invalid"),
            (["settle", "shop", "--requests", "x"], "--prometheus <URL>"),
            (["settle", "shop", "--prometheus", "-x", "--requests", "x"], "unexpected argument"),
            (["settle", "shop", "--prometheus", "file:///etc/passwd", "--requests", "x"], "begins with http://"),
        )
        for words, said in refused:
            done = self.kube(*words, status=2)
            expect(said in done.stderr and not done.stdout, f"{words}: {done}")
        nowhere = {**self.here.environment, "KUBECONFIG": "/dev/null"}
        done = run(self.imas, "kube", "status", env=nowhere)
        expect(done.returncode == 2 and "kubectl" in done.stderr, done)
        done = run(self.imas, "kube", "status", env={**self.here.environment, "PATH": "/nowhere"})
        expect(done.returncode == 2 and "install kubectl" in done.stderr, done)

    def of_kubernetes_1_34(self):
        """The same policy by the beta of the interface, in place of the other one."""
        beta = BINDING.replace("/v1/", "/v1beta1/")
        if self.here.get(beta).status == 404:
            raise Skipped("this apiserver does not serve v1beta1")
        printed = run(self.imas, "kube", "policy", "--with", CANDIDATES, "--image", IMAGE, "--api", "v1beta1", must=True).stdout
        self.here.kubectl("delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--all")
        expect(until(lambda: self.tried("apps", pod()).untouched()), "pods are changed still")
        self.here.kubectl("apply", "-f", "-", input=printed)
        self.settled("apps", {"web": "jemalloc=100"})
        seen = self.tried("apps", pod())
        expect(seen.candidate == "jemalloc" and seen.copiers and "emptyDir" in seen.volumes[0], seen)
        self.kube("try", "shop", "-n", "trial", "--with", "jemalloc", "--container", "app")

    def the_documentation_works(self):
        """What docs/kubernetes.md has a reader type from nothing to an answer, but for what needs a node or the network."""
        page = (cluster.ROOT / "docs/kubernetes.md").read_text()
        page = page[page.index("## From nothing to an answer"):page.index("## In your own cluster")]
        blocks = page.split("```\n")[1::2]
        self.metrics_server()
        here = self.here.work / "reader"
        here.mkdir()
        manifest = next(one for one in blocks if one.startswith("apiVersion"))
        (here / "web.yaml").write_text(manifest)
        lines = [line for one in blocks if one != manifest for line in one.replace("\\\n", " ").splitlines()]
        not_here = ("kind ", "curl ", "export ", "kubectl apply -f https", "kubectl patch", "kubectl rollout", *(() if shutil.which("skopeo") else ("skopeo",)))
        lines = [line for line in lines if not line.startswith(not_here)]
        environment = {**self.here.environment, "PATH": f"{self.imas.parent}:{self.here.environment['PATH']}"}
        sh = lambda line: run("sh", "-c", line, cwd=here, env=environment, must=True)
        pods = lambda: [one.candidate for one in self.pods("shop")]
        there = lambda: {one["metadata"]["name"] for one in self.here.get("/api/v1/namespaces/shop/pods").body["items"]}
        sizes = {"system": 100, "glibc.arena1": 60, None: 100}
        figures = lambda one: (sizes[Seen(one).candidate] * 1_000_000 + sum(map(ord, one["metadata"]["name"])) % 7 * 100_000, 100, None)
        with Kubelet(self.here, "shop", figures) as kubelet:
            for line in (one for one in lines if not one.startswith("imas kube settle")):
                sh(line)
            for _ in range(20):
                expect(until(lambda: len(pods()) == 12 and None not in pods()), pods())
                if min(pods().count("system"), pods().count("glibc.arena1")) >= 3:
                    break
                old = there()
                sh("kubectl rollout restart deployment web -n shop")
                expect(until(lambda: not old & there()), (old, there()))
            expect(until(lambda: there() <= set(kubelet.seen)), kubelet.seen)
            done = sh(next(one for one in lines if one.startswith("imas kube settle")).replace("--for 300", "--for 1"))
        expect("best: glibc.arena1" in done.stdout, done)
        entry = self.here.get("/api/v1/namespaces/shop/configmaps/imas").body["data"]["web"]
        expect(entry == "container=app glibc.arena1=100" and any("imas kube image" in one for one in lines), (entry, lines))

    def it_ends_with_its_binding(self):
        self.here.kubectl("delete", "mutatingadmissionpolicybinding", "imas")
        gone = lambda: self.tried("apps", pod()).untouched()
        expect(until(gone), "pods are changed still")


def main():
    imas = imas_of(__doc__)
    if why := cluster.missing():
        skipped("kubernetes", why)
        finish("kubernetes")
    with tempfile.TemporaryDirectory(prefix="imas-kubernetes-") as work, Cluster(pathlib.Path(work)) as here:
        print("apiserver", here.get("/version").body["gitVersion"], flush=True)
        tests = Tests(imas, here)
        if case("is created", tests.is_created) is None:
            tests.is_created()
        cases(
            tests,
            "every_kind_of_pod", "init_containers_and_sidecars", "several_containers", "own_values_win",
            "env_from_may_hold_anything", "places_that_are_taken", "who_did_not_opt_in", "restricted_pods", "real_controllers",
        )
        for label, suite, version in ROOTS:
            case(f"admitted pods run in {label} {suite}", tests.admitted_pods_run, label, suite, version)
        cases(
            tests,
            "shares", "nothing_failed_so_far", "a_trial_is_begun", "the_better_one_is_found", "images_that_cannot_be_had",
            "an_apiserver_that_is_away", "load_by_a_prometheus", "rights_are_the_least", "types_of_nodes", "what_does_not_serve",
            "the_observer_has_what_it_says", "bad_input", "a_hostile_config_map", "with_a_copier",
            "the_copier_is_what_the_pod_is", "of_kubernetes_1_34", "the_documentation_works", "it_ends_with_its_binding",
        )
    finish("kubernetes")


main()
