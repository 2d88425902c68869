# SPDX-License-Identifier: Apache-2.0
"""Figures with their spread, and whether a bound is held.

A measurement is a list of rounds. In a round every way was measured once, one right after the other in random
order: {way: value}. A figure is a function of the ways' medians (a ratio, a difference). Its spread is the middle
95 % of that function over rounds drawn with replacement. Whole rounds are drawn, so that a disturbance of all ways
of a round affects all of them in the resample too.
"""

import random
import statistics
from typing import Callable, NamedTuple

RESAMPLES = 2000
LEVEL = 0.95


class Interval(NamedTuple):
    """lo and hi enclose the middle 95 % of the resamples; mid is the figure itself."""

    lo: float
    mid: float
    hi: float


class Row(NamedTuple):
    """One line of the table. held: yes, no, open (the interval includes the bound) or - (nothing was
    promised)."""

    what: str
    bound: str
    measured: str
    held: str


def decile(values):
    """The first decile: for elapsed times of a millisecond, to which other load can only add."""
    return statistics.quantiles(values, n=10)[0]


def centres(rounds, centre=statistics.median):
    """Of each way its centre over the rounds: {way: value}."""
    return {way: centre([each[way] for each in rounds]) for way in rounds[0]}


def spread(rounds, figure: Callable[[dict], float], centre=statistics.median) -> Interval:
    """The figure of the medians (or another centre) with its bootstrap interval."""
    chance = random.Random(1)
    drawn = sorted(figure(centres(chance.choices(rounds, k=len(rounds)), centre)) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - LEVEL) / 2)
    return Interval(drawn[cut], figure(centres(rounds, centre)), drawn[-1 - cut])


def held(interval: Interval, bound: float) -> str:
    """For a figure that promises to stay at or below the bound."""
    if interval.hi <= bound:
        return "yes"
    return "no" if interval.lo > bound else "open"


def shown(interval: Interval, digits: int, unit: str = "", sign: str = "") -> str:
    """sign "+": for a difference."""
    unit = f" {unit}" if unit else ""
    lo, mid, hi = (f"{value:{sign}.{digits}f}" for value in interval)
    return f"{mid}{unit} [{lo}, {hi}]"


def table(rows) -> str:
    """Columns as wide as their widest entry, in Markdown so that it can be pasted."""
    lines = [Row("what", "bound", "measured [95 % interval]", "held?"), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(Row._fields))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)
