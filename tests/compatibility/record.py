# SPDX-License-Identifier: Apache-2.0
"""The verdicts so far, one JSON object a line. An ended run resumes; after a change only the affected cases
are repeated."""

import dataclasses
import gzip
import hashlib
import json
from pathlib import Path

from case import HERE
from comparison import Verdict
from start import FRONT


def _digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


class Record:
    """The verdict of each (case, candidate, mode), valid while the case and the libraries do not change."""

    def __init__(self, path, fresh, kept=None):
        self.path, self._known, self._digests = path, {}, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in (kept, path):
            if file and file.exists() and not fresh:
                self._read(file)

    def _read(self, file):
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                mark = entry.pop("mark")
                self._known[mark] = Verdict(**entry)

    def keep(self, file):
        """Writes all verdicts, in the order of their marks and without a date, so that the same ones make the same file."""
        lines = (json.dumps({"mark": mark, **dataclasses.asdict(self._known[mark])}) + "\n" for mark in sorted(self._known))
        file.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))

    def mark(self, case, candidate, mode):
        """Changes when the case, a program of ours it runs, the hook or guard, the library or its settings
        change."""
        files = [FRONT[mode]] + ([candidate["library"]] if candidate["library"] else [])
        files += [need for need in (*case.needs, *case.command) if str(need).startswith((str(HERE), str(HERE.parent.parent)))
                  and Path(need).is_file()]
        digests = [self._digests.setdefault(file, _digest(file)) for file in map(str, files)]
        parts = [repr(case), candidate["name"], repr(candidate["environment"]), mode, *digests]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def get(self, mark):
        """The verdict of that mark, or None."""
        return self._known.get(mark)

    def add(self, mark, verdict):
        """Stores the verdict at once, so that it survives an interrupted run."""
        self._known[mark] = verdict
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"mark": mark, **dataclasses.asdict(verdict)}) + "\n")
