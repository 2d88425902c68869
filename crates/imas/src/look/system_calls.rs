// SPDX-License-Identifier: Apache-2.0
//! System calls without which something is lost: the kernel may be too old for one, or the filter of a
//! container refuse it. Of others nothing is lost: the C library and the allocators have another way.

use nix::sys::memfd::{MFdFlags, memfd_create};
use procfs::process::Process;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Consequence of a filter, whatever it refuses (docs/decisions/0039).
const FILTERED: &str = "under a filter (seccomp) candidates that give pages back do so once in ten seconds \
                        at most, and in a program of one thread not at all";

/// Losses here, a clause for people each.
pub(crate) fn losses() -> Vec<String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).is_ok();
    let process = pidfd_open(getpid(), PidfdFlags::empty()).is_ok();
    let memory = memfd_create("imas-doctor", MFdFlags::MFD_CLOEXEC).is_ok();
    let calls = [
        ("openat2", file, "the heap of a JVM is not read"),
        ("pidfd_open", process, "imasd sees the end of a process up to 5 s later"),
        ("memfd_create", memory, "'imas system verify' and 'enable' end with an error"),
    ];
    let missing = calls.into_iter().filter(|(_, works, _)| !works);
    let losses = missing.map(|(name, _, lost)| format!("without {name} {lost}"));
    losses.chain(is_filtered().then(|| FILTERED.to_owned())).collect()
}

/// Whether this process, and with it what it starts, is under a filter of system calls.
fn is_filtered() -> bool {
    let status = Process::myself().and_then(|process| process.status());
    status.is_ok_and(|status| status.seccomp.is_some_and(|mode| mode != 0))
}
