# SPDX-License-Identifier: Apache-2.0
"""What a kubelet and metrics-server would report of the pods of one namespace, written by the test."""

import threading

from imas_testing import Failed

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces"
DEFINITION = {
    "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
    "spec": {
        "group": "metrics.k8s.io", "scope": "Namespaced", "names": {"plural": "pods", "singular": "podmetrics", "kind": "PodMetrics"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
    },
}


class Kubelet:
    """Reports the pods as running while it is entered. `figures(pod)` gives bytes, millicores and the last failure, or None; they
    are the container `app`'s. Others are as large as the injected sidecar of a service mesh.

    A failure with a message is why the container waits; any other one is how its program ended."""

    every = 0.2  # seconds between two reports

    def __init__(self, here, namespace, figures):
        self.here, self.namespace, self.figures = here, namespace, figures
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.seen = {}
        self.problem = None

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        if self.problem:
            raise Failed(f"the kubelet of the test: {self.problem}")

    def started(self, _pod):
        """When its containers started: long ago, so that all pods are of one age."""
        return "2026-01-01T00:00:00Z"

    def look(self, pods):
        """What is there now: for a kubelet that runs them."""

    def _work(self):
        connection = self.here.connect()
        while not self.ends.wait(self.every):
            try:
                pods = self.here.request("GET", f"/api/v1/namespaces/{self.namespace}/pods", connection=connection).body["items"]
                self.look(pods)
                for pod in pods:
                    self._report(pod, connection)
            except Exception as why:  # pylint: disable=broad-except # told at the end
                self.problem = why
                return

    def _report(self, pod, connection):
        name, found = pod["metadata"]["name"], self.figures(pod)
        if found is None or self.seen.get(name) == found:
            return
        memory, cpu, failure = found[0], found[1], dict(found[2] or {})
        waits = bool(failure) and "message" in failure
        restarts = failure.pop("restarts", 1) if failure else 0
        containers = [{
            "name": one["name"], "image": one["image"], "imageID": "x", "ready": not waits, "started": not waits,
            "restartCount": 0 if waits else restarts,
            "state": {"waiting": failure} if waits else {"running": {"startedAt": self.started(pod)}},
            **({"lastState": {"terminated": failure}} if failure and not waits else {}),
        } for one in pod["spec"]["containers"]]
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": containers}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        if self.here.request("PUT", path, pod, connection=connection).status != 200:
            return  # it changed or went; the next look counts
        usage = lambda name: {"memory": f"{memory}", "cpu": f"{cpu}m"} if name == "app" else {"memory": "500M", "cpu": "2"}
        figures = {
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": name, "labels": pod["metadata"]["labels"]},
            "containers": [{"name": one["name"], "usage": usage(one["name"])} for one in containers],
        }
        answer = self.here.request("POST", f"{METRICS}/{self.namespace}/pods", figures, connection=connection)
        if answer.status == 409:
            path = f"{METRICS}/{self.namespace}/pods/{name}"
            answer = self.here.request("PATCH", path, {"containers": figures["containers"]}, connection=connection)
        if answer.status in (200, 201):
            self.seen[name] = found
