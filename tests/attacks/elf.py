# SPDX-License-Identifier: Apache-2.0
"""Executables whose headers claim more than the file holds, or far too much."""

import struct

from harness import run

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
STRTAB, DYNSYM = 3, 11


def bomb(path, symbols_bytes):
    """Gives a program a table of dynamic symbols of that size: a hole in the file, and the kernel runs it as
    before."""
    text = bytearray(path.read_bytes())
    header = list(HEADER.unpack_from(text))
    symbols = (len(text) + 4095) // 4096 * 4096
    names = symbols + symbols_bytes
    end = names + 4096
    sections = [(0,) * 10, (0, DYNSYM, 0, 0, symbols, symbols_bytes, 2, 1, 8, 24), (0, STRTAB, 0, 0, names, 4096, 0, 0, 1, 0)]
    header[6], header[11], header[12], header[13] = end, SECTION.size, len(sections), 2
    with open(path, "r+b") as file:
        file.write(HEADER.pack(*header))
        file.seek(names)
        file.write(b"\0malloc\0")
        file.seek(end)
        for section in sections:
            file.write(SECTION.pack(*section))


def a_sparse_file_with_600_mb_of_symbols(world):
    path = world.program("mallory", "bomb")
    bomb(path, 600_000_000 // 24 * 24)
    world.expect("it takes no room", path.stat().st_blocks * 512 < 1_000_000, path.stat())
    process = world.as_user("mallory", path, "1000")
    world.serves("bomb")
    world.expect("it runs on", process.poll() is None)
    is_left_alone = lambda: any(str(path) in line for line in run("imas", "status").stdout.splitlines())
    world.wait("root sees it in status", is_left_alone)
    # The result is stored: a restart does not read the file again.
    world.stop()
    world.start()
    world.serves("bomb-restart")


def a_hundred_of_them(world):
    first = world.program("mallory", "bomb")
    bomb(first, 30_000_000 // 24 * 24)  # just below the limit
    for number in range(100):
        world.shell("mallory", 'cp --sparse=always "$1" "$2"', first, f"{first}-{number}")
    for number in range(100):
        world.as_user("mallory", f"{first}-{number}", "1000")
    world.serves("hundred-bombs")


def imasd_killed_twice_over_one_file(world):
    """As when the kernel kills imasd for its memory: the file that it was reading is excluded after the
    second time."""
    path, _ = world.notice("mallory", "killer")
    world.stop()
    world.write("DELETE FROM file_fact WHERE kind = 'imasd-executable-exec'")
    stamp = stamp_of(path)
    world.write("INSERT OR REPLACE INTO file_fact (path, kind, stamp, fact) VALUES (?, 'imasd-executable-begun', ?, '2')", str(path), stamp)
    world.start()
    world.as_user("mallory", path, "1000")
    seen = lambda: any(str(path) in line and "died" in line for line in run("imas", "status").stdout.splitlines())
    world.wait("status shows why it is excluded", seen)
    world.shell("mallory", 'cp "$1" "$1.new" && mv "$1.new" "$1"', path)
    world.as_user("mallory", path, "1000")
    found = "SELECT 1 FROM file_fact WHERE path = ? AND kind = 'imasd-executable-exec' AND stamp = ?"
    world.wait("a changed file is read again", lambda: world.rows(found, str(path), stamp_of(path)))


def stamp_of(path):
    """The identity of a file in the store."""
    about = path.stat()
    times = [about.st_mtime_ns // 10**9, about.st_mtime_ns % 10**9, about.st_ctime_ns // 10**9, about.st_ctime_ns % 10**9]
    return f"{about.st_dev}:{about.st_ino}:{about.st_size}:{times}"


ATTACKS = [a_sparse_file_with_600_mb_of_symbols, a_hundred_of_them, imasd_killed_twice_over_one_file]
