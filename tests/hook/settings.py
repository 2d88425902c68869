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


UNTOUCHED = "0 0 40 0 0 none 16"
BY_COMMAND_LINE = 1 | 1 << 17


def flags_of_a_jvm():
    """The flags of a JVM are set inside it, all or none, and only where it describes them as we know it."""
    def said(flags, *words, name="jvm_like", **variables):
        ours = {"IMAS_JVM_FLAGS": flags, "IMAS_JVM_YIELDS": "-XX:+UseG1GC -XX:-UseSerialGC -XX:MinHeapFreeRatio= @", "IMAS_SETTINGS": "IMAS_JVM_FLAGS",
                "IMAS_UNSET": "IMAS_JVM_FLAGS:IMAS_JVM_YIELDS:IMAS_SETTINGS:LD_PRELOAD"}
        lines = answers(WORK / name, {**ours, **variables}, *words)
        return " ".join(lines[0].split()[:7]), lines

    for name, flags in (("jvm_like", ()), ("jvm_texts", ("-DTEXTS",)), ("jvm_other", ("-DOTHER_LAYOUT",))):
        subprocess.run(["gcc", "-rdynamic", *flags, "-o", WORK / name, HERE / "programs/jvm_like.c"], check=True)
    serial = f"1 0 40 0 0 none {16 | BY_COMMAND_LINE}"
    for flags, expected in (("+UseSerialGC", serial), ("+UseSerialGC MinHeapFreeRatio=10 TrimNativeHeapInterval=4294967295",
                                                       serial.replace("40 0", "10 4294967295")),
                            ("+UseSerialGC +NoSuch", UNTOUCHED), ("UseSerialGC=1", UNTOUCHED), ("+MinHeapFreeRatio", UNTOUCHED),
                            ("+UseSerialGC MinHeapFreeRatio=1m", UNTOUCHED), ("+UseSerialGC ErrorFile=1", UNTOUCHED),
                            ("+UseSerialG", UNTOUCHED), ("+UseSerialGCs", UNTOUCHED), ("", UNTOUCHED), (" + = - ", UNTOUCHED)):
        found, lines = said(flags)
        check(f"jvm flags {flags!r}", found == expected and lines[1] == "hidden", lines)
    # The launcher has compared the words of its own program. Those of what that starts are compared inside.
    found, lines = said("+UseSerialGC", "-XX:+UseG1GC")
    check("jvm flags: the program itself", found == serial, lines)
    for words, variables, expected in (((), {}, serial), (("-XX:+UseSerialGC",), {}, serial), (("-XX:+UseG1GC",), {}, UNTOUCHED),
                                       (("-J-XX:-UseSerialGC",), {}, UNTOUCHED), (("@options",), {}, UNTOUCHED),
                                       (("-cp", "x", "-Xmx1g"), {}, serial), ((), {"JAVA_TOOL_OPTIONS": "-Da=b -XX:+UseG1GC"}, UNTOUCHED),
                                       ((), {"_JAVA_OPTIONS": "'-XX:+UseG1GC'"}, UNTOUCHED), ((), {"JDK_JAVA_OPTIONS": "-Xmx1g\n@x"}, UNTOUCHED)):
        found, lines = said("+UseSerialGC", *words, IMAS_FOLLOW="1", **variables)
        check(f"jvm flags beside {words} {variables}", found == expected, lines)
    for name in ("jvm_texts", "jvm_other"):
        found, lines = said("+UseSerialGC", name=name)
        check(f"jvm flags of another layout: {name}", found == UNTOUCHED, lines)


def settings(allocators):
    asked_early()
    flags_of_a_jvm()
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
