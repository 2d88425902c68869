# SPDX-License-Identifier: Apache-2.0
"""Jobs for a cluster of Dask at $PORT: dask_jobs.py JOB... . The data are Dask's own made-up measurements, of one seed."""
import os
import sys
import time

import dask
import dask.array
from dask.distributed import Client


def measurements(days="6D"):
    """Rows of id, name, x and y at each second, one partition a day: some 4 MB each, and more while names are text."""
    end = f"2026-01-{1 + int(days[:-1]):02}"
    return dask.datasets.timeseries(start="2026-01-01", end=end, freq="1s", partition_freq="1D", seed=3)


def group():
    """Means by name of all, kept on the cluster while they are asked for twice."""
    frame = measurements().persist()
    first = frame.groupby("name").agg({"x": "mean", "y": ["std", "max"]}).compute()
    second = frame[frame.x > 0].groupby(["name", "id"]).y.count().nlargest(20).compute()
    return len(first) + len(second)


def window():
    frame = measurements("3D")[["x", "y"]]
    return len(frame.rolling("600s").mean().resample("1h").max().compute())


def join():
    left, right = measurements("2D"), measurements("1D").groupby("name").x.mean().reset_index()
    both = left.merge(right, on="name", suffixes=("", "_mean"))
    return len(both[both.x > both.x_mean].sort_values("y").head(1000, npartitions=-1))


def text():
    frame = measurements("3D")
    upper = frame.name.str.upper() + "-" + frame.id.astype(str)
    return len(upper.value_counts().nlargest(50).compute())


def arrays():
    state = dask.array.random.RandomState(1)
    square = state.random((3000, 3000), chunks=(750, 750))
    return float((square @ square.T - square.mean(axis=0)).std().compute())


def describe():
    return len(measurements("3D").describe().compute())


def main():
    spans = []
    with Client(f"tcp://127.0.0.1:{os.environ['PORT']}", timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
        began = time.perf_counter()
        for name in sys.argv[1:]:
            start = time.perf_counter()
            if not globals()[name]():
                sys.exit(f"{name}: nothing came back")
            spans.append(time.perf_counter() - start)
    with open(os.environ.get("IMAS_METRICS", "/dev/stdout"), "a") as file:
        file.write(f"rate {len(spans) / (time.perf_counter() - began)} 1/s higher\nerrors 0 - lower\np99 {max(spans) * 1000} ms lower\n")


main()
