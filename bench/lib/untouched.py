# SPDX-License-Identifier: Apache-2.0
"""Servers that are trimmed under load, each beside the same server untouched: what differs.

Two of each are started. Each pass of the load goes to one of them, then to the other one, in turns. So what differs is the
trims, and both see the same noise of the machine."""

import os
import shutil
import statistics
import tempfile
import time

from server import Refused, Server
from trims import Sum, Trimming, reasons, trim, write

# Passes after which a server of which no process was trimmed is called left alone.
ENOUGH = 2
HEADER = ("server | trims, a second | requests, failed | failed, processes lost, end: untouched | MiB back | stood ms, median, p99 and "
          "most | MiB after passes, untouched | rate, trimmed by untouched [spread] | back in use | difference")


class Side:
    """One of the two, and what became of its load."""

    def __init__(self, server):
        self.server = server
        self.passes_s, self.mib, self.requests, self.failed, self.broken, self.answered = [], [], 0, 0, [], []

    def start(self):
        self.server.start()
        self.first = set(self.server.processes())

    def go(self):
        """A pass of the load."""
        begun, answered = time.monotonic(), []
        for line in self.server.recipe["load"]:
            ended = self.server.line(line)
            failed = ended.failed()
            if failed is None:
                self.broken.append(f"{line[:60]}: {ended.text[-200:]}")
            self.requests += ended.requests()
            self.failed += failed or 0
            answered.append(ended.answered())
        self.answered.append(answered)
        self.passes_s.append(time.monotonic() - begun)
        self.mib.append(self.server.memory())

    def end(self):
        """Figures at the end. A worker that fell is started anew by its master: so those of the beginning are counted."""
        lost = len(self.first - set(self.server.processes()))
        is_alive = self.server.is_alive()
        status = self.server.end()
        return {"passes_s": self.passes_s, "requests": self.requests, "failed": self.failed, "broken": self.broken, "lost": lost,
                "alive": is_alive, "status": status, "mib": self.mib, "answered": self.answered}


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
                    side.go()
                    continue
                with Trimming(place, side.server, came, options.rate, options.trims):
                    side.go()
                seconds += side.passes_s[-1]
            if came.done >= options.trims or (number + 1 >= ENOUGH and not came.done) or time.monotonic() > until:
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
    """What one trim of each process gives back, and how much of it is in use again after so many seconds of the same load."""
    before = side.server.memory()
    for pid in side.server.processes():
        trim(place, pid)
    after, begun, passes = side.server.memory(), time.monotonic(), len(side.passes_s)
    while time.monotonic() - begun < seconds and side.server.is_alive():
        side.go()
    took, now = time.monotonic() - begun, side.server.memory()
    del side.passes_s[passes:], side.mib[passes:]  # the other one has none to compare them with
    return {"before_mib": before, "after_mib": after, "then_mib": now, "seconds": took}


def differences(untouched, trimmed):
    """What the trimmed one did otherwise than the untouched one, in words."""
    found = [f"{what}: {trimmed[key]} in place of {untouched[key]}" for key, what in (("status", "end status"), ("alive", "is alive"))
             if trimmed[key] != untouched[key]]
    for key, what in (("failed", "failed requests"), ("lost", "processes lost")):
        if trimmed[key] > untouched[key]:
            found.append(f"{what}: {trimmed[key]} in place of {untouched[key]}")
    if len(trimmed["broken"]) > len(untouched["broken"]):
        found.append(f"lines of load failed: {trimmed['broken'][0]}")
    # Answers can be compared where none failed, and where they are the same in each pass of the untouched one.
    for place, expected in enumerate(untouched["answered"][0] if not untouched["failed"] + trimmed["failed"] else []):
        if all(answered[place] == expected for answered in untouched["answered"][1:]):
            other = [answered[place] for answered in trimmed["answered"] if answered[place] != expected]
            found.extend([f"bytes of answers: {other[0]} in place of {expected}"] if other else [])
    return found


def line_of(row):
    """The row of the table."""
    untouched, trimmed = row["untouched"], row["trimmed"]
    difference = "; ".join(row["differences"]) or "0"
    reason = f" | left alone: {reasons(row['left_alone'])}" if row["left_alone"] else ""
    if not row["done"]:
        return f"{row['server']} | none{reason} | difference: {difference}"
    # The first pass of each warms it up.
    ratios = [a / b for a, b in zip(untouched["passes_s"][1:] or untouched["passes_s"], trimmed["passes_s"][1:] or trimmed["passes_s"])]
    ends = " and ".join(f"{side['failed'] + len(side['broken'])}, {side['lost']}, {side['status']}" for side in (trimmed, untouched))
    stood = row["stood_ms"]
    return (f"{row['server']} | {row['done']}, {row['a_second']:.1f} | {trimmed['requests']}, {trimmed['failed']} | {ends} | "
            f"{row['returned_mib']:.1f} of {row['promised_mib']:.1f} | {stood['median']:.2f}, {stood['p99']:.1f}, {stood['most']:.1f} | "
            f"{statistics.mean(trimmed['mib']):.0f}, {statistics.mean(untouched['mib']):.0f} | {statistics.mean(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] | "
            f"{in_use_again(row['back_in_use'])} | {difference}{reason}")


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
