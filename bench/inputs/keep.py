# SPDX-License-Identifier: Apache-2.0
"""Keeps all objects, so that there are many megabytes of live blocks: notes of 600 to 1,600 characters, and
an index of them."""

notes = []
index = {}
state = 1
for number in range(60_000):
    state = (state * 1103515245 + 12345) % (1 << 31)
    notes.append(f"note {number} " + "x" * (600 + state % 1000))
    index.setdefault(state % 997, []).append(number)
    if number % 3 == 0:
        notes[state % len(notes)] = f"note {number} rewritten " + "y" * (600 + state % 700)
print(sum(map(len, notes)), len(index))
