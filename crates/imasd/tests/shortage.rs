// SPDX-License-Identifier: Apache-2.0
//! Where memory is short, imasd asks running processes to give free pages back.

use std::process::Child;

use crate::support::{World, lib_dir, piped, python};

/// Two threads that sleep, and 60 MB of which all but every hundredth block is free. Prints a letter, and ends when its
/// standard input is closed.
const HOLDER: &str = r"
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
[threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start() for _ in range(2)]
blocks = [libc.malloc(1000) for _ in range(60000)]
for block in blocks: libc.memset(block, 1, 1000)
for at, block in enumerate(blocks):
    if at % 100: libc.free(block)
print('x', flush=True); sys.stdin.read()
";

/// A process under a candidate that gives back, or under the guard alone.
fn holder(world: &World, gives_back: bool) -> Child {
    let own = gives_back.then(|| lib_dir().join("libimas-giveback.so"));
    let libraries = own.into_iter().chain([lib_dir().join("libimas-guard.so")]);
    let preload: Vec<String> = libraries.map(|library| library.to_string_lossy().into_owned()).collect();
    let mut command = world.command(&python());
    command.args(["-c", HOLDER]).env("LD_PRELOAD", preload.join(":")).env("IMAS_UNSET", "LD_PRELOAD");
    piped::start(&mut command)
}

#[test]
fn who_can_answer_is_asked_and_nobody_else() {
    let mut world = World::with("short_at = 0.0\n");
    let (can, cannot) = (holder(&world, true), holder(&world, false));
    world.start();
    world.wait("the answer is there", || world.counter("trims_answered") >= 1);
    let (asked, mib) = (world.counter("trims_asked"), world.counter("trimmed_mib"));
    let log = world.log();
    world.stop("-TERM");
    assert_eq!(asked, 1, "the other one cannot answer");
    assert!(mib >= 40, "{mib} MiB\n{log}");
    let line = format!("memory is short: process {} (", can.id());
    assert!(log.contains(&line) && log.contains("MiB back, in "), "{log}");
    piped::end(can);
    piped::end(cannot);
}
