# SPDX-License-Identifier: Apache-2.0
"""The verdicts so far, one JSON object a line. An ended run resumes; after a change only the affected cases
are repeated."""

import dataclasses
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

    def __init__(self, path, fresh):
        self.path, self._known, self._digests = path, {}, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() and not fresh else []:
            entry = json.loads(line)
            mark = entry.pop("mark")
            self._known[mark] = Verdict(**entry)

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
