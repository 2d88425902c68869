// SPDX-License-Identifier: Apache-2.0
//! The index of decisions, field by field as in `abi/imas_index.h`, where each is explained.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::BOOT_ID_BYTES;

/// Where the system-wide index and catalogue stand.
pub const RUN_FOLDER: &str = "/run/imas";
/// The uid of an entry that is everybody's.
pub const ANY_UID: u32 = u32::MAX;

/// Start of FNV-1a, 32 bits: check sums.
pub const FNV32_START: u32 = 0x811c_9dc5;
/// Prime of FNV-1a, 32 bits.
pub const FNV32_PRIME: u32 = 0x0100_0193;
/// Start of FNV-1a, 64 bits: keys and texts.
pub const FNV64_START: u64 = 0xcbf2_9ce4_8422_2325;
/// Prime of FNV-1a, 64 bits.
pub const FNV64_PRIME: u64 = 0x0000_0100_0000_01b3;

/// First eight bytes: A9 'I' 'A' 'S' 'I' 'D' 'X' '1'.
pub const INDEX_MAGIC: u64 = 0x3158_4449_5341_49A9;
/// Version of the layout.
pub const INDEX_VERSION: u32 = 1;
/// Size of [`IndexHeader`].
pub const INDEX_HEADER_BYTES: usize = 128;
/// Size of [`IndexEntry`].
pub const INDEX_ENTRY_BYTES: usize = 128;
/// An entry is in its home slot or one of the next `INDEX_PROBES - 1`.
pub const INDEX_PROBES: usize = 16;
/// Trials that an entry has room for besides its first one.
pub const MORE_TRIALS: usize = 11;
/// Bytes of an entry, from its start, that are the key.
pub const KEY_BYTES: usize = 40;

/// Start of the index (`struct imas_index_header`).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IndexHeader {
    /// [`INDEX_MAGIC`].
    pub magic: u64,
    /// [`INDEX_VERSION`].
    pub version: u32,
    /// FNV-1a 32 of these bytes with this field zero.
    pub check: u32,
    /// Size of the file: header and `slots + INDEX_PROBES - 1` entries.
    pub file_bytes: u64,
    /// Grows with each publication.
    pub generation: u64,
    /// The catalogue table that the ids belong to.
    pub catalogue_id: u64,
    /// `CLOCK_BOOTTIME` of the publication, ns.
    pub made_boot_ns: u64,
    /// Home slots; a power of two.
    pub slots: u64,
    /// Slots taken.
    pub entries: u64,
    /// [`crate::index_flag`].
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// This boot, ended by NUL.
    pub boot_id: [u8; BOOT_ID_BYTES],
    /// Zero.
    pub reserved2: [u64; 2],
}

/// A trial beside an entry's first one (`struct imas_more_trial`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MoreTrial {
    /// Id in the catalogue table; 0: none.
    pub candidate: u16,
    /// Number that gives the token of this trial when added to the token of the entry's first trial.
    pub after: u16,
}

/// One decision (`struct imas_index_entry`); all zero is a free slot.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IndexEntry {
    /// Device of the executable.
    pub exe_dev: u64,
    /// Inode of the executable.
    pub exe_ino: u64,
    /// What distinguishes programs of one executable, by `detail_kind`.
    pub detail: [u64; 2],
    /// [`crate::detail_kind`].
    pub detail_kind: u32,
    /// Uid of the user whose decision this is, or [`ANY_UID`].
    pub uid: u32,
    /// Modification time of the executable that was learned about, ns.
    pub exe_mtime_ns: i64,
    /// Size of that executable in bytes.
    pub exe_bytes: u64,
    /// Id in the catalogue table for a production start; never 0.
    pub candidate: u16,
    /// Id of the candidate to be tried; 0: no trial is due.
    pub trial_candidate: u16,
    /// [`crate::entry_flag`].
    pub flags: u32,
    /// Token that names the trial page.
    pub trial_token: u64,
    /// The daemon's number of the program.
    pub program_id: u64,
    /// Trials that may run at the same time as the first, in other processes; the first without a candidate
    /// ends them.
    pub more_trials: [MoreTrial; MORE_TRIALS],
    /// FNV-1a 32 of these bytes with this field zero.
    pub check: u32,
}

const _: () = assert!(size_of::<IndexHeader>() == INDEX_HEADER_BYTES, "size is part of the format");
const _: () = assert!(size_of::<IndexEntry>() == INDEX_ENTRY_BYTES, "size is part of the format");
