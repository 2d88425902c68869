# SPDX-License-Identifier: Apache-2.0
"""What the page says after a trial: the counts are exact, and the estimates near the truth."""

import random
import subprocess
import time

import page
from harness import CORE, PAGE, WORK, check, launch_command, page_once, skipped, under, until, wanted


def counts(allocators):
    """The number of calls and bytes is exact: two runs differ by exactly the added calls."""
    if not wanted("counts"):
        return
    rounds = 10007
    for threads in (1, 5, 200):
        per_thread = {"malloc": 3 * rounds, "realloc": 2 * rounds, "memalign": 2 * rounds, "free": 6 * rounds + 1}
        for allocator in allocators if threads < 200 else CORE:
            _, none = under("trial", allocator, [WORK / "counts", "0", threads])
            _, some = under("trial", allocator, [WORK / "counts", rounds, threads])
            added = {op: some["calls"][op] - none["calls"][op] for op in page.OPS}
            # some allocators ask libc for things that allocate and are freed as threads end: their own calls
            # are calls too
            own = 0 if allocator in CORE else threads
            check(f"counts {threads} threads {allocator}",
                  all(0 <= added[op] - n * threads <= own * (40 if op == "free" else 1) for op, n in per_thread.items()),
                  f"{added} {per_thread}")
            more = some["bytes_requested"] - none["bytes_requested"] - 1510 * rounds * threads
            check(f"counts bytes {threads} threads {allocator}", 0 <= more <= own * 1000, more)
            for op in page.OPS:
                estimate, exact = some["sampled"]["op"][op]["weight"] / 256, some["calls"][op]
                samples = some["sampled"]["op"][op]["sampled"]
                # Five standard errors and more: the sizes of a round vary by about their mean, so a sample counts for less than
                # a call.
                check(f"counts estimate of {op} {threads} threads {allocator}",
                      abs(estimate / exact - 1) < 7 / max(samples, 1) ** 0.5, f"{estimate} {exact} from {samples}")
            requested = some["sampled"]["requested_bytes_256"] / 256
            samples = sum(some["sampled"]["op"][op]["sampled"] for op in page.OPS if op != "free")
            check(f"counts estimate of bytes {threads} threads {allocator}",
                  abs(requested / some["bytes_requested"] - 1) < 7 / max(samples, 1) ** 0.5,
                  f"{requested} {some['bytes_requested']} from {samples}")


def live(allocators):
    """The estimate of live bytes compared with the program's own count."""
    for allocator in allocators:
        for mix, threads, megabytes in [("small", 1, 32), ("small", 4, 64), ("mixed", 1, 64), ("mixed", 8, 64),
                                        ("grown", 2, 48), ("large", 4, 400)]:
            name = f"live {mix} {threads} threads {allocator}"
            if not wanted(name):
                continue
            PAGE.unlink(missing_ok=True)
            command = launch_command("trial", allocator, [WORK / "live", mix, threads, megabytes])
            child = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
            exact = int(child.stdout.readline())
            child.kill()
            child.wait()
            left = page.read(PAGE)
            estimate = left["sampled"]["live_bytes"]
            # Five standard errors: some 3,700 blocks are sampled, and a fifth of the bytes is in arrays that are certain to be.
            check(name, abs(estimate / exact - 1) < 0.07,
                  f"{estimate} for {exact}: {estimate / exact - 1:+.2%}, {left['sampled']['live_samples']} samples, "
                  f"interval {left['sampled']['sample_interval_bytes']}, dropped {left['sampled']['live_dropped']}")
            # A thread that doubles the interval can lose its CPU meanwhile. The others go on entering blocks, and a few
            # find no place. What is lost must stay below the error of the estimate.
            check(f"{name} few dropped", left["sampled"]["live_dropped"] <= left["sampled"]["live_samples"] // 50,
                  f"{left['sampled']['live_dropped']} of {left['sampled']['live_samples']}")
            check(f"{name} snapshots", left["snapshots"] >= 2 and left["heap_bytes_peak"] > left["live_bytes_peak"] * 0.45 and
                  left["live_bytes_peak"] > exact * 0.95,
                  f"{left['snapshots']} live {left['live_bytes_peak']} heap {left['heap_bytes_peak']}")


