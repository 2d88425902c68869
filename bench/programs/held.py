# SPDX-License-Identifier: Apache-2.0
"""held.py MODE: memory of a Python program with a known truth for bench/held."""

import ctypes
import json
import sys
import time

mode = sys.argv[1]
libc = ctypes.CDLL(None)
libc.strdup.argtypes, libc.strdup.restype = [ctypes.c_char_p], ctypes.c_void_p
base = {i: json.dumps({"a": i, "t": "x" * (i % 900)}) for i in range(30000)}
keep = []
print("ready", flush=True)
while True:
    for i in range(40):
        if mode == "extension":  # an extension in C forgets free
            libc.strdup(b"forgotten by an extension %d " % i * 20)
        elif mode == "incref":  # an extension in C forgets Py_DECREF
            block = bytes(1000 + i)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
        elif mode == "kept":  # an extension keeps its blocks as numbers
            keep.append(libc.strdup(b"kept by an extension %d " % i * 20))
        elif mode == "list":
            keep.append("y" * (1000 + i))
        else:
            keep = [str(k) * 200 for k in range(50)]
    time.sleep(0.02)
