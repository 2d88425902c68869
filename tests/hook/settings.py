# SPDX-License-Identifier: Apache-2.0
"""libimas-settings.so: a runtime that asks for its settings gets them, and the environment shows nothing."""

import os
import subprocess

from harness import GUARD, HERE, HOOK, LIB, WORK, check, compile_program, run, skipped

SETTINGS = LIB / "libimas-settings.so"


def answers(program, environment, *names, library=GUARD):
    variables = {"PATH": os.environ["PATH"], **environment}
    variables["LD_PRELOAD"] = f"{library}:{SETTINGS}"
    command = [program, *names]
    return subprocess.run([str(word) for word in command], env=variables, capture_output=True, text=True).stdout.splitlines()


def asked_early():
    """A library asks while ld.so relocates it."""
    source = HERE / "programs/chooses.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-Wl,-z,now", "-DLIBRARY", "-o", WORK / "libchooses.so", source], check=True)
    compile_program("chooses", f"-L{WORK}", f"-Wl,-rpath,{WORK}", "-lchooses")
    plain = run([WORK / "chooses"])
    if plain.returncode < 0:
        skipped("settings: asked while ld.so relocates", "libc's functions cannot be called then on this machine")
        return
    said = answers(WORK / "chooses", {})
    check("settings: asked while ld.so relocates", plain.stdout == b"1\n" and said == ["1"], (plain, said))


def settings(allocators):
    asked_early()
    compile_program("asker")
    program = WORK / "asker"
    for library in (GUARD, HOOK):
        way = library.name
        added = {"A_SET": "1", "LASTS": "2", "IMAS_SETTINGS": "A_SET:+LASTS:NOT_THERE",
                 "IMAS_UNSET": "A_SET:LASTS:IMAS_SETTINGS:LD_PRELOAD"}
        said = answers(program, added, "A_SET", "LASTS", "NOT_THERE", "A_SE", "A_SETS", library=library)
        check(f"settings {way}: answered", said[:5] == ["A_SET=1 -", "LASTS=2 2", "NOT_THERE=- -", "A_SE=- -", "A_SETS=- -"], said)
        check(f"settings {way}: hidden", not any("A_SET" in line or "LASTS" in line or "IMAS" in line or "PRELOAD" in line
                                                 for line in said[5:]), said)
        check(f"settings {way}: the rest is libc's", "TOLD=later" in said and "child TOLD=later" in said, said)
        said = answers(program, added, "A_SET=own", "A_SET", "LASTS", "LASTS=own", "LASTS", library=library)
        check(f"settings {way}: the program's own value", said[:3] == ["A_SET=own own", "LASTS=2 2", "LASTS=own own"], said)
    changed = {"LIST": "own ours", "IMAS_WAS_LIST": "own", "IMAS_SETTINGS": "LIST", "IMAS_UNSET": "IMAS_SETTINGS:LD_PRELOAD"}
    said = answers(program, changed, "LIST")
    check("settings: the user's list comes back", said[0] == "LIST=own ours own" and "has LIST=own" in said, said)
    said = answers(program, changed, "LIST=mine", "LIST")
    check("settings: the program's own list", said[0] == "LIST=mine mine", said)
    for odd in ("", ":", "+", "+:+", ":".join(["A"] * 100), "A=B", "A" * 5000):
        said = answers(program, {"IMAS_SETTINGS": odd, "IMAS_UNSET": "IMAS_SETTINGS:LD_PRELOAD", "A": "1"}, "TOLD")
        check(f"settings: an odd list {odd[:10]!r}", said[:1] == ["TOLD=- -"] and "TOLD=later" in said, said)
    for library in [LIB / "allocators" / f"lib{name}.so" for name in allocators if name != "system"]:
        variables = {"PATH": os.environ["PATH"], "LD_PRELOAD": f"{GUARD}:{library}:{SETTINGS}", "IMAS_UNSET": "LD_PRELOAD:X:IMAS_SETTINGS",
                     "IMAS_SETTINGS": "X", "X": "1"}
        done = subprocess.run([str(program), "X"], env=variables, capture_output=True, text=True)
        check(f"settings beside {library.name}", done.returncode == 0 and done.stdout.startswith("X=1 -"), done)
