// SPDX-License-Identifier: Apache-2.0
//! The index of decisions, field by field as in `abi/imas_index.h`, where each is explained.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{BOOT_ID_BYTES, CANDIDATE_BYTES};

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
    /// Detail that distinguishes programs of one executable; its kind is `detail_kind`.
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

// The catalogue table, field by field as in `abi/imas_index.h`, where each is explained.

/// First eight bytes: A9 'M' 'A' 'S' 'C' 'A' 'T' '1'.
pub const CATALOGUE_MAGIC: u64 = 0x3154_4143_5341_4DA9;
/// Version of the layout.
pub const CATALOGUE_VERSION: u32 = 2;
/// Size of [`CatalogueHeader`] and of [`CatalogueEntry`].
pub const CATALOGUE_ENTRY_BYTES: usize = 1536;
/// Most candidates a table holds.
pub const CATALOGUE_MAX: u32 = 512;
/// Room for a library's path, closing NUL included.
pub const CATALOGUE_LIBRARY_BYTES: usize = 256;
/// Room for the environment of a candidate, closing NULs included.
pub const CATALOGUE_ENVIRONMENT_BYTES: usize = 632;
/// Room for what a candidate yields to, closing NULs included.
pub const CATALOGUE_YIELDS_BYTES: usize = 512;
/// The id of `system` in every table.
pub const CANDIDATE_SYSTEM: u16 = 1;

/// Flag of a candidate that is started with libimas-settings.so.
pub const CANDIDATE_HAS_SETTINGS: u32 = 1;

/// A file as it was when it was approved (`struct imas_file_identity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FileIdentity {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Size.
    pub bytes: u64,
    /// Modification time, ns.
    pub mtime_ns: i64,
}

/// Start of the table (`struct imas_catalogue_header`).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CatalogueHeader {
    /// [`CATALOGUE_MAGIC`].
    pub magic: u64,
    /// [`CATALOGUE_VERSION`].
    pub version: u32,
    /// FNV-1a 32 of these bytes with this field zero.
    pub check: u32,
    /// Size of the file: `(1 + count) * CATALOGUE_ENTRY_BYTES`.
    pub file_bytes: u64,
    /// Hash of the content.
    pub catalogue_id: u64,
    /// Candidates; the one with id n is at `n * CATALOGUE_ENTRY_BYTES`.
    pub count: u32,
    /// Who may own `state/` and the index, besides the table's own owner.
    pub daemon_uid: u32,
    /// Absolute path of libimas-guard.so.
    pub guard: [u8; CATALOGUE_LIBRARY_BYTES],
    /// Absolute path of libimas.so.
    pub hook: [u8; CATALOGUE_LIBRARY_BYTES],
    /// The guard as approved.
    pub guard_identity: FileIdentity,
    /// The hook as approved.
    pub hook_identity: FileIdentity,
    /// Absolute path of libimas-settings.so; empty: no candidate is settings of a runtime.
    pub settings: [u8; CATALOGUE_LIBRARY_BYTES],
    /// The library of settings as approved.
    pub settings_identity: FileIdentity,
    /// Zero.
    pub reserved: [u8; 632],
}

/// One candidate (`struct imas_catalogue_entry`).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CatalogueEntry {
    /// Name of the candidate.
    pub name: [u8; CANDIDATE_BYTES],
    /// Absolute path of the library; empty: settings only.
    pub library: [u8; CATALOGUE_LIBRARY_BYTES],
    /// The library as approved; zeros without one.
    pub identity: FileIdentity,
    /// `NAME=VALUE`, each ended by NUL, ended by an empty one.
    pub environment: [u8; CATALOGUE_ENVIRONMENT_BYTES],
    /// Beginnings of arguments, and names of variables: where the user gives one, the candidate is not used.
    /// Listed as the environment is.
    pub yields_to: [u8; CATALOGUE_YIELDS_BYTES],
    /// Place in the table, from 1.
    pub id: u32,
    /// [`CANDIDATE_HAS_SETTINGS`] or none; an entry with any other bit is no candidate.
    pub flags: u32,
    /// Zero.
    pub reserved: [u32; 7],
    /// FNV-1a 32 of these bytes with this field zero.
    pub check: u32,
}

const _: () = assert!(size_of::<CatalogueHeader>() == CATALOGUE_ENTRY_BYTES, "size is part of the format");
const _: () = assert!(size_of::<CatalogueEntry>() == CATALOGUE_ENTRY_BYTES, "size is part of the format");
