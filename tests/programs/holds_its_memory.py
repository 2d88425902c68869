# SPDX-License-Identifier: Apache-2.0
"""DEVICE FOLDER: a process that holds the lock of its own memory for ever. It maps a FUSE file of its own, writes to the
mapping, and puts another one over it: the kernel then writes the page back, under the lock, to a server that never
answers. Prints "held". To end it, end the server first: it is a process of the same group."""
import ctypes, os, struct, sys, threading, time

device, folder = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
PAGE = 4096
INIT, LOOKUP, GETATTR, OPEN, READ, WRITE, FORGET, BATCH_FORGET = 26, 1, 3, 14, 15, 16, 2, 42


def check(what, result):
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


def attributes(inode):
    mode = 0o40755 if inode == 1 else 0o100666
    return struct.pack("=6Q10I", inode, PAGE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def serve(connection):
    """Answers everything but writes."""
    while True:
        request = os.read(connection, (1 << 20) + PAGE)
        _, operation, unique, node = struct.unpack("=IIQQ", request[:24])
        if operation == WRITE:
            print("held", flush=True)
        if operation in (WRITE, FORGET, BATCH_FORGET):
            continue
        body = {
            INIT: struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 1 << 20, 1, 256, 0, 0, *[0] * 7),
            LOOKUP: struct.pack("=QQQQII", 2, 0, 1, 1, 0, 0) + attributes(2),
            GETATTR: struct.pack("=QII", 1, 0, 0) + attributes(node),
            OPEN: struct.pack("=QII", 1, 0, 0),
            READ: bytes(PAGE),
        }.get(operation)
        error = 0 if body else -38  # ENOSYS
        body = body or b""
        os.write(connection, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


uid, gid = os.getuid(), os.getgid()
check("unshare", libc.unshare(0x10020000))  # a user namespace and a mount namespace
for name, text in [("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")]:
    open(f"/proc/self/{name}", "w").write(text)
connection = os.open(device, os.O_RDWR)
options = f"fd={connection},rootmode=40000,user_id=0,group_id=0"
check("mount", libc.mount(b"held", folder.encode(), b"fuse", 0, options.encode()))
if os.fork() == 0:
    serve(connection)
os.close(connection)  # only the server has it, so the lock is free when that ends
file = os.open(f"{folder}/file", os.O_RDWR)
mapping = libc.mmap(None, PAGE, 3, 1, file, 0)
ctypes.memset(mapping, 65, PAGE)
threading.Thread(target=libc.mmap, args=(mapping, PAGE, 3, 0x32, -1, 0)).start()
time.sleep(1000)
