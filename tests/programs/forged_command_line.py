# SPDX-License-Identifier: Apache-2.0
"""FILL BYTES: puts the process's command line and environment over that many bytes of memory, each but the last a FILL, prints
"forged" and lives on. It takes no privilege (prctl(2), PR_SET_MM_MAP)."""
import ctypes, mmap, struct, sys, time

fill, size = sys.argv[1].encode(), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
NORESERVE = 0x4000
at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, -1, 0)
if fill != b"\0" and fill:
    ctypes.memset(at, fill[0], size - 1)  # of one that does not end with NUL the kernel shows a page
fields = [int(field) for field in open("/proc/self/stat").read().rsplit(")", 1)[1].split()[1:]]
field = lambda number: fields[number - 4]  # as proc_pid_stat(5) counts them
end = at + size
words = [field(26), field(27), field(45), field(46), field(47), libc.sbrk(0), field(28), at, end, at, end, 0]
forged = ctypes.create_string_buffer(struct.pack("=12QIi", *words, 0, -1), 104)
if libc.prctl(35, 14, forged, 104, 0) != 0:
    sys.exit(f"prctl: {ctypes.get_errno()}")
print("forged", flush=True)
time.sleep(1000)
