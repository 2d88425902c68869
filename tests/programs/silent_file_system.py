# SPDX-License-Identifier: Apache-2.0
"""DEVICE FOLDER EXECUTABLE FLAG: mounts a FUSE file system for everybody at FOLDER, in which the file "program" is a
copy of the executable, as are libraries and pages ("*.so", "*.page"), and each "*.py" a script that sleeps. As soon as the
file FLAG exists, it answers nothing any more. Prints "mounted"."""
import ctypes, os, select, struct, sys, time

device, folder, executable, flag = sys.argv[1:5]
libc = ctypes.CDLL(None, use_errno=True)
INIT, LOOKUP, GETATTR, OPEN, READ, STATFS, FORGET, BATCH_FORGET = 26, 1, 3, 14, 15, 17, 2, 42
ROOT, PROGRAM, SCRIPT = 1, 2, 3
contents = {PROGRAM: open(executable, "rb").read(), SCRIPT: b"import time\ntime.sleep(1000)\n"}


def attributes(inode):
    size, mode = (4096, 0o40755) if inode == ROOT else (len(contents.get(inode, b"")), 0o100755)
    return struct.pack("=6Q10I", inode, size, size // 512 + 1, 0, 0, 0, 0, 0, 0, mode, 1, 2001, 2001, 0, 4096, 0)


def inode_of(name):
    """The inode of a file of that name; None where there is none."""
    if name.endswith(b".py"):
        return SCRIPT
    return PROGRAM if name == b"program" or name.endswith((b".so", b".page")) else None


def answer(operation, node, request):
    """The answer's bytes; None where there is no such file."""
    inode = inode_of(request[40:].rstrip(b"\0")) if operation == LOOKUP else None
    if operation == LOOKUP and inode is None:
        return None
    if operation == READ:
        _, offset, size = struct.unpack("=QQI", request[40:60])
        return contents[node][offset:offset + size]
    return {
        INIT: struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 1 << 20, 1, 256, 0, 0, *[0] * 7),
        LOOKUP: struct.pack("=QQQQII", inode or 0, 0, 0, 0, 0, 0) + attributes(inode or ROOT),
        GETATTR: struct.pack("=QII", 0, 0, 0) + attributes(node),
        OPEN: struct.pack("=QII", 1, 0, 0),
        STATFS: bytes(80),
    }.get(operation)


connection = os.open(device, os.O_RDWR)
options = f"fd={connection},rootmode=40000,user_id=2001,group_id=2001,allow_other"
if libc.mount(b"silent", folder.encode(), b"fuse", 6, options.encode()) != 0:  # MS_NOSUID, MS_NODEV
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
print("mounted", flush=True)
while True:
    select.select([connection], [], [])
    if os.path.exists(flag):
        time.sleep(1000)  # what waits for a request that was read cannot be ended
    request = os.read(connection, (1 << 20) + 4096)
    _, operation, unique, node = struct.unpack("=IIQQ", request[:24])
    if operation in (FORGET, BATCH_FORGET):
        continue
    body = answer(operation, node, request)
    error = 0 if body is not None else -2 if operation == LOOKUP else -38  # ENOENT, ENOSYS
    os.write(connection, struct.pack("=IiQ", 16 + len(body or b""), error, unique) + (body or b""))
