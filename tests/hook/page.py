# SPDX-License-Identifier: Apache-2.0
"""Reads a trial or flight page (abi/imas_abi.h) into a dictionary; `python3 page.py FILE` prints it as JSON.
"""

import json
import struct
import sys

STATES = ["ARMED", "ENTERED", "ACTIVE", "TRIAL", "PASS"]
REASONS = ["NONE", "DISABLED", "OWN_MALLOC", "SECCOMP", "RLIMIT_AS", "LD_AUDIT", "VALGRIND", "SANITIZER",
           "NO_ALLOCATOR", "PAGE", "NOT_THE_PROGRAM", "PID1", "INTERFACE", "WRAPPED", "TOO_EARLY", "OWN_FILTER"]
OPS = ["malloc", "realloc", "memalign", "free"]
HEADER_BYTES, SAMPLED_BYTES, SLOT_BYTES, SLOTS = 4096, 4096, 64, 128
TRIAL_BYTES = HEADER_BYTES + SAMPLED_BYTES + SLOTS * SLOT_BYTES
MAGIC = 0x31454741505341A9

HEADER = [
    ("magic", "Q"), ("version", "I"), ("page_bytes", "I"), ("kind", "I"), ("pid", "I"), ("uid", "I"), ("armed", "I"),
    ("process_start_ticks", "Q"), ("made_unix_ns", "Q"), ("boot_id", "40s"), ("trial_id", "40s"),
    ("candidate", "64s"), ("program", "1024s"), ("detail", "1024s"), ("build_id", "72s"),
    ("state", "I"), ("pass_reason", "I"), ("clean_exit", "I"), ("exit_status", "i"), ("fatal_signal", "I"),
    ("fatal_code", "i"), ("forks", "I"), ("threads", "I"), ("served", "128s"),
    ("ticks_start", "Q"), ("ns_start", "Q"), ("ticks_last", "Q"), ("ns_last", "Q"), ("empty_pair_ticks_256", "Q"),
    ("snapshots", "Q"), ("heap_bytes_sum", "Q"), ("heap_bytes_peak", "Q"), ("live_bytes_sum", "Q"),
    ("live_bytes_peak", "Q"), ("resident_bytes_sum", "Q"), ("resident_bytes_peak", "Q"),
    ("user_us", "Q"), ("system_us", "Q"), ("minor_faults", "Q"), ("major_faults", "Q"), ("max_rss_bytes", "Q"),
    ("voluntary_switches", "Q"), ("involuntary_switches", "Q"), ("resident_kib_time", "Q"),
    ("split_moments", "Q"), ("split_reported", "Q"), ("split_time", "Q"), ("split_resident_kib_time", "Q"),
    ("split_usable_kib_time", "Q"), ("split_requested_kib_time", "Q"), ("split_in_use_kib_time", "Q"),
    ("split_cached_kib_time", "Q"), ("split_dirty_kib_time", "Q"), ("split_own_kib_time", "Q"), ("forked", "Q"), ("own_calls", "Q"),
]


def text(value):
    return value.split(b"\0")[0].decode() if isinstance(value, bytes) else value


def read_header(data):
    values = struct.unpack_from("=" + "".join(code for _, code in HEADER), data)
    page = {name: text(value) for (name, _), value in zip(HEADER, values)}
    page["state"] = STATES[page["state"]]
    page["pass_reason"] = REASONS[page["pass_reason"]]
    return page


def read_sampled(data):
    at, sampled = HEADER_BYTES, {"op": {}}
    for name in OPS:
        count, weight, ticks, *histogram = struct.unpack_from("=51Q", data, at)
        sampled["op"][name] = {"sampled": count, "weight": weight, "ticks": ticks, "histogram": histogram}
        at += 51 * 8
    sampled["size_histogram"] = list(struct.unpack_from("=64Q", data, at))
    names = ["live_bytes", "live_samples", "live_dropped", "sample_interval_bytes", "usable_bytes_256",
             "requested_bytes_256", "live_requested"]
    sampled.update(zip(names, struct.unpack_from("=q5Qq", data, at + 512)))
    return sampled


def read_slots(data):
    slots = []
    for i in range(SLOTS):
        tid, _, a, b, c, d, requested, refused, _ = struct.unpack_from("=II7Q", data, 8192 + 64 * i)
        slots.append({"tid": tid, "calls": dict(zip(OPS, (a, b, c, d))), "bytes_requested": requested,
                      "refused": refused})
    return slots


def is_armed(path):
    """Whether the page is there and its maker is done with it."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return False
    return len(data) >= HEADER_BYTES and read_header(data)["armed"] == 1


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    page = read_header(data)
    assert page["magic"] == MAGIC and page["version"] == 1, path
    assert page["page_bytes"] == len(data), path
    if len(data) == TRIAL_BYTES:
        page["sampled"] = read_sampled(data)
        page["slots"] = read_slots(data)
        page["calls"] = {op: sum(slot["calls"][op] for slot in page["slots"]) for op in OPS}
        page["bytes_requested"] = sum(slot["bytes_requested"] for slot in page["slots"])
        page["refused"] = sum(slot["refused"] for slot in page["slots"])
    return page


if __name__ == "__main__":
    shown = read(sys.argv[1])
    if "slots" in shown:
        shown["slots"] = [slot for slot in shown["slots"] if slot["tid"] or any(slot["calls"].values())]
    print(json.dumps(shown, indent=1))
