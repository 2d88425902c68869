# SPDX-License-Identifier: Apache-2.0
"""Runs processes one after the other, interleaved, and measures the CPU time of each."""

import os
import random
import subprocess


def leveled(environments):
    """The environments, padded to equal size: the size alone shifts the stack, and with it the time."""
    size = {way: sum(len(k) + len(v) + 2 for k, v in env.items()) for way, env in environments.items()}
    most = max(size.values())
    return {way: {**env, "FILL": "x" * (most - size[way])} for way, env in environments.items()}


def cpu_of(command, environment, drive=None, stdin=None):
    """User and system seconds of the command's process (and of children it waited for). `drive` puts load on
    a server."""
    with open(stdin or os.devnull, "rb") as source:
        child = subprocess.Popen(command, env=environment, stdin=source, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
    if drive:
        drive()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{command}: ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def interleaved(measure, ways, rounds, warm=1):
    """`rounds` rounds of measure(way) over all ways, each round in a new random order; the first `warm` are
    thrown away."""
    order, chance, found = list(ways), random.Random(1), []
    for _ in range(warm + rounds):
        chance.shuffle(order)
        found.append({way: measure(way) for way in order})
    return found[warm:]


def starts(place, ways, rounds, block):
    """Rounds of {way: (wall_s, cpu_s)} of whole processes; ways: {name: (variables, command)}. See spawn.c.
    """
    command = [place.program("spawn"), str(rounds), str(block)]
    for name, (variables, argv) in ways.items():
        command += [",", name, *(f"{k}={v}" for k, v in variables.items()), "=", *argv]
    output = subprocess.run(command, env=place.environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [line.split() for line in output.splitlines()]
    taken = [(name, (int(wall) / 1e9, int(cpu) / 1e9)) for name, wall, cpu in lines if name in ways]
    return [dict(taken[i:i + len(ways)]) for i in range(0, len(taken), len(ways))]
