# SPDX-License-Identifier: Apache-2.0
# picture.py WIDTH HEIGHT: a colour picture (PPM) with smooth areas, edges and noise on standard output.
import random
import sys

random.seed(4)
width, height = int(sys.argv[1]), int(sys.argv[2])
noise = random.randbytes(1 << 16)
out = bytearray()
for y in range(height):
    for x in range(width):
        grain = noise[(x * 31 + y * 977) & 0xFFFF] & 15
        disc = 90 if (x - width // 2) ** 2 + (y - height // 2) ** 2 < (height // 3) ** 2 else 0
        check = 40 if (x >> 5 ^ y >> 5) & 1 else 0
        out += bytes(((x * 255 // width + grain) & 255, (y * 200 // height + check + grain) & 255, (disc + check + grain * 2) & 255))
sys.stdout.buffer.write(b"P6\n%d %d\n255\n" % (width, height) + out)
