# SPDX-License-Identifier: Apache-2.0
"""HOW [BLOCKS]: fills 60 MB, or so many kilobytes, in blocks of 1,000 bytes and frees all but every hundredth, so that the free
pages lie between blocks in use. Then it prints "ready" and waits, until its standard input is closed: in poll, beside two
threads that sleep ("threads"), ten times a second ("poll"), when something comes ("blocked"), or the same in a child of fork
("fork", which prints the child's number)."""
import ctypes, os, select, sys, threading, time

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
how, count = sys.argv[1], int((sys.argv[2:] or [60000])[0])


def fill():
    blocks = [libc.malloc(1000) for _ in range(count)]
    for block in blocks:
        libc.memset(block, 1, 1000)
    for at, block in enumerate(blocks):
        if at % 100:
            libc.free(block)


if how == "threads":
    for _ in range(2):
        threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
fill()
child = os.fork() if how == "fork" else 0
if how == "fork" and not child:
    fill()  # what it has of its parent is shared, and nothing to give back
if how == "fork" and child:
    print(child, flush=True)
elif how != "fork":
    print("ready", flush=True)
waiting = select.poll()
waiting.register(0)
if child:
    os.waitpid(child, 0)
while True:
    if waiting.poll(None if how == "blocked" else 100) and not os.read(0, 1):
        os._exit(0)
