# SPDX-License-Identifier: Apache-2.0
"""What starting a process costs in each mode: /bin/true from posix_spawn to its end."""

import figures
import injection
import process
from figures import Row

WHAT = "start of /bin/true"
ROUNDS, BLOCK = 80, 4
TRUE = ["/bin/true"]


def _ways(place, allocators):
    """Those that are to be compared, by name: (variables, command). `launch` ways pay for making the page first."""
    preload = lambda *libraries: {"LD_PRELOAD": ":".join(libraries)}  # noqa: E731
    ways = {
        "plain": ({}, TRUE),
        "guard": (preload(place.guard), TRUE),
        "pass": ({**preload(place.hook), "IMAS_DISABLE": "1"}, TRUE),
        "launch": ({}, [place.program("launch"), "-p", str(place.scratch / "none.page"), "--", *TRUE]),
        "trial": ({}, injection.trial(place, None, TRUE)),
    }
    for name, library in allocators.items():
        ways[f"hand:{name}"] = (preload(library), TRUE)
        ways[f"guard:{name}"] = (preload(place.guard, library), TRUE)
        ways[f"trial:{name}"] = ({}, injection.trial(place, library, TRUE))
    return ways


def _row(rounds, what, way, base, bound_ms):
    wall = [{name: both[0] * 1e3 for name, both in each.items()} for each in rounds]
    cpu = [{name: both[1] * 1e3 for name, both in each.items()} for each in rounds]
    more = figures.spread(wall, lambda m: m[way] - m[base])
    work = figures.spread(cpu, lambda m: m[way] - m[base])
    bound = f"<= +{bound_ms} ms" if bound_ms else "-"
    return Row(f"{WHAT}: {what}", bound, f"+{figures.shown(more, 3, 'ms')}, CPU +{work.mid:.3f} ms",
               figures.held(more, bound_ms) if bound_ms else "-")


def run(place):
    allocators = place.default_allocators()
    rounds = process.starts(place, _ways(place, allocators), ROUNDS, BLOCK)
    plain = figures.spread([{"p": each["plain"][0] * 1e3} for each in rounds], lambda m: m["p"])
    rows = [
        Row(f"{WHAT}: untouched", "-", figures.shown(plain, 3, "ms"), "-"),
        _row(rounds, "guard alone (a candidate of settings)", "guard", "plain", 0.1),
        _row(rounds, "libimas standing aside", "pass", "plain", 0.15),
    ]
    for name in allocators:
        rows.append(_row(rounds, f"guard, over {name} preloaded by hand", f"guard:{name}", f"hand:{name}", 0.1))
        rows.append(_row(rounds, f"guard and {name}, over untouched", f"guard:{name}", "plain", 0.5))
    rows.append(_row(rounds, "trial of system, over untouched", "trial", "launch", 0.5))
    for name in allocators:
        rows.append(_row(rounds, f"trial of {name}, over untouched", f"trial:{name}", "launch", 0.5))
    return rows
