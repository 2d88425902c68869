#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/kubernetes/image.py IMAS: the image of `imas kube image`, read and unpacked by skopeo and umoci."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile

import yaml

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

from groups import expect  # noqa: E402
from imas_testing import Skipped, cases, finish, imas_of, run  # noqa: E402

CANDIDATES = "jemalloc,glibc:lean,mimalloc"
LIBRARIES = {"libimas-guard.so", "libjemalloc.so", "libmimalloc.so"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def tool(name):
    if not shutil.which(name):
        raise Skipped(f"{name} is not installed")
    return name


class Tests:
    def __init__(self, imas, work):
        self.imas, self.work = imas, work
        self.archive, self.layout, self.root = work / "imas.tar", work / "layout", work / "unpacked/rootfs"
        for out in (self.archive, self.layout):
            self.write(out)

    def write(self, out):
        return run(self.imas, "kube", "image", "--with", CANDIDATES, "--out", out, must=True)

    def is_deterministic(self):
        again = self.work / "again.tar"
        self.write(again)
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (self.archive, again)]
        expect(digests[0] == digests[1], digests)
        print(f"bytes of the image: {self.archive.stat().st_size}", flush=True)
        with tarfile.open(self.archive) as tar:
            inside = {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}
        folder = {str(file.relative_to(self.layout)): file.read_bytes() for file in self.layout.rglob("*") if file.is_file()}
        expect(inside == folder, set(inside) ^ set(folder))

    def skopeo_reads_it(self):
        for place in (f"oci-archive:{self.archive}:imas", f"oci:{self.layout}:imas"):
            seen = json.loads(run(tool("skopeo"), "inspect", place, must=True).stdout)
            expect(seen["Os"] == "linux" and len(seen["Layers"]) == 3, seen)
            expect(seen["Labels"]["imas.io/candidates"] == CANDIDATES, seen)
        # A copy reads and checks each digest, and converts it to what older registries take.
        copied = self.work / "copied"
        run("skopeo", "copy", "--format", "v2s2", f"oci-archive:{self.archive}:imas", f"dir:{copied}", must=True)
        manifest = json.loads((copied / "manifest.json").read_text())
        expect(len(manifest["layers"]) == 3, manifest)
        node = self.work / "node.tar"  # for a node without a registry
        run("skopeo", "copy", f"oci-archive:{self.archive}:imas", f"docker-archive:{node}:localhost/imas:1", must=True)
        with tarfile.open(node) as tar:
            manifest = json.load(tar.extractfile("manifest.json"))
        expect(manifest[0]["RepoTags"] == ["localhost/imas:1"] and len(manifest[0]["Layers"]) == 3, manifest)

    def umoci_unpacks_it(self):
        run(tool("umoci"), "unpack", "--rootless", "--image", f"{self.layout}:imas", self.work / "unpacked", must=True)
        files = {one.name: one for one in self.root.iterdir()}
        notices = {"LICENCE", "LICENCES.jemalloc", "LICENCES.mimalloc", "imas.spdx.json"}
        expect(set(files) == LIBRARIES | notices | {"imas-copy"}, files)
        expect("Apache License" in files["LICENCE"].read_text(), "the licence of IMAS")
        expect("Jason Evans" in files["LICENCES.jemalloc"].read_text(), "the licence of jemalloc")
        config = json.loads((self.work / "unpacked/config.json").read_text())["process"]
        expect(config["args"] == ["/imas-copy"] and config["user"]["uid"] == 65532, config)

    def two_architectures(self):
        """An index: each node takes the libraries that are for it."""
        own, words = ROOT / "build", ["kube", "image", "--with", CANDIDATES, "--out"]
        done = run(self.imas, *words, self.work / "same", "--also", own)
        expect(done.returncode == 2 and "for the same architecture" in done.stderr, done)
        if not (own / "arm64/sbin/imas-copy").exists():
            raise Skipped("there is no build for arm64 (make ARCH=arm64)")
        both = self.work / "both"
        said = run(self.imas, *words, both, "--also", own / "arm64", must=True).stdout
        expect("amd64 and arm64" in said and "skopeo copy --all" in said, said)
        outer = json.loads((both / "index.json").read_text())["manifests"]
        expect(len(outer) == 1 and outer[0]["annotations"]["org.opencontainers.image.ref.name"] == "imas", outer)
        blob = lambda digest: (both / "blobs" / digest.replace(":", "/")).read_bytes()
        inner = json.loads(blob(outer[0]["digest"]))["manifests"]
        expect([one["platform"]["architecture"] for one in inner] == ["amd64", "arm64"], inner)
        for one, machine in zip(inner, (62, 183)):
            names = []
            for layer in json.loads(blob(one["digest"]))["layers"]:
                with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as tar:
                    programs = [file for file in tar if file.mode & 0o100]
                    names += [file.name for file in programs]
                    expect(all(tar.extractfile(file).read()[18] == machine for file in programs), (machine, names))
            expect(set(names) == LIBRARIES | {"imas-copy"}, names)
        run(tool("skopeo"), "copy", "--all", f"oci:{both}:imas", f"dir:{self.work / 'copied-both'}", must=True)
        seen = json.loads(run("skopeo", "--override-arch", "arm64", "inspect", f"oci:{both}:imas", must=True).stdout)
        expect(seen["Architecture"] == "arm64", seen)

    def the_bill_of_materials_is_true(self):
        bill = json.loads((self.root / "imas.spdx.json").read_text())
        expect(bill["spdxVersion"] == "SPDX-2.3" and bill["dataLicense"] == "CC0-1.0", bill)
        expect({one["name"] for one in bill["packages"]} == {"imas", "jemalloc", "mimalloc"}, bill)
        expect(all(one["licenseDeclared"] and one["SPDXID"].startswith("SPDXRef-") for one in bill["packages"]), bill)
        for one in bill["files"]:
            real = hashlib.sha256((self.root / one["fileName"]).read_bytes()).hexdigest()
            expect(one["checksums"] == [{"algorithm": "SHA256", "checksumValue": real}], one)
        expect(len(bill["files"]) == len(LIBRARIES) + 1, bill["files"])

    def the_copier_copies(self):
        """As the init container runs it: in its own root, without a C library, as a user of no rights."""
        if os.geteuid() != 0:
            raise Skipped("a root of its own takes root")
        target = self.root / "imas-libraries"
        target.mkdir()
        target.chmod(0o777)
        self.work.chmod(0o755)
        for part in (self.work / "unpacked", self.root):
            part.chmod(0o755)
        words = ["chroot", "--userspec=65532:65532", self.root, "/imas-copy", "/imas-libraries"]
        run("chroot", "--userspec=1000650000:0", *words[2:], must=True)  # a user of a namespace, as OpenShift gives it
        for file in target.iterdir():
            expect(os.access(file, os.X_OK) and file.stat().st_uid == 1000650000, file)
            file.unlink()
        run(*words, must=True)
        run(*words, must=True)  # a restarted pod copies again
        copied = {one.name: one for one in target.iterdir()}
        expect(set(copied) == LIBRARIES, copied)
        expect(all(one.read_bytes() == (self.root / name).read_bytes() and os.access(one, os.X_OK) for name, one in copied.items()), copied)
        target.chmod(0o555)
        done = run(*words)
        expect(done.returncode == 2 and "imas-copy: " in done.stderr, done)
        expect(run("chroot", self.root, "/imas-copy", "/nothing").returncode == 2, "a folder that is not there")
        expect(run("chroot", self.root, "/imas-copy").returncode == 2, "no folder")

    def a_program_runs_under_it(self):
        """The environment of the policy, with the libraries of the image."""
        printed = run(self.imas, "kube", "policy", "--with", CANDIDATES, "--image", "x", "--at", self.root, must=True).stdout
        policy = next(yaml.safe_load_all(printed))
        variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
        for name, library in (("jemalloc", "libjemalloc.so"), ("mimalloc", "libmimalloc.so"), ("glibc.lean", "libimas-guard.so")):
            environment = json.loads(variables["candidates"])[name]
            maps = run("cat", "/proc/self/maps", env={**os.environ, **environment}, must=True)
            expect(str(self.root / library) in maps.stdout and not maps.stderr, f"{name}: {maps}")

    def bad_input(self):
        taken = self.work / "taken"
        for words in (["--with", "system"], ["--with", "nonsense"], ["--with", "distro-jemalloc"], ["--with", "jemalloc", "--copier", "/nothing"]):
            done = run(self.imas, "kube", "image", "--out", taken, *words)
            expect(done.returncode == 2 and done.stderr and not taken.exists(), f"{words}: {done}")


def main():
    imas = imas_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="imas-image-", ignore_cleanup_errors=True) as work:
        tests = Tests(imas, pathlib.Path(work))
        cases(
            tests,
            "is_deterministic", "skopeo_reads_it", "umoci_unpacks_it", "two_architectures", "the_bill_of_materials_is_true", "the_copier_copies",
            "a_program_runs_under_it", "bad_input",
        )
    finish("kubernetes-image")


main()
