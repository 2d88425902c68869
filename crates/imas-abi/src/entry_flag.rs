// SPDX-License-Identifier: Apache-2.0
//! Bits of [`crate::IndexEntry::flags`] (`enum imas_entry_flag`).

/// On the entry without detail: distinguished by what the interpreter is given to run.
pub const INTERPRETER: u32 = 1;
/// On the entry without detail: distinguished by jar or main class.
pub const JAVA: u32 = 2;
/// On the entry without detail: distinguished by systemd unit.
pub const BY_UNIT: u32 = 4;
/// Production starts write a flight page, so that a crash is seen.
pub const FLIGHT: u32 = 8;
/// May be placed even as process 1.
pub const PID1: u32 = 16;
/// On the entry without detail: programs of this executable are distinguished by the name by which it is started.
pub const BY_NAME: u32 = 32;
