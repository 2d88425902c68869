# SPDX-License-Identifier: Apache-2.0
"""Index and catalogue of libimas-preload.so with any error: programs start untouched."""

import os
import random
import shutil
import struct
import subprocess
import sys

from harness import WORK, check, run, wanted
from stub import FLIGHT, LIBRARIES, RUN, SHOWN, USER, entry, is_placed, left_alone, mount, pages, placed, publish, switch

ENTRY = 1536  # bytes of the catalogue's header, and of an entry


def faults():
    """With any error in index or catalogue, programs start untouched."""
    sound = lambda: publish(entry(SHOWN, f"flags={FLIGHT}"))
    index, table = RUN / "state/index", RUN / "catalogue"

    def case(name, spoil):
        if not wanted(f"fault {name}"):
            return
        sound()
        spoil()
        left_alone(f"fault {name}", [SHOWN])
        for path in (index, table, RUN / "disabled"):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)

    def replaced(path, target):
        path.rename(path.with_suffix(".moved"))
        os.symlink(path.with_suffix(".moved"), path) if target == "link" else os.mkfifo(path) if target == "fifo" else path.mkdir()

    for path in (index, table):
        case(f"{path.name} missing", path.unlink)
        case(f"{path.name} empty", lambda path=path: path.write_bytes(b""))
        case(f"{path.name} short", lambda path=path: os.truncate(path, path.stat().st_size - 1))
        case(f"{path.name} header only", lambda path=path: os.truncate(path, 128))
        case(f"{path.name} long", lambda path=path: os.truncate(path, path.stat().st_size + 128))
        case(f"{path.name} garbage", lambda path=path: path.write_bytes(random.Random(1).randbytes(5000)))
        case(f"{path.name} of another", lambda path=path: os.chown(path, USER, 0))
        case(f"{path.name} writable by a group", lambda path=path: path.chmod(0o664))
        case(f"{path.name} unreadable", lambda path=path: path.write_bytes(b"x"))
        for kind in ["link", "fifo", "folder"]:
            case(f"{path.name} {kind}", lambda path=path, kind=kind: replaced(path, kind))
    case("stale boot", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "boot\t00000000-0000-0000-0000-000000000000"))
    case("another catalogue", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "catalogue\t1234"))
    case("index disabled", lambda: publish(entry(SHOWN, f"flags={FLIGHT}"), "disabled"))
    case("switched off for all", (RUN / "disabled").touch)
    case("executable of another size", lambda: publish(entry(SHOWN, "bytes=1", f"flags={FLIGHT}")))
    case("huge numbers", lambda: forge_header(index))
    case("catalogue of version 1", lambda: forge_version(table))
    library = LIBRARIES / "allocators/libmimalloc.so"
    for name, file in [("library", library), ("guard", LIBRARIES / "libimas-guard.so")]:
        case(f"{name} replaced", lambda file=file: (shutil.copy2(file, "/run/other.so"), os.rename("/run/other.so", file)))
        case(f"{name} touched", lambda file=file: os.utime(file, (1, 1)))
        os.utime(file)
    case("no room for pages", fill_pages)
    subprocess.run(["umount", RUN / "state/u/0"], stderr=subprocess.DEVNULL)
    if wanted("fault"):
        sound()
        os.chown(index, USER, 0)
        publish(entry(SHOWN, f"flags={FLIGHT}"), f"daemon\t{USER}")
        os.chown(index, USER, 0)
        placed("fault-free index of the daemon", [SHOWN])


def forge_header(index):
    data = bytearray(index.read_bytes())
    for at in range(16, 72):
        data[at] = 0xFF
    index.write_bytes(data)


def forge_version(table):
    """The version of before, with the right check sum."""
    data = bytearray(table.read_bytes())
    data[8:16] = struct.pack("=II", 1, 0)
    check_sum = 0x811c9dc5
    for byte in data[:ENTRY]:
        check_sum = (check_sum ^ byte) * 0x01000193 & 0xffffffff
    data[12:16] = struct.pack("=I", check_sum)
    table.write_bytes(data)


def fill_pages():
    mount("-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", str(RUN / "state/u/0"))
    try:
        (RUN / "state/u/0/full").write_bytes(b"x" * 4096)
    except OSError:
        pass


def each_byte():
    """With a wrong bit in the header, the entry or the catalogue's part that is read, the program is left
    alone."""
    if not wanted("each byte"):
        return
    publish(entry(SHOWN, f"flags={FLIGHT}"))
    switch(True)
    for path, places in [(RUN / "state/index", every_byte_of_index), (RUN / "catalogue", every_byte_of_catalogue)]:
        data = path.read_bytes()
        wrong = []
        for at in places(data):
            damaged = bytearray(data)
            damaged[at] ^= 1 << random.Random(at).randrange(8)
            path.write_bytes(damaged)
            outcome = run([SHOWN])
            if outcome.returncode != 0 or b"libmimalloc" in outcome.stderr:
                wrong.append(at)
        path.write_bytes(data)
        check(f"each byte of {path.name}", not wrong, wrong[:20])
    outcome = run([SHOWN])
    switch(False)
    check("each byte: still placed when whole", is_placed(outcome, pages()), outcome)


def every_byte_of_index(data):
    taken = next(at for at in range(128, len(data), 128) if any(data[at : at + 128]))
    return [*range(128), *range(taken, taken + 128)]


def every_byte_of_catalogue(data):
    mimalloc = next(at for at in range(ENTRY, len(data), ENTRY) if data[at:].startswith(b"mimalloc\0"))
    return [*range(0, ENTRY, 7), *range(mimalloc, mimalloc + ENTRY, 7)]


def damaged():
    """Ten thousand damaged and forged files, read by the same code built with sanitizers."""
    if not wanted("damaged"):
        return
    publish(entry(SHOWN), "fill\t20")
    for seed in range(2):
        command = [WORK / "lookup-sanitized", "damage", RUN / "state/index", RUN / "catalogue", SHOWN, "10000", str(seed + 1)]
        outcome = run(command)
        check(f"damaged {seed}", outcome.returncode == 0 and b"20000" not in outcome.stdout, outcome)
        print(f"preload: {outcome.stdout.decode().strip()}")


def shrinking():
    """The index is overwritten in place repeatedly while programs start."""
    if not wanted("shrinking"):
        return
    publish(entry(SHOWN, f"flags={FLIGHT}"), "fill\t50")
    index = RUN / "state/index"
    writer = subprocess.Popen([sys.executable, "-c", f"""
data = open('{index}', 'rb').read()
import random
while True:
    with open('{index}', 'r+b') as file:
        file.truncate(random.randrange(len(data)))
        file.write(data[:random.randrange(len(data))])
        file.seek(0)
        file.write(data)
"""])
    switch(True)
    ends = [run([SHOWN]) for _ in range(300)]
    switch(False)
    writer.kill()
    writer.wait()
    pages()
    check("shrinking", all(end.returncode == 0 for end in ends) and len({end.stdout for end in ends}) == 1, {end.returncode for end in ends})
    count = sum(b"libmimalloc" in end.stderr for end in ends)
    print(f"preload: {count} of 300 placed while the index was written over")
