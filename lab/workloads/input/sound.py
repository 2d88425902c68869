# SPDX-License-Identifier: Apache-2.0
# sound.py SECONDS REPEATS: a stereo WAV file with chords, a rhythm and some noise on standard output.
import array
import math
import random
import sys
import wave

random.seed(5)
rate, seconds, repeats = 44100, int(sys.argv[1]), int(sys.argv[2])
table = [math.sin(i * math.tau / 4096) for i in range(4096)]
samples = array.array("h")
for n in range(rate * seconds):
    chord = (n // (rate // 2)) % 4
    left = right = 0.0
    for voice, pitch in enumerate((220, 277, 330)):
        step = int(n * (pitch + 40 * chord) * 4096 / rate)
        left += table[step & 4095] * 5000
        right += table[(step + voice * 900) & 4095] * 5000
    beat = max(0.0, 1 - (n % (rate // 4)) / 3000)
    hiss = (random.random() - 0.5) * 9000 * beat
    samples.append(int(left + hiss))
    samples.append(int(right - hiss))
with wave.open(sys.stdout.buffer, "wb") as file:
    file.setparams((2, 2, rate, len(samples) // 2 * repeats, "NONE", ""))
    file.writeframes(samples.tobytes() * repeats)
