# SPDX-License-Identifier: Apache-2.0
"""A cluster without nodes: etcd, kube-apiserver and the controllers that make pods, on loopback.

The pods that it has are never started. What the apiserver makes of them is real: admission, defaults, names."""

import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import urllib.parse

from imas_testing import Failed, Skipped, free_port, run, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build/kubernetes"
TOKEN = "tests-on-loopback"
CONTROLLERS = "deployment,replicaset,statefulset,job,namespace"


def missing():
    """Why there can be no cluster here; empty if there can."""
    if not shutil.which("etcd"):
        return "etcd is not installed (apt install etcd-server)"
    built = run(ROOT / "tests/kubernetes/build", timeout=7200)
    return built.stdout.strip() if built.returncode else ""


def program(name, builds=False):
    """A program that `build` makes; `builds`: by the name alone, if it is not there."""
    if builds and not (PROGRAMS / name).exists():
        built = run(ROOT / "tests/kubernetes/build", name, timeout=7200)
        if built.returncode:
            raise Skipped(built.stdout.strip())
    if not (PROGRAMS / name).exists():
        raise Skipped(f"there is no {name} in build/kubernetes (tests/kubernetes/build)")
    return PROGRAMS / name


class Answer:
    """What the apiserver answered."""

    def __init__(self, answer):
        self.status, body = answer.status, answer.read()
        is_json = "json" in answer.headers.get("Content-Type", "")
        self.body = json.loads(body) if is_json else body.decode(errors="replace")

    def __repr__(self):
        return f"{self.status} {str(self.body)[:1500]}"


class Cluster:
    """Started by `with`; every process ends with it."""

    def __init__(self, work, controllers=CONTROLLERS):
        self.work = work
        self.controllers = controllers
        self.children = []
        self.port = free_port()
        self.connection = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
        for child in reversed(self.children):
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _spawn(self, name, *words):
        log = open(self.work / f"{name}.log", "wb")
        self.children.append(subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, cwd=self.work))

    def _start(self):
        etcd, peer = free_port(), free_port()
        at = f"http://127.0.0.1:{etcd}"
        self._spawn(
            "etcd", "etcd", "--data-dir", self.work / "etcd", "--listen-client-urls", at, "--advertise-client-urls", at,
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync",
        )
        key = self.work / "sa.key"
        run("openssl", "genrsa", "-out", key, "2048", must=True)
        run("openssl", "rsa", "-in", key, "-pubout", "-out", self.work / "sa.pub", must=True)
        tokens = self.work / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
        self._spawn(
            "apiserver", PROGRAMS / "kube-apiserver", f"--etcd-servers={at}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
            f"--cert-dir={self.work / 'certificates'}", "--service-account-issuer=https://tests",
            f"--service-account-key-file={self.work / 'sa.pub'}", f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true", "--disable-admission-plugins=ServiceAccount",
            "--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000",
        )
        config = self.work / "kubeconfig"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "tests", "user": {"token": TOKEN}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        }))
        has_ended = lambda: any(child.poll() is not None for child in self.children)
        ready = until(lambda: has_ended() or self.get("/readyz").status == 200, 180, ignoring=(OSError, http.client.HTTPException))
        if has_ended() or not ready:
            raise Failed("the apiserver is not ready: " + (self.work / "apiserver.log").read_text()[-3000:])
        if self.controllers:
            self._spawn(
                "controllers", PROGRAMS / "kube-controller-manager", f"--kubeconfig={config}", f"--controllers={self.controllers}",
                "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
                f"--cert-dir={self.work / 'controllers'}",
            )

    @property
    def environment(self):
        """The environment of a kubectl, and of what starts one."""
        path = f"{PROGRAMS}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.work / "kubeconfig"), "PATH": path, "HOME": str(self.work)}

    def kubectl(self, *words, must=True, **options):
        return run("kubectl", *words, env=self.environment, must=must, **options)

    def connect(self):
        """A connection of its own, for a thread."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # made by the apiserver for itself, on loopback
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)

    def request(self, method, path, body=None, connection=None):
        own = connection or self.connection or self.connect()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        try:
            own.request(method, path, None if body is None else json.dumps(body), headers)
            answer = Answer(own.getresponse())
        except (OSError, http.client.HTTPException):
            own.close()
            raise
        if connection is None:
            self.connection = own
        return answer

    def get(self, path):
        return self.request("GET", path)

    def create(self, kind, namespace, thing, dry_run=False, connection=None):
        """Creates one in the core group (pods, configmaps) or of a whole path (apis/apps/v1/...)."""
        group = kind if "/" in kind else f"api/v1/{kind}"
        head, _, plural = group.rpartition("/")
        path = f"/{head}/namespaces/{namespace}/{plural}?" + urllib.parse.urlencode({"dryRun": "All"} if dry_run else {})
        return self.request("POST", path, thing, connection)

    def policy_errors(self):
        """How often an expression of the policy failed: with failurePolicy Ignore nothing else shows it."""
        metrics = self.get("/metrics").body
        lines = [line for line in metrics.splitlines() if line.startswith("apiserver_mutating_admission_policy_check_duration_seconds_count{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'error_type="no_error"' not in line), lines
