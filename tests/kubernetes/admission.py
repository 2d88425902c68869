# SPDX-License-Identifier: Apache-2.0
"""Pods as the policy of `imas kube policy` makes them."""

import concurrent.futures
import json
import math
import os

import yaml

import runner
from groups import Node, expect, new, pod_group, unified
from imas_testing import Failed, Skipped, run, until

NAMES = int(os.environ.get("NAMES", 10_000))  # pods by which a share is counted
THREADS = 8
LIBRARIES = {"jemalloc": "libjemalloc.so", "mimalloc": "libmimalloc.so", "glibc.lean": "libimas-guard.so"}
# Prints the libraries of the image that it has mapped and its own variables, and stays.
SHOWN = """$| = 1; open F, "/proc/self/maps"; my %seen; while (<F>) { $seen{$1} = 1 if m{(/opt/imas/\\S+)} }
    print join(" ", keys %seen, keys %ENV), "\\n"; sleep 1000"""
CANDIDATES = "jemalloc,glibc:lean,mimalloc"
IMAGE = "registry.test/imas:1"
VOLUME = "imas-libraries"
BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/imas"


def container(name="app", **more):
    return {"name": name, "image": "registry.test/app:1", **more}


def template(workload="web", containers=None, labels=None, **spec):
    labels = {**({"imas.io/workload": workload} if workload else {}), **(labels or {})}
    return {"metadata": {"labels": labels}, "spec": {"containers": containers or [container()], **spec}}


def pod(name=None, workload="web", containers=None, labels=None, **spec):
    made = template(workload, containers, labels, **spec)
    made["metadata"] |= {"name": name} if name else {"generateName": "web-5d4f8c7b9-"}
    return {"apiVersion": "v1", "kind": "Pod", **made}


class Seen:
    """What of ours a pod has."""

    def __init__(self, made):
        self.pod = made
        meta, spec = made["metadata"], made["spec"]
        self.candidate = meta.get("labels", {}).get("imas.io/candidate")
        self.why = meta.get("annotations", {}).get("imas.io/left-alone", "")
        self.containers = {one["name"]: one for one in spec["containers"]}
        self.volumes = [one for one in spec.get("volumes", []) if one["name"] == VOLUME]
        self.copiers = [one for one in spec.get("initContainers", []) if one["name"] == VOLUME]

    def environment(self, name="app"):
        return {one["name"]: one.get("value") for one in self.containers[name].get("env", [])}

    def mounts(self, name="app"):
        return [one for one in self.containers[name].get("volumeMounts", []) if one["name"] == VOLUME]

    def untouched(self):
        changed = self.volumes or self.copiers or any(self.mounts(name) for name in self.containers)
        return not changed and not any("LD_PRELOAD" in self.environment(name) for name in self.containers)

    def __repr__(self):
        return json.dumps(self.pod)[:2500]


