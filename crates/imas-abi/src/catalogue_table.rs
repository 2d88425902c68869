// SPDX-License-Identifier: Apache-2.0
//! The catalogue table, field by field as in `abi/imas_index.h`, where each is explained.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::CANDIDATE_BYTES;

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

/// Flag of a candidate that is started with libimas-giveback.so.
pub const CANDIDATE_GIVES_BACK: u32 = 1;
/// Flag of a candidate that is started with libimas-settings.so.
pub const CANDIDATE_HAS_SETTINGS: u32 = 2;

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
    /// Candidates; that of id n is at `n * CATALOGUE_ENTRY_BYTES`.
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
    /// Absolute path of libimas-giveback.so; empty: no candidate gives back.
    pub give_back: [u8; CATALOGUE_LIBRARY_BYTES],
    /// That library as approved.
    pub give_back_identity: FileIdentity,
    /// Absolute path of libimas-settings.so; empty: no candidate is settings of a runtime.
    pub settings: [u8; CATALOGUE_LIBRARY_BYTES],
    /// That library as approved.
    pub settings_identity: FileIdentity,
    /// Zero.
    pub reserved: [u8; 344],
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
    /// [`CANDIDATE_GIVES_BACK`], [`CANDIDATE_HAS_SETTINGS`]; an entry with any other bit is no candidate.
    pub flags: u32,
    /// Zero.
    pub reserved: [u32; 7],
    /// FNV-1a 32 of these bytes with this field zero.
    pub check: u32,
}

const _: () = assert!(size_of::<CatalogueHeader>() == CATALOGUE_ENTRY_BYTES, "size is part of the format");
const _: () = assert!(size_of::<CatalogueEntry>() == CATALOGUE_ENTRY_BYTES, "size is part of the format");
