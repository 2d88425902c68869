// SPDX-License-Identifier: Apache-2.0
//! The word by which a running process is asked to give pages back, field by field as in `abi/imas_trim.h`, where each
//! is explained.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First word.
pub const TRIM_MAGIC: u64 = 0x4D49_5254_5341_A9C5;
/// Second word.
pub const TRIM_MAGIC_2: u64 = 0xF2B1_9C6A_03D8_7E54;
/// Version of the layout.
pub const TRIM_VERSION: u32 = 1;
/// Pages that the process could not count.
pub const TRIM_UNKNOWN: u64 = u64::MAX;

/// Values of [`TrimWord::answers`].
pub mod trim_answers {
    /// Nobody, not any more.
    pub const NOBODY: u32 = 0;
    /// The thread for that, or a process of one thread when it is about to wait.
    pub const PROCESS: u32 = 1;
    /// The thread alone.
    pub const THREAD: u32 = 2;
}

/// The word (`struct imas_trim_word`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TrimWord {
    /// [`TRIM_MAGIC`].
    pub magic: u64,
    /// [`TRIM_MAGIC_2`].
    pub magic_2: u64,
    /// [`TRIM_VERSION`].
    pub version: u32,
    /// [`trim_answers`].
    pub answers: u32,
    /// Number of the last request.
    pub asked: u64,
    /// Number of the last request that was answered.
    pub answered: u64,
    /// Pages that the answered one returned, or [`TRIM_UNKNOWN`].
    pub returned_pages: u64,
    /// Time that it took, ns.
    pub took_ns: u64,
    /// Zero.
    pub reserved: u64,
}
