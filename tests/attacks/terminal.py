# SPDX-License-Identifier: Apache-2.0
"""Names that control the reader's terminal."""

import os
import pty
import re
import subprocess

# Window title, a line that looks like a row, a sequence that starts with one byte (C1), and text that changes
# direction.
NAME = "x\x1b]0;pwned\x07a\n42  forged\r\x9b2Jb\u202egpj"
STEERS = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def on_a_terminal(*words):
    """The output of root's command on a terminal, where escape sequences are not removed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    process.wait()
    return text.decode(errors="replace")


def a_name_that_steers_the_terminal(world):
    world.notice("mallory", NAME)
    numbers = [number for number, in world.rows("SELECT id FROM program WHERE path LIKE '%pwned%'")]
    world.expect("it is known", len(numbers) == 1, numbers)
    number = numbers[0]
    left_alone(world)
    for words in [["status"], ["show", "--system"], ["show", "--system", number], ["explain", "--system", number], ["status", "--json"],
                  ["show", "--system", "--json"], ["pin", "--system", number, "jemalloc"], ["doctor"]]:
        # The terminal itself ends lines by CR LF.
        shown = on_a_terminal("imas", *words).replace("\r\n", "\n")
        command = f"imas {' '.join(map(str, words))}"
        world.expect(f"{command} steers no terminal", not STEERS.search(shown) and "\r" not in shown, repr(shown))
        rows = [line for line in shown.splitlines() if line.startswith("42  forged")]
        world.expect(f"{command} shows no forged row", not rows, rows)
    log = world.log.read_text()
    world.expect("the log steers no terminal", "pwned" in log and not STEERS.search(log) and "\n42  forged" not in log, repr(log))


def left_alone(world):
    """The same with an ineligible program: only its path is known."""
    path = world.program("mallory", f"static{NAME}", "/usr/sbin/imas-rescue")
    world.as_user("mallory", path)


ATTACKS = [a_name_that_steers_the_terminal]
