# SPDX-License-Identifier: Apache-2.0
"""The verdicts as a page and as closing lines; known differences are in known.toml."""

import subprocess
import sys
import tomllib

from case import ROOT
from comparison import SAME
from start import MODES

sys.path.insert(0, str(ROOT / "bench" / "lib"))
import machine  # noqa: E402


class Known:
    """Differences that are understood, each with its reason."""

    def __init__(self, path):
        with open(path, "rb") as stream:
            self._entries = tomllib.load(stream).get("known", [])

    def reason(self, verdict):
        """Why this start differs, or None."""
        for entry in self._entries:
            names = entry.get("candidates", ["*"])
            matches = "*" in names or verdict.candidate in names or verdict.candidate.split(":")[0] in names
            if verdict.case in entry["cases"] and matches and verdict.mode in entry.get("modes", MODES):
                return entry["reason"]
        return None


def _bad(found):
    return [verdict for _, verdicts in found for verdict in verdicts if verdict.result != SAME]


def summary(found, skipped, known):
    """Prints the sums."""
    starts = sum(len(verdicts) for _, verdicts in found)
    bad = _bad(found)
    new = [verdict for verdict in bad if not known.reason(verdict)]
    print(f"{len(found)} cases, {starts} starts (programs x candidates x modes), {len(bad)} differences, "
          f"{len(bad) - len(new)} of them known; {len(skipped)} cases skipped")


def _names(verdicts):
    """`a`, `b` and 3 more."""
    names = list(dict.fromkeys(f"`{verdict.candidate}`" for verdict in verdicts))
    return ", ".join(names) if len(names) <= 6 else ", ".join(names[:5]) + f" and {len(names) - 5} more"


def _cell(verdicts):
    if not verdicts:
        return "not run"
    bad = sum(verdict.result != SAME for verdict in verdicts)
    return f"{len(verdicts) - bad} same" + (f", **{bad} differ**" if bad else "")


def _served(verdicts):
    """The reason, if the trial page shows that the first program of a case ran without the candidate."""
    reasons = {verdict.served.removeprefix("PASS ") for verdict in verdicts if verdict.served.startswith("PASS")}
    return f" (left alone: {', '.join(sorted(reasons))})" if reasons else ""


def _rows(found):
    group = None
    for case, verdicts in found:
        if case.group != group:
            group = case.group
            yield f"| **{group}** | | |"
        yield f"| `{case.name}` | {case.what}{_served(verdicts)} | {_cell(verdicts)} |"


def _differences(found, known):
    """A table for each reason. A line stands for a case and the candidates that differ in one way. The text is
    that of the first start, because process ids and addresses change from start to start."""
    tables = {}
    for verdict in _bad(found):
        lines = tables.setdefault(known.reason(verdict), {})
        kind = verdict.detail.split(":")[0] if verdict.detail.startswith("standard error") else verdict.detail
        lines.setdefault((verdict.case, verdict.candidate.split(":")[0], kind), []).append(verdict)
    for reason, lines in tables.items():
        yield from ["", f"Why: {reason}." if reason else "**Not explained.**",
                    "", "| case | candidates | difference |", "| --- | --- | --- |"]
        for (case, _, _), verdicts in _joined(lines).items():
            text = verdicts[0].detail.replace("|", "\\|")
            yield f"| `{case}` | {_names(verdicts)}{_mode(verdicts)} | {text} |"


def _joined(lines):
    """Allocators whose difference reads the same share a line."""
    joined = {}
    for (case, _, kind), verdicts in lines.items():
        joined.setdefault((case, kind, _mode(verdicts)), []).extend(verdicts)
    return joined


def _mode(verdicts):
    modes = {verdict.mode for verdict in verdicts}
    return "" if modes == set(MODES) else f" ({', '.join(sorted(modes))})"


def _slow(found):
    """The same, and far slower: not a difference, but worth knowing."""
    slow = {}
    for verdict in (verdict for _, verdicts in found for verdict in verdicts):
        if verdict.result == SAME and verdict.seconds > max(10, 12 * verdict.plain_seconds):
            slow.setdefault((verdict.case, verdict.candidate), []).append(verdict)
    for (case, candidate), verdicts in slow.items():
        seconds = ", ".join(f"{verdict.mode} {verdict.seconds:.0f}" for verdict in verdicts)
        yield f"| `{case}` | `{candidate}` | {seconds} | {verdicts[0].plain_seconds:.1f} |"


def _versions():
    """The Debian packages of the cases' programs, if they are installed."""
    with open(ROOT / "packaging" / "compatibility-packages.txt", encoding="utf-8") as stream:
        names = [line.strip() for line in stream if line.strip() and not line.startswith("#")]
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names], capture_output=True, text=True, check=False)
    return ", ".join(sorted(shown.stdout.splitlines())) or "unknown"


def _commit():
    shown = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%h of %cs"], capture_output=True, text=True, check=False)
    return shown.stdout.strip() or "unknown"


HEAD = """# Compatibility: real programs under every candidate

Written by `make compatibility` (`tests/compatibility/run`); do not edit. Each case runs untouched. It then
runs under each candidate that can be used here, in production (guard and flight page) and in a trial (hook
and trial page). The exit status or signal and standard output must be the same, and so must standard error
where it does not change from run to run. A run "hangs" if it uses no CPU time and lasts twelve times as long
as the untouched one, and at least ten seconds. A busy run gets three times as long, then it "loops". Any
other difference is tried twice more. A difference that does not appear each time is marked with its
frequency.
"""


def write(path, found, skipped, candidates, known):
    """The page."""
    starts, bad = sum(len(verdicts) for _, verdicts in found), _bad(found)
    unknown = sum(not known.reason(verdict) for verdict in bad)
    lines = [HEAD, "```", machine.description(), f"commit   {_commit()}",
             f"tried    {len(found)} cases, {len(candidates)} candidates, {len(MODES)} modes: {starts} starts",
             f"differ   {len(bad)} starts, {len(bad) - unknown} of them known and explained below",
             f"skipped  {len(skipped)} cases", "```"]
    if bad:
        lines += ["", "## Differences", "In production and in trials, unless a mode is named.", *_differences(found, known)]
    if slow := list(_slow(found)):
        lines += ["", "## Much slower", "| case | candidate | seconds | untouched |", "| --- | --- | --- | --- |", *slow]
    lines += ["", "## Cases", "Starts in production and in trials together. `system` in production is the untouched program and is not",
              "counted. Long cases run under one setting of each allocator, and under those that give free pages back.",
              "", "| case | what is tried | starts |", "| --- | --- | --- |", *_rows(found)]
    if skipped:
        lines += ["", "## Not run", "| case | what would be tried | why not |", "| --- | --- | --- |",
                  *(f"| `{case.name}` | {case.what} | {why} |" for case, why in skipped)]
    lines += ["", "## Candidates and versions", f"Candidates: {', '.join(candidate['name'] for candidate in candidates)}.",
              "", f"Versions: {_versions()}."]
    part = path.with_suffix(".part")
    part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    part.replace(path)
