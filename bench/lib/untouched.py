# SPDX-License-Identifier: Apache-2.0
"""Servers that are trimmed under load, each beside the same server untouched: what differs.

Two of each are started. Each pass of the load goes to one of them, then to the other one, in turns. So what differs is the
trims, and both see the same noise of the machine."""

import math
import os
import shutil
import statistics
import tempfile
import time

from server import Refused, Server
from trims import Sum, Trimming, reasons, trim, write

# Passes at least: the first one warms up. A server without a trimmed process by then is left alone.
LEAST = 3
HEADER = ("server | trims, a second | requests | failed, lines failed, processes lost, end: of both | MiB back | stood ms, median, p99 and "
          "most | MiB after passes, untouched | rate by untouched, median [quartiles] | back in use | difference")


class Side:
    """One of the two, and what became of its load: a record for each pass, and for each that only one of them had."""

    def __init__(self, server):
        self.server = server
        self.passes, self.later = [], []

    def start(self):
        self.server.start()
        self.first = set(self.server.processes())

    def go(self, into):
        """A pass of the load."""
        lines = [self.server.line(line) for line in self.server.recipe["load"]]
        failures = [ended.failed() for ended in lines]
        into.append({"seconds": [ended.seconds for ended in lines], "mib": self.server.memory(),
                     "requests": sum(ended.requests() for ended in lines), "failed": sum(filter(None, failures)),
                     "broken": failures.count(None), "answered": [ended.answered() for ended in lines],
                     "said": next((ended.text[-400:] for ended, failed in zip(lines, failures) if failed != 0), None)})

    def end(self):
        """Figures at the end. A worker that fell is started anew by its master: so the ones of the beginning are counted."""
        lost, is_alive = len(self.first - set(self.server.processes())), self.server.is_alive()
        return {"passes": self.passes, "later": self.later, "lost": lost, "alive": is_alive, "status": self.server.end()}


def compared(place, name, options):
    """A line of JSON about a server."""
    folder = tempfile.mkdtemp(prefix="setup-", dir=place.disk)
    os.chmod(folder, 0o755)
    untouched, trimmed = (Side(Server(name, place, folder)) for _ in range(2))
    came, seconds, again = Sum(), 0, None
    try:
        untouched.start()
        trimmed.start()
        until = time.monotonic() + options.minutes * 60
        for number in range(10_000):
            for side in (untouched, trimmed) if number % 2 == 0 else (trimmed, untouched):
                if side is untouched:
                    side.go(side.passes)
                    continue
                with Trimming(place, side.server, came, options.rate):
                    side.go(side.passes)
                seconds += sum(side.passes[-1]["seconds"])
            if number + 1 >= LEAST and (came.done >= options.trims or not came.done or time.monotonic() > until):
                break
        if came.done and options.after:
            again = back_in_use(place, trimmed, options.after)
    except BaseException:
        for side in (untouched, trimmed):
            side.server.end()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    result = {"server": name, **came.figures(), "a_second": came.done / seconds, "back_in_use": again,
              "load1": os.getloadavg()[0], "trimmed": trimmed.end(), "untouched": untouched.end()}
    shutil.rmtree(folder, ignore_errors=True)
    return {**result, "differences": differences(result["untouched"], result["trimmed"])}


def back_in_use(place, side, seconds):
    """What one trim of each process gives back, and how much of it is in use again after so many seconds of the same load.
    A pass without trims comes first."""
    side.go(side.later)
    before = side.server.memory()
    for pid in side.server.processes():
        trim(place, pid)
    after, begun = side.server.memory(), time.monotonic()
    while time.monotonic() - begun < seconds and side.server.is_alive():
        side.go(side.later)
    return {"before_mib": before, "after_mib": after, "then_mib": side.server.memory(), "seconds": time.monotonic() - begun}


def total(side, key):
    return sum(one[key] for one in side["passes"])


def is_more(trimmed, untouched):
    """Whether a count is larger by more than chance, where the untouched one has any."""
    return trimmed > untouched + (3 * math.sqrt(trimmed + untouched) if untouched else 0)


def differences(untouched, trimmed):
    """What the trimmed one did otherwise than the untouched one, in words."""
    found = [f"{what}: {trimmed[key]} in place of {untouched[key]}" for key, what in (("status", "end status"), ("alive", "is alive"))
             if trimmed[key] != untouched[key]]
    counts = [("processes lost", trimmed["lost"], untouched["lost"])]
    counts += [(what, total(trimmed, key), total(untouched, key)) for key, what in (("failed", "failed requests"), ("broken", "failed lines"))]
    found.extend(f"{what}: {more} in place of {less}" for what, more, less in counts if is_more(more, less))
    found.extend(["a pass failed after a trim"] if any(one["broken"] for one in trimmed["later"]) else [])
    # Answers can be compared where none failed, and where they are the same in each pass of the untouched one.
    if total(trimmed, "failed") + total(untouched, "failed") == 0:
        for place, expected in enumerate(untouched["passes"][0]["answered"]):
            other = [one["answered"][place] for one in trimmed["passes"] if one["answered"][place] != expected]
            if other and all(one["answered"][place] == expected for one in untouched["passes"]):
                found.append(f"bytes of answers: {other[0]} in place of {expected}")
    return found


def line_of(row):
    """The row of the table."""
    untouched, trimmed = row["untouched"], row["trimmed"]
    difference = "; ".join(row["differences"]) or "0"
    reason = f" | left alone: {reasons(row['left_alone'])}" if row["left_alone"] else ""
    if not row["done"]:
        return f"{row['server']} | none{reason} | difference: {difference}"
    low, median, high = quartiles(untouched["passes"], trimmed["passes"])
    failed = " and ".join(f"{total(side, 'failed')}, {total(side, 'broken')}, {side['lost']}, {side['status']}" for side in (trimmed, untouched))
    mib = ", ".join(f"{statistics.mean(one['mib'] for one in side['passes']):.0f}" for side in (trimmed, untouched))
    stood = row["stood_ms"]
    return (f"{row['server']} | {row['done']}, {row['a_second']:.1f} | {total(trimmed, 'requests')} | {failed} | "
            f"{row['returned_mib']:.1f} of {row['promised_mib']:.1f} | {stood['median']:.2f}, {stood['p99']:.1f}, {stood['most']:.1f} | "
            f"{mib} | {median:.2f} [{low:.2f}, {high:.2f}] | {in_use_again(row['back_in_use'])} | "
            f"{difference}{reason}")


def quartiles(untouched, trimmed):
    """Of the rate of the trimmed one by the other one's, a pair for each line of each pass; the first pass warms both up."""
    pairs = [pair for one, other in list(zip(untouched, trimmed))[1:] for pair in zip(one["seconds"], other["seconds"])]
    return statistics.quantiles([one / other for one, other in pairs], method="inclusive")


def in_use_again(again):
    if again is None:
        return "not looked at"
    back = again["before_mib"] - again["after_mib"]
    if back < 1:
        return f"{back:.1f} MiB came back"
    return f"{again['then_mib'] - again['after_mib']:.1f} of {back:.1f} MiB after {again['seconds']:.0f} s"


def servers(place, options):
    """Prints a row for each server."""
    print(HEADER)
    total = 0
    for name in options.services.split(","):
        try:
            row = compared(place, name, options)
        except (Refused, OSError) as error:
            print(f"SKIPPED: {name}: {error}", flush=True)
            continue
        write(options, row)
        total += len(row["differences"])
        print(line_of(row), flush=True)
    print(f"difference: {total}", flush=True)
