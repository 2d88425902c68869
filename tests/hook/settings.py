# SPDX-License-Identifier: Apache-2.0
"""libimas-settings.so: a runtime that asks for its settings gets them, and the environment shows nothing."""

import os
import subprocess

from harness import CORE, GUARD, HOOK, LIB, check, compile_program

SETTINGS = LIB / "libimas-settings.so"

# Asks for each name twice, as getenv and secure_getenv; then shows its environment, and a child's.
ASKER = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
static const char *shown(const char *value) { return value != NULL ? value : "-"; }
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        printf("%s=%s ", argv[i], shown(getenv(argv[i])));
        printf("%s\n", shown(secure_getenv(argv[i])));
    }
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "PATH=", 5) != 0)
            printf("has %s\n", *entry);
    }
    setenv("TOLD", "later", 1);
    printf("TOLD=%s\n", shown(getenv("TOLD")));
    fflush(stdout);
    return system("exec /usr/bin/env | grep -v ^PATH= | sed 's/^/child /'") != 0;
}
"""


def answers(program, environment, *names, library=GUARD):
    variables = {"PATH": os.environ["PATH"], **environment}
    variables["LD_PRELOAD"] = f"{library}:{SETTINGS}"
    command = [program, *names]
    return subprocess.run([str(word) for word in command], env=variables, capture_output=True, text=True).stdout.splitlines()


def settings():
    program = compile_program("asker", ASKER)
    for library in (GUARD, HOOK):
        way = library.name
        added = {"A_SET": "1", "LASTS": "2", "IMAS_SETTINGS": "A_SET:+LASTS:NOT_THERE",
                 "IMAS_UNSET": "A_SET:LASTS:IMAS_SETTINGS:LD_PRELOAD"}
        said = answers(program, added, "A_SET", "LASTS", "NOT_THERE", "A_SE", "A_SETS", library=library)
        check(f"settings {way}: answered", said[:5] == ["A_SET=1 -", "LASTS=2 2", "NOT_THERE=- -", "A_SE=- -", "A_SETS=- -"], said)
        check(f"settings {way}: hidden", not any("A_SET" in line or "LASTS" in line or "IMAS" in line or "PRELOAD" in line
                                                 for line in said[5:]), said)
        check(f"settings {way}: the rest is libc's", "TOLD=later" in said and "child TOLD=later" in said, said)
    changed = {"LIST": "own ours", "IMAS_WAS_LIST": "own", "IMAS_SETTINGS": "LIST", "IMAS_UNSET": "IMAS_SETTINGS:LD_PRELOAD"}
    said = answers(program, changed, "LIST")
    check("settings: the user's list comes back", said[0] == "LIST=own ours own" and "has LIST=own" in said, said)
    for odd in ("", ":", "+", "+:+", ":".join(["A"] * 100), "A=B", "A" * 5000):
        said = answers(program, {"IMAS_SETTINGS": odd, "IMAS_UNSET": "IMAS_SETTINGS:LD_PRELOAD", "A": "1"}, "TOLD")
        check(f"settings: an odd list {odd[:10]!r}", said[:1] == ["TOLD=- -"] and "TOLD=later" in said, said)
    for allocator in sorted((LIB / "allocators").glob("*.so")) if not CORE else []:
        variables = {"PATH": os.environ["PATH"], "LD_PRELOAD": f"{GUARD}:{SETTINGS}:{allocator}", "IMAS_UNSET": "LD_PRELOAD:X",
                     "IMAS_SETTINGS": "X", "X": "1"}
        done = subprocess.run([str(program), "X"], env=variables, capture_output=True, text=True)
        check(f"settings beside {allocator.name}", done.returncode == 0 and done.stdout.startswith("X=1 -"), done)
