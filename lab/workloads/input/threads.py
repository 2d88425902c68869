# SPDX-License-Identifier: Apache-2.0
# threads.py FILE THREADS: each thread compresses, hashes and splits its part of a file; most of that runs outside the interpreter's lock.
import hashlib
import sys
import threading
import zlib

data = open(sys.argv[1], "rb").read()
threads = int(sys.argv[2])
results = [None] * threads


def work(at):
    part = data[at * len(data) // threads : (at + 1) * len(data) // threads]
    packed = [zlib.compress(part[i : i + 20000], 6) for i in range(0, len(part), 20000)]
    back = b"".join(zlib.decompress(piece) for piece in packed)
    assert back == part
    words = {}
    for word in part.split():
        words[word] = words.get(word, 0) + 1
    results[at] = (len(words), hashlib.sha256(b"".join(packed)).hexdigest()[:8])


running = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
[thread.start() for thread in running]
[thread.join() for thread in running]
print(results)