class Admission:
    """The policy in a cluster, and the cases of pods that come to it."""

    def __init__(self, imas, here):
        self.imas, self.here = imas, here
        self.printed = run(imas, "kube", "policy", "--with", CANDIDATES, "--image", IMAGE, "--image-volume", must=True).stdout

    # ---- what the cases use

    def namespace(self, name, enabled=True, **labels):
        labels = {**({"imas.io/policy": "enabled"} if enabled else {}), **labels}
        answer = self.here.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        expect(answer.status == 201, answer)
        return name

    def configure(self, namespace, data, **more):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        body = {"metadata": {"name": "imas"}, **({} if data is None else {"data": data}), **more}
        answer = self.here.request("POST", path, body)
        if answer.status == 409:
            answer = self.here.request("PUT", f"{path}/imas", body)
        return answer

    def settled(self, namespace, data, **more):
        """Writes the ConfigMap and waits until the apiserver's admission has it: a mark in it makes a difference."""
        self.marks = getattr(self, "marks", 0) + 1
        mark = f"mark-{self.marks}"
        answer = self.configure(namespace, {**(data or {}), mark: "jemalloc=100"}, **more)
        expect(answer.status in (200, 201), answer)
        seen = until(lambda: self.tried(namespace, pod(workload=mark)).candidate == "jemalloc", ignoring=(Failed,))
        expect(seen, "the ConfigMap does not arrive at admission")

    def tried(self, namespace, wanted, connection=None):
        """What the apiserver would make of the pod."""
        answer = self.here.create("pods", namespace, wanted, dry_run=True, connection=connection)
        expect(answer.status == 201, answer)
        return Seen(answer.body)

    def draws(self, namespace, workload, count):
        """Candidates of that number of pods of one ReplicaSet."""
        def some(number):
            connection = self.here.connect()
            found = [self.tried(namespace, pod(workload=workload), connection).candidate for _ in range(number)]
            connection.close()
            return found

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            parts = pool.map(some, [count // THREADS] * THREADS)
            found = [one for part in parts for one in part]
        return {name: found.count(name) / len(found) for name in set(found)}, len(found)

    def kube(self, *words, status=0):
        done = run(self.imas, "kube", *words, env=self.here.environment, timeout=120)
        expect(done.returncode == status, done)
        return done

    def by(self, name, *words):
        """A verb by somebody who is not the administrator."""
        config = json.loads((self.here.work / "kubeconfig").read_text())
        config["users"][0]["user"]["as"] = name
        own = self.here.work / f"kubeconfig-{name}"
        own.write_text(json.dumps(config))
        return run(self.imas, "kube", *words, env={**self.here.environment, "KUBECONFIG": str(own)}, timeout=120)

    # ---- the cases

    def is_created(self):
        done = self.here.kubectl("apply", "-f", "-", input=self.printed)
        expect(done.stdout.count("created") == 2, done)
        expect("warning" not in done.stderr.lower(), done)
        made = self.here.get(BINDING.replace("policybindings", "policies")).body
        expect(made["spec"]["failurePolicy"] == "Ignore", made)
        warnings = made.get("status", {}).get("typeChecking", {}).get("expressionWarnings", [])
        expect(not warnings, warnings)
        self.namespace("apps")
        self.settled("apps", {"web": "jemalloc=100"})

    def gives(self, seen, name="app"):
        """The pod has the whole candidate, in the container that is meant and in no other."""
        expect(seen.candidate == "jemalloc" and not seen.why, seen)
        environment = seen.environment(name)
        expect(environment["LD_PRELOAD"] == "/opt/imas/libimas-guard.so:/opt/imas/libjemalloc.so", environment)
        expect(environment["IMAS_UNSET"] == "LD_PRELOAD", environment)
        expect([(one["mountPath"], one.get("readOnly")) for one in seen.mounts(name)] == [("/opt/imas", True)], seen)
        expect(len(seen.volumes) == 1 and seen.volumes[0]["image"]["reference"] == IMAGE, seen)
        others = [other for other in seen.containers if other != name]
        expect(not any(seen.mounts(other) or "LD_PRELOAD" in seen.environment(other) for other in others), seen)

    def every_kind_of_pod(self):
        self.gives(self.tried("apps", pod("alone")))
        self.gives(self.tried("apps", pod()))
        self.gives(self.tried("apps", pod("web-0", hostname="web-0", subdomain="web")))
        self.gives(self.tried("apps", pod(restartPolicy="Never", activeDeadlineSeconds=60)))
        own = [container(env=[{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])]
        seen = self.tried("apps", pod(containers=own))
        self.gives(seen)
        expect(seen.environment()["A"] == "1" and "NODE" in seen.environment(), seen)
        twice = [container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])]
        seen = self.tried("apps", pod(containers=twice))
        self.gives(seen)
        expect([one["value"] for one in seen.containers["app"]["env"][:2]] == ["1", "2"], seen)
        mounts = [container(volumeMounts=[{"name": "data", "mountPath": "/data"}])]
        seen = self.tried("apps", pod(containers=mounts, volumes=[{"name": "data", "emptyDir": {}}]))
        self.gives(seen)
        expect(len(seen.pod["spec"]["volumes"]) == 2 and len(seen.containers["app"]["volumeMounts"]) == 2, seen)

    def init_containers_and_sidecars(self):
        first = [{"name": "first", "image": "x"}, {"name": "proxy", "image": "x", "restartPolicy": "Always"}]
        seen = self.tried("apps", pod(initContainers=first))
        self.gives(seen)
        names = [one["name"] for one in seen.pod["spec"]["initContainers"]]
        expect(names == ["first", "proxy"] and "env" not in seen.pod["spec"]["initContainers"][0], seen)

    def several_containers(self):
        two = [container(), container("proxy")]
        seen = self.tried("apps", pod(containers=two))
        expect(seen.untouched() and "container=NAME" in seen.why and not seen.candidate, seen)
        self.settled("apps", {"web": "jemalloc=100", "two": "container=proxy jemalloc=100", "none": "container=no jemalloc=100"})
        self.gives(self.tried("apps", pod(workload="two", containers=two)), "proxy")
        seen = self.tried("apps", pod(workload="none", containers=two))
        expect(seen.untouched() and seen.why, seen)

    def own_values_win(self):
        for name in ("LD_PRELOAD", "GLIBC_TUNABLES", "GOGC", "NODE_OPTIONS", "MALLOC_ARENA_MAX", "MALLOC_CONF"):
            for value in ({"value": "own"}, {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}):
                seen = self.tried("apps", pod(containers=[container(env=[{"name": name, **value}])]))
                expect(not seen.candidate and f"sets {name} itself" in seen.why, seen)
                expect(not seen.volumes and not seen.mounts() and len(seen.containers["app"]["env"]) == 1, seen)
        beside = pod(workload="two", containers=[container(env=[{"name": "LD_PRELOAD", "value": "own"}]), container("proxy")])
        seen = self.tried("apps", beside)
        expect(seen.candidate == "jemalloc" and seen.environment()["LD_PRELOAD"] == "own", seen)

    def env_from_may_hold_anything(self):
        unknown = [container(envFrom=[{"secretRef": {"name": "x"}}])]
        seen = self.tried("apps", pod(containers=unknown))
        expect(seen.untouched() and "envFrom" in seen.why, seen)
        self.settled("apps", {"web": "jemalloc=100", "known": "env-from=allowed jemalloc=100"})
        self.gives(self.tried("apps", pod(workload="known", containers=unknown)))

    def places_that_are_taken(self):
        mounted = lambda place, **more: self.tried("apps", pod(
            containers=[container(volumeMounts=[{"name": "x", "mountPath": place, **more}])], volumes=[{"name": "x", "emptyDir": {}}]))
        for place in ("/opt/imas", "/opt/imas/", "/opt/imas/inside"):
            seen = mounted(place)
            expect(not seen.candidate and "mounted at /opt/imas already" in seen.why, (place, seen))
        for place in ("/opt", "/opt/imas2"):
            self.gives(mounted(place))
        seen = mounted("/opt", readOnly=True)  # no runtime could make the folder below it
        expect(not seen.candidate and "read-only above it" in seen.why, seen)
        self.gives(mounted("/opt/imas2", readOnly=True))
        seen = self.tried("apps", pod(volumes=[{"name": VOLUME, "emptyDir": {}}]))
        expect(not seen.candidate and seen.why and "image" not in seen.volumes[0], seen)
        for windows in ({"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}):
            seen = self.tried("apps", pod(**windows))
            expect(seen.untouched() and "Linux" in seen.why, seen)
        self.gives(self.tried("apps", pod(nodeSelector={"kubernetes.io/os": "linux"})))

    def who_did_not_opt_in(self):
        self.namespace("others", enabled=False)
        expect(self.configure("others", {"web": "jemalloc=100"}).status == 201, "the ConfigMap")
        for namespace, wanted in (
            ("others", pod()), ("apps", pod(workload=None)), ("apps", pod(workload="unknown")), ("apps", pod(labels={"imas.io/candidate": "none"})),
        ):
            seen = self.tried(namespace, wanted)
            expect(seen.untouched() and not seen.why and seen.candidate in (None, "none"), seen)

    def restricted_pods(self):
        """PodSecurity "restricted" takes what the policy adds, with an image volume and with a copier."""
        self.gives(self.tried("restricted", self.restricted_pod()))

    def restricted_pod(self):
        if self.here.get("/api/v1/namespaces/restricted").status == 404:
            self.namespace("restricted", **{"pod-security.kubernetes.io/enforce": "restricted"})
            expect(self.configure("restricted", {"web": "jemalloc=100"}).status == 201, "the ConfigMap")
        strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
        wanted = pod(containers=[container(securityContext=strict)],
                     securityContext={"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}})
        until(lambda: self.tried("restricted", wanted).candidate)
        return wanted

    def nothing_failed_so_far(self):
        failed, lines = self.here.policy_errors()
        expect(lines and failed == 0, lines)

    def real_controllers(self):
        """Pods that the Deployment, StatefulSet and Job controllers made, stored."""
        selector = {"matchLabels": {"app": "x"}}
        labelled = template(labels={"app": "x"})
        self.namespace("controllers")
        self.settled("controllers", {"web": "jemalloc=100"})
        wanted = (
            ("apis/apps/v1/deployments", "deployment", {"replicas": 3, "selector": selector, "template": labelled}),
            ("apis/apps/v1/statefulsets", "set", {"replicas": 2, "serviceName": "x", "podManagementPolicy": "Parallel",
                                                  "selector": {"matchLabels": {"app": "y"}}, "template": template(labels={"app": "y"})}),
            ("apis/batch/v1/jobs", "job", {"parallelism": 2, "completions": 2, "completionMode": "Indexed",
                                           "template": template(labels={"app": "z"}, restartPolicy="Never")}),
        )
        for kind, name, spec in wanted:
            answer = self.here.create(kind, "controllers", {"metadata": {"name": name}, "spec": spec})
            expect(answer.status == 201, answer)
        pods = lambda: self.here.get("/api/v1/namespaces/controllers/pods").body["items"]
        expect(until(lambda: len(pods()) == 7, 120), f"{len(pods())} pods")
        for one in pods():
            self.gives(Seen(one))
        # A pod that is there already keeps what it has, whatever the ConfigMap says now.
        self.settled("controllers", {"web": "mimalloc=100"})
        name = pods()[0]["metadata"]["name"]
        self.here.kubectl("label", "pod", "-n", "controllers", name, "changed=yes")
        self.gives(Seen(self.here.get(f"/api/v1/namespaces/controllers/pods/{name}").body))

    def shares(self):
        """A share of the pods of one ReplicaSet, which are equal at admission."""
        self.namespace("shares")
        asked = {"web": {"jemalloc": 20}, "two": {"jemalloc": 20, "glibc.lean": 30}, "three": {"mimalloc": 1, "jemalloc": 99}}
        self.settled("shares", {name: " ".join(f"{one}={share}" for one, share in shares.items()) for name, shares in asked.items()})
        for workload, shares in asked.items():
            given, count = self.draws("shares", workload, NAMES if workload == "web" else NAMES // 5)
            rest = 100 - sum(shares.values())
            for name, share in {**shares, **({"system": rest} if rest else {})}.items():
                share /= 100
                error = 5 * math.sqrt(share * (1 - share) / count) + 1 / 4096
                print(f"share of {name} in {workload}: asked {share:.3f}, given {given.get(name, 0):.4f} of {count} pods", flush=True)
                expect(abs(given.get(name, 0) - share) <= error, f"{workload} {name}: {given}")
            expect(set(given) <= {*shares, "system"}, given)

    def a_hostile_config_map(self):
        """Who may write it chooses among the approved candidates, and brings nothing of his own."""
        entries = {
            "a": "evil=100", "b": "LD_PRELOAD=/tmp/evil.so jemalloc=0", "c": "jemalloc=-100", "d": "jemalloc=1000000000000000000000",
            "e": "jemalloc=100=x", "f": "x" * 100_000, "g": "jemalloc=" * 100, "h": "container= jemalloc=100", "i": "\u0000\u202e\U0001f4a3",
            "j": "container=app container=proxy jemalloc=100", "k": "", "l": "jemalloc=100 " * 60, "m": " " * 900, "n": "=100", "o": "*=100",
            "p": "\n\n---\nkind: Pod\njemalloc=100", "q": "jemalloc=999 mimalloc=999", "r": "container=('a')*9 " * 40,
        }
        self.namespace("hostile")
        self.settled("hostile", entries)
        approved = {None, "system", "jemalloc", "mimalloc"}
        libraries = {None, "/opt/imas/libimas-guard.so:/opt/imas/libjemalloc.so", "/opt/imas/libimas-guard.so:/opt/imas/libmimalloc.so"}
        for name in entries:
            seen = self.tried("hostile", pod(workload=name, containers=[container(), container("proxy")] if name == "j" else None))
            expect(seen.candidate in approved and seen.environment().get("LD_PRELOAD") in libraries, f"{name}: {seen}")
            if name in "abcdefghikmno":
                expect(seen.untouched(), f"{name}: {seen}")
        for data, more in ((None, {}), (None, {"binaryData": {"web": "//79"}}), ({}, {"immutable": True})):
            self.here.request("DELETE", "/api/v1/namespaces/hostile/configmaps/imas")
            expect(self.configure("hostile", data, **more).status == 201, "the ConfigMap")
            gone = lambda: self.tried("hostile", pod(workload="l")).candidate is None
            expect(until(gone), "a pod of a ConfigMap that is gone")

    def begin_copiers(self):
        """The policy with an init container, in place of an image volume."""
        self.settled("apps", {"web": "jemalloc=100"})
        printed = run(self.imas, "kube", "policy", "--with", CANDIDATES, "--image", IMAGE, must=True).stdout
        self.here.kubectl("apply", "-f", "-", input=printed)
        has_one = lambda: self.tried("apps", pod()).copiers
        expect(until(has_one), "the changed policy does not come into force")

    def with_a_copier(self):
        before = [line for line in self.here.policy_errors()[1] if "no_error" not in line]
        self.begin_copiers()
        first = [{"name": "first", "image": "x"}]
        seen = self.tried("apps", pod(initContainers=first))
        expect([one["name"] for one in seen.pod["spec"]["initContainers"]] == ["first", VOLUME], seen)
        expect(seen.copiers[0]["image"] == IMAGE and "emptyDir" in seen.volumes[0], seen)
        chart = self.here.work / "chart"  # has the same init container
        run(self.imas, "kube", "component", "--with", CANDIDATES, "--image", IMAGE, "--helm", chart, must=True)
        copier = yaml.safe_load((chart / "values.yaml").read_text())["copier"]
        expect(copier.items() <= seen.copiers[0].items(), (copier, seen.copiers))
        expect(seen.environment()["LD_PRELOAD"].startswith("/opt/imas/"), seen)
        seen = self.tried("restricted", self.restricted_pod())
        expect(seen.copiers[0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}, seen)
        quota = {"metadata": {"name": "limits"}, "spec": {"hard": {"limits.memory": "1Ti", "limits.cpu": "1000"}}}
        expect(self.here.create("resourcequotas", "apps", quota).status == 201, "a quota")
        bounded = pod(containers=[container(resources={"limits": {"cpu": "1", "memory": "1Gi"}})])
        seen = self.tried("apps", bounded)
        expect(seen.copiers and seen.pod["status"]["qosClass"] == "Guaranteed", seen)
        self.here.request("DELETE", "/api/v1/namespaces/apps/resourcequotas/limits")
        # A least size that the copier has not: the pod is refused, as docs/kubernetes.md says.
        least = {"metadata": {"name": "least"}, "spec": {"limits": [{"type": "Container", "min": {"memory": "32Mi"}}]}}
        expect(self.here.create("limitranges", "apps", least).status == 201, "a LimitRange")
        status = lambda: self.here.create("pods", "apps", bounded, dry_run=True).status
        expect(until(lambda: status() == 403), status())
        self.here.request("DELETE", "/api/v1/namespaces/apps/limitranges/least")
        expect(until(lambda: status() == 201), status())
        self.settled("apps", {"web": "jemalloc=50"})
        for _ in range(40):
            seen = self.tried("apps", pod())
            expect(bool(seen.copiers) == bool(seen.volumes) == (seen.candidate == "jemalloc"), seen)
        own = pod(containers=[container(env=[{"name": "LD_PRELOAD", "value": "own"}])])
        expect(not self.tried("apps", own).copiers, "a copier for a pod that is left alone")
        failed = [line for line in self.here.policy_errors()[1] if "no_error" not in line]
        expect(failed == before, failed)

    def the_copier_is_what_the_pod_is(self):
        """Its user is the pod's, which OpenShift gives by namespace, unless that is root; and it states ephemeral storage where
        the pod does."""
        self.begin_copiers()
        copier = lambda **spec: self.tried("apps", pod(**spec)).copiers[0]
        for context, user in (({}, None), ({"runAsUser": 1000650000}, None), ({"runAsUser": 0}, 65532)):
            expect(copier(securityContext=context)["securityContext"].get("runAsUser") == user, context)
        stating = container(resources={"limits": {"ephemeral-storage": "100Mi"}})
        stated = copier(containers=[stating])["resources"]
        expect(all(stated[kind]["ephemeral-storage"] == "32Mi" for kind in ("requests", "limits")), stated)
        least = {"metadata": {"name": "disk"}, "spec": {"limits": [{"type": "Container", "max": {"ephemeral-storage": "1Gi"}}]}}
        expect(self.here.create("limitranges", "apps", least).status == 201, "a LimitRange")
        expect(copier(containers=[stating])["resources"] == stated, "below a LimitRange")
        self.here.request("DELETE", "/api/v1/namespaces/apps/limitranges/disk")
        # Where a container of the pod states no limit, one of ours would be the limit of the whole pod.
        self.settled("apps", {"web": "container=app jemalloc=100"})
        asking = container(resources={"requests": {"ephemeral-storage": "100Mi"}})
        for containers, kinds in (([asking], {"requests"}), ([stating, container("proxy")], set()), ([container()], set())):
            bounds = copier(containers=containers)["resources"]
            expect({kind for kind in bounds if "ephemeral-storage" in bounds[kind]} == kinds, (containers, bounds))

    def admitted_pods_run(self, label, suite, version):
        """The pod that came back is started; the candidate serves, its variables and the pod's are there, and `imas kube node` sees it."""
        root = runner.bare(label, suite)
        cgroups = unified()
        if not cgroups:
            raise Skipped("control groups of version 2 cannot be made here")
        image = runner.unpacked(self.imas, CANDIDATES, self.here.work)
        own = container(env=[{"name": "OWN", "value": "mine"}])
        self.settled("apps", {**{name: f"{name}=100" for name in LIBRARIES}, "untouched": "jemalloc=0"})
        with Node(cgroups) as node:
            for name, library in {**LIBRARIES, "untouched": None}.items():
                seen = self.tried("apps", pod(workload=name, containers=[own]))
                uid, identity = new()
                group = node.group(f"{pod_group(uid)}/cri-containerd-{identity}.scope")
                child = runner.start(seen.pod, image, ["/usr/bin/perl", "-e", SHOWN], group, root)
                node.children.append(child)
                shown = child.stdout.readline().split()
                expected = {*seen.environment(), *(["/opt/imas/libimas-guard.so", f"/opt/imas/{library}"] if library else [])}
                expect(set(shown) == expected and "OWN" in shown, f"{name}: {shown}: {child.stderr.readline() if not shown else ''}")
                rows = json.loads(self.kube("node", *node.words, "--json", "--logs", "/nowhere").stdout)["containers"]
                row = {one["id"]: one for one in rows}[identity[:12]]
                expect(row["program"] == "/usr/bin/perl" and row["pod_uid"] == uid and row["libc"] == "glibc", row)
                expect(row["library"] == library and (library or row["glibc"] == version), row)
            print(f"pods run in {label} {suite}: {len(node.children)}", flush=True)
