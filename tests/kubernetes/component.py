#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/component.py IMAS: what `imas kube component` writes, built by Kustomize (in kubectl) and by Helm.

Without these programs the files are read as YAML, and the cases that need them say so."""

import json
import os
import pathlib
import sys
import tempfile

import yaml

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

from cluster import program  # noqa: E402
from groups import expect  # noqa: E402
from imas_testing import cases, finish, imas_of, run  # noqa: E402

CANDIDATES = "jemalloc,glibc:lean"
IMAGE = "registry.test/imas:1"
LIBRARIES = "imas-libraries"


def workload(kind="Deployment", name="web"):
    """An application's own manifest, with variables, a volume and an init container of its own."""
    pod = {
        "initContainers": [{"name": "first", "image": "x"}],
        "containers": [
            {"name": "app", "image": "x",
             "env": [{"name": "A", "value": "1"}, {"name": "IMAS_UNSET", "value": "own"},
                     {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
             "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            {"name": "proxy", "image": "x"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    labels = {"app": name}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod},
                 **({"serviceName": name} if kind == "StatefulSet" else {})},
    }


def cron_job(name="web"):
    return {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": workload(name=name)["spec"]["template"]}}},
    }


def is_given(made, candidate, environment):
    """The template has the candidate in the container `app`, and everything that it had before."""
    template = made["spec"]["template"]
    spec, labels = template["spec"], template["metadata"]["labels"]
    containers = {one["name"]: one for one in spec["containers"]}
    variables = {one["name"]: one.get("value") for one in containers["app"]["env"]}
    expect(labels["imas.io/candidate"] == candidate and labels["imas.io/workload"] == "web" and labels["app"] == "web", labels)
    expect({"A": "1", **environment}.items() <= variables.items(), variables)
    both = [one for one in containers["app"]["env"] if {"value", "valueFrom"} <= set(one)]
    expect(not both, f"the apiserver refuses a value beside a source: {both}")
    expect({one["name"] for one in spec["volumes"]} == {"data", LIBRARIES}, spec)
    expect({one["name"] for one in spec["initContainers"]} == {"first", LIBRARIES}, spec)
    mounts = {one["name"]: one for one in containers["app"]["volumeMounts"]}
    expect(mounts[LIBRARIES] == {"name": LIBRARIES, "mountPath": "/opt/imas", "readOnly": True} and "data" in mounts, mounts)
    expect(set(containers["proxy"]) == {"name", "image"}, containers)
    copier = next(one for one in spec["initContainers"] if one["name"] == LIBRARIES)
    expect(copier["image"] == IMAGE and copier["securityContext"]["capabilities"] == {"drop": ["ALL"]}, copier)
    expect("runAsUser" not in copier["securityContext"], "its user is the pod's: OpenShift gives each namespace users of its own")


# The same application as a chart: its own variables come after ours.
CHART = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels:
        app: web
        {{- include "imas.labels" . | nindent 8 }}
    spec:
      initContainers:
        - {name: first, image: x}
        {{- include "imas.initContainers" . | nindent 8 }}
      containers:
        - name: app
          image: x
          env:
            {{- include "imas.env" . | nindent 12 }}
            - {name: A, value: "1"}
          volumeMounts:
            - {name: data, mountPath: /data}
            {{- include "imas.volumeMounts" . | nindent 12 }}
        - {name: proxy, image: x}
      volumes:
        - {name: data, emptyDir: {}}
        {{- include "imas.volumes" . | nindent 8 }}
"""


class Tests:
    def __init__(self, imas, work):
        self.imas, self.work = imas, work
        self.components, self.chart = work / "components", work / "shop/charts/imas"
        made = run(imas, "kube", "component", "--with", CANDIDATES, "--image", IMAGE, "--helm", self.chart,
                   "--kustomize", self.components, "--workload", "web", "--container", "app", must=True)
        self.said = made.stdout
        printed = run(imas, "kube", "policy", "--with", CANDIDATES, "--image", IMAGE, must=True).stdout
        variables = next(yaml.safe_load_all(printed))["spec"]["variables"]
        self.environments = json.loads(next(one["expression"] for one in variables if one["name"] == "candidates"))

    def files_are_as_the_policy_says(self):
        values = yaml.safe_load((self.chart / "values.yaml").read_text())
        expect(values["candidates"] == self.environments and values["copier"]["image"] == IMAGE, values)
        expect({one.name for one in self.components.iterdir()} == {*self.environments, "system"}, list(self.components.iterdir()))
        for name, environment in self.environments.items():
            patch = yaml.safe_load((self.components / name / "workload.yaml").read_text())
            template = patch["spec"]["template"]
            variables = {one["name"]: one["value"] for one in template["spec"]["containers"][0]["env"]}
            expect(variables == environment and template["metadata"]["labels"]["imas.io/candidate"] == name, patch)
        patch = yaml.safe_load((self.components / "system/workload.yaml").read_text())
        expect(patch["spec"]["template"]["spec"] == {}, patch)

    def kustomize(self, component, *manifests):
        folder = self.work / f"overlay-{component}"
        folder.mkdir(exist_ok=True)
        (folder / "app.yaml").write_text("---\n".join(yaml.safe_dump(one) for one in manifests))
        own = {"resources": ["app.yaml"], "components": [os.path.relpath(self.components / component, folder)]}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
        text = run(program("kubectl"), "kustomize", folder, env={**os.environ, "HOME": str(self.work)}, must=True).stdout
        return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}

    def kustomize_builds_it(self):
        other = workload(name="other")
        for name, environment in self.environments.items():
            made = self.kustomize(name, workload(), other)
            is_given(made["Deployment", "web"], name, environment)
            expect(made["Deployment", "other"] == other, made)
        for kind in ("StatefulSet", "DaemonSet", "Job"):
            is_given(self.kustomize("jemalloc", workload(kind))[kind, "web"], "jemalloc", self.environments["jemalloc"])
        made = self.kustomize("jemalloc", cron_job(), cron_job("other"))
        is_given(made["CronJob", "web"]["spec"]["jobTemplate"], "jemalloc", self.environments["jemalloc"])
        expect(made["CronJob", "other"] == cron_job("other"), made)
        expect("nothing of another kind (a Rollout)" in self.said, self.said)
        made = self.kustomize("system", workload())["Deployment", "web"]
        expect(made["spec"]["template"]["metadata"]["labels"]["imas.io/candidate"] == "system", made)
        expect(made["spec"]["template"]["spec"] == workload()["spec"]["template"]["spec"], made)

    def helm(self, *words, must=True):
        helm = program("helm", builds=True)
        shop = self.work / "shop"
        (shop / "templates").mkdir(exist_ok=True)
        (shop / "templates/web.yaml").write_text(CHART)
        version = yaml.safe_load((self.chart / "Chart.yaml").read_text())["version"]
        own = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [{"name": "imas", "version": version}]}
        (shop / "Chart.yaml").write_text(yaml.safe_dump(own))
        return run(helm, *words, env={**os.environ, "HOME": str(self.work)}, must=must)

    def helm_lints_it(self):
        self.helm("lint", "--strict", self.chart)
        self.helm("lint", self.work / "shop", "--set", "imas.candidate=jemalloc")

    def helm_templates_it(self):
        shop = self.work / "shop"
        for name, environment in self.environments.items():
            text = self.helm("template", "web", shop, "--set-string", f"imas.candidate={name}").stdout
            is_given(yaml.safe_load(text), name, environment)
        template = yaml.safe_load(self.helm("template", "web", shop).stdout)["spec"]["template"]
        expect(template["metadata"]["labels"]["imas.io/candidate"] == "system", template)
        expect([one["name"] for one in template["spec"]["initContainers"]] == ["first"] and len(template["spec"]["volumes"]) == 1, template)
        done = self.helm("template", "web", shop, "--set", "imas.candidate=nonsense", must=False)
        expect(done.returncode != 0 and "there is no candidate nonsense" in done.stderr, done)

    def bad_input(self):
        words = ["kube", "component", "--with", "jemalloc", "--image", IMAGE]
        for more, said in (
            ([], "--helm"), (["--kustomize", self.work / "x"], "--workload"),
            (["--helm", self.chart / "values.yaml"], "values.yaml"), (["--helm", self.work / "x", "--image", "a b"], ""),
        ):
            done = run(self.imas, *words, *more)
            expect(done.returncode == 2 and said in done.stderr and not done.stdout, f"{more}: {done}")
        hostile = "a: b\n- {{ x }}"
        done = run(self.imas, *words, "--kustomize", self.work / "x", "--workload", "web", "--container", hostile)
        expect(done.returncode == 2 and not (self.work / "x").exists(), done)
        odd = self.work / "odd"
        run(self.imas, *words, "--kustomize", odd, "--workload", "web", "--container", "a: {b}", must=True)
        patch = yaml.safe_load((odd / "jemalloc/workload.yaml").read_text())
        expect(patch["spec"]["template"]["spec"]["containers"][0]["name"] == "a: {b}", patch)


def main():
    imas = imas_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="imas-component-") as work:
        tests = Tests(imas, pathlib.Path(work))
        cases(tests, "files_are_as_the_policy_says", "kustomize_builds_it", "helm_lints_it", "helm_templates_it", "bad_input")
    finish("kubernetes-component")


main()
