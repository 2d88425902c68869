# SPDX-License-Identifier: Apache-2.0
"""Loads every extension module of the standard library, works with some."""
import bz2
import ctypes
import decimal
import hashlib
import importlib
import lzma
import pathlib
import sqlite3
import ssl
import sysconfig
import xml.etree.ElementTree
import zlib

folder = pathlib.Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
names = sorted({file.name.split(".")[0] for file in folder.glob("*.so")} - {"_tkinter"})
print(len([importlib.import_module(name) for name in names]))
text = b"text " * 50000
print(len(bz2.decompress(bz2.compress(text))), len(lzma.decompress(lzma.compress(text))), len(zlib.decompress(zlib.compress(text))))
print(hashlib.sha3_256(text).hexdigest(), decimal.Decimal(2).sqrt(), len(xml.etree.ElementTree.fromstring(f"<a>{'<b/>' * 5000}</a>")))
print(sqlite3.connect(":memory:").execute("select sum(1)").fetchone(), ssl.create_default_context().verify_mode.name)
block = ctypes.create_string_buffer(100000)
print(len(block.raw))
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
for _ in range(1000):
    libc.free(libc.strdup(b"copied"))