def interrupted():
    """A call that another process interrupts is in the histogram and in no mean; a long call on many bytes is
    in the mean."""
    if not wanted("interrupted"):
        return
    for size, times in (4321, 60), (1 << 28, 8):
        outcome, left = under("trial", WORK / "libdawdles.so", [WORK / "dawdle", size, times])
        malloc = left["sampled"]["op"]["malloc"]
        left_out = sum(malloc["histogram"]) - malloc["weight"]
        # 1 ms is about 2^21 ticks; 8 ms are more than 2^22 by any clock.
        long, longer = (sum(malloc["histogram"][bucket:]) for bucket in (21, 22))
        if size == 4321:
            check("interrupted: in no mean", outcome.returncode == 0 and 0 < longer <= left_out, (outcome, longer, left_out))
        else:
            # One that got no processor for a second is left out.
            check("interrupted: not those of many bytes", outcome.returncode == 0 and long - left_out >= times // 2 * 256, (outcome, long, left_out))


def nothing():
    """free(NULL) matches no entry of the live table, even if a block with the same mark is in it."""
    if not wanted("nothing"):
        return
    outcome, left = under("trial", "system", [WORK / "nothing"])
    if outcome.returncode == 77:
        skipped("nothing", "no room for a block aligned to 4 GiB")
        return
    sampled = left["sampled"]
    check("nothing: the block was seen to go", outcome.returncode == 0 and abs(sampled["live_bytes"]) < 1 << 19 and sampled["live_samples"] < 1 << 20,
          (outcome, sampled["live_bytes"], sampled["live_samples"]))


def killed(allocators):
    """kill -9 at random instants: the page is whole and its figures plausible."""
    chance = random.Random(4711)
    for allocator in allocators:
        for _ in range(8):
            if not wanted("killed"):
                return
            PAGE.unlink(missing_ok=True)
            command = launch_command("trial", allocator, [WORK / "threads", "1000000"])
            child = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
            # A process that is killed earlier leaves no page.
            assert until(lambda: child.poll() is not None or page.is_armed(PAGE)) and child.poll() is None, child.returncode
            time.sleep(chance.uniform(0, 0.4))
            child.kill()
            child.wait()
            left = page.read(PAGE)
            label = f"killed {allocator}"
            check(f"{label} no end noted", (left["clean_exit"], left["fatal_signal"]) == (0, 0))
            if left["state"] != "TRIAL":
                continue
            calls = left["calls"]
            # a thread makes 21 calls of malloc and of free, and libc some 19 of free(NULL) at its end
            check(f"{label} counters agree", calls["malloc"] - 5000 < calls["free"] < 2 * calls["malloc"] + 5000 and
                  left["bytes_requested"] < 2000 * (calls["malloc"] + calls["realloc"] + 200), calls)
            for op, sampled in left["sampled"]["op"].items():
                check(f"{label} histogram of {op}", abs(sum(sampled["histogram"]) - sampled["weight"]) <= 32 * 64 * 256)


def memory(allocators):
    if not wanted("memory"):
        return
    for allocator in allocators:
        _, left = under("trial", allocator, [WORK / "stacks"])
        _, one = under("trial", allocator, [WORK / "counts", "1"])
        check(f"memory: stacks are not heap {allocator}", left["heap_bytes_peak"] < one["heap_bytes_peak"] + (100 << 20)
              if allocator in ("hoard", "hardened", "hardened-light", "rpmalloc", "jemalloc", "mimalloc2")
              else left["heap_bytes_peak"] < one["heap_bytes_peak"] + (8 << 20),
              f"{left['heap_bytes_peak']} {one['heap_bytes_peak']}")
        check(f"memory: usage at exit {allocator}", left["max_rss_bytes"] > 1 << 20 and left["minor_faults"] > 50 and
              left["resident_bytes_peak"] > 0 and left["ns_last"] > left["ns_start"], left["max_rss_bytes"])
        over_time = left["resident_kib_time"] * 1024 / max((left["ns_last"] - left["ns_start"]) >> 16, 1)
        check(f"memory: resident over time {allocator}", 0 < over_time <= left["resident_bytes_peak"], over_time)
        without_first_thread(allocator)


def without_first_thread(allocator):
    """A process that goes on without its first thread has the memory of one that has it."""
    plain, without = (under("trial", allocator, [WORK / "first_ends", *words])[1] for words in ([], ["ends"]))
    for figure in ("resident_bytes_peak", "heap_bytes_peak", "max_rss_bytes"):
        check(f"memory: {figure} without the first thread {allocator}", plain[figure] > 50 << 20 and
              0.8 < without[figure] / plain[figure] < 1.25, f"{without[figure]} {plain[figure]}")


TELLING = ["system", "jemalloc", "tcmalloc"]
LOOKS = 3


def split(allocators):
    """Where the resident bytes are, in a program that keeps an eighth of its blocks: its allocator must report the rest.

    The time for three readings depends on the machine: after each the hook waits for 256 times the CPU it took
    (docs/decisions/0014). Reading glibc's heap during the frees takes 3 to 5 ms: the next comes about a second later.
    """
    if not wanted("split"):
        return
    for allocator in allocators:
        left = page_once(lambda now: now["split_moments"] >= LOOKS, allocator, [WORK / "holes"])
        mib = {name: left[f"split_{name}_kib_time"] / max(left["split_time"], 1) / 1024
               for name in ("resident", "usable", "requested", "in_use", "cached", "dirty", "own")}
        label = f"split {allocator}"
        check(f"{label} looked at", left["split_moments"] >= LOOKS, f"{left['split_moments']} {mib}")
        check(f"{label} reported", left["split_reported"] == (left["split_moments"] if allocator in TELLING else 0), left["split_reported"])
        check(f"{label} rounding", mib["requested"] < mib["usable"] < 2 * mib["requested"], mib)
        known = mib["in_use"] + mib["cached"] + mib["dirty"] + mib["own"]
        if allocator in TELLING:
            check(f"{label} in use", abs(mib["in_use"] / mib["usable"] - 1) < 0.5, mib)
            check(f"{label} free blocks", mib["cached"] + mib["dirty"] > mib["in_use"] / 2, mib)
            check(f"{label} is what is resident", 0.6 * mib["resident"] < known < 1.1 * mib["resident"], mib)
        else:
            check(f"{label} nothing guessed", known == 0, mib)
    left = page_once(lambda now: now["split_moments"] > 0, "system", [WORK / "holes", "blocked"])
    check("split with a signal blocked: not asked", left["split_moments"] > 0 and left["split_reported"] == 0, left["split_reported"])
