# SPDX-License-Identifier: Apache-2.0
"""percentiles.py dnsperf: latencies of single requests as p50, p90, p99 and p99.9 for $IMAS_METRICS.

Standard input is the output of `dnsperf -v`; what is not a line of a request is passed on.
"""

import os
import sys

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def of_dnsperf():
    """Milliseconds: `> NOERROR www.example. A 0.000123` is a request with its seconds."""
    found, is_whole = [], False
    for line in sys.stdin:
        is_whole |= "Queries per second:" in line
        words = line.split()
        if line.startswith("> ") and len(words) >= 5 and words[1] != "T":
            found.append(float(words[-1]) * 1e3)
        else:
            sys.stdout.write(line)
    # The shell has the exit status of the last program of a pipeline alone.
    return found if is_whole else sys.exit("percentiles.py: dnsperf has not ended by itself")


def at(ordered, share):
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main():
    found = sorted({"dnsperf": of_dnsperf}[sys.argv[1]]())
    if not found:
        sys.exit("percentiles.py: no latencies")
    with open(os.environ["IMAS_METRICS"], "a") as metrics:
        for name, share in SHARES.items():
            metrics.write(f"{name} {at(found, share)} ms lower\n")


if __name__ == "__main__":
    main()
