// SPDX-License-Identifier: Apache-2.0
//! prctl(2) of transparent huge pages for this process, and for what it starts: neither nix nor rustix has its flags.

#![allow(unsafe_code, reason = "neither nix nor rustix has the flags of this call")]

use std::io;

/// Value of PR_GET_THP_DISABLE where all is as the machine is set.
pub const AS_THE_MACHINE: i32 = 0;
/// Value where the process gets no huge pages.
pub const NONE: i32 = 1;
/// Value where it gets them only where it asks for them by madvise (Linux 6.18).
pub const ADVISED: i32 = 3;

/// Flag of PR_SET_THP_DISABLE beside its first bit.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// What this process has now.
#[must_use]
pub fn now() -> i32 {
    let none: libc::c_ulong = 0;
    // SAFETY: PR_GET_THP_DISABLE takes no pointer and writes no memory.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) }
}

/// Sets it for this process and for all that it starts from now on.
///
/// # Errors
/// When this kernel does not have it.
pub fn set(value: i32) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    let is_disabled = libc::c_ulong::from(value != AS_THE_MACHINE);
    let flags = if value == ADVISED { EXCEPT_ADVISED } else { none };
    // SAFETY: PR_SET_THP_DISABLE takes no pointer and changes no memory that is there.
    let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_disabled, flags, none, none) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
