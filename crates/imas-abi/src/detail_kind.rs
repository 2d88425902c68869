// SPDX-License-Identifier: Apache-2.0
//! What distinguishes programs of one executable (`enum imas_detail_kind`).

/// Nothing distinguishes the programs of this executable.
pub const NONE: u32 = 0;
/// Script or jar: device and inode of the file named on the command line.
pub const FILE: u32 = 1;
/// Module or main class: FNV-1a 64 of the text, and its length.
pub const TEXT: u32 = 2;
/// systemd unit: FNV-1a 64 of the unit's name, and its length.
pub const UNIT: u32 = 3;
/// The base name of the path that is executed, by the hash of the name and its length.
pub const NAME: u32 = 4;
