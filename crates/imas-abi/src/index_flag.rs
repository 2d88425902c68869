// SPDX-License-Identifier: Apache-2.0
//! Bits of [`crate::IndexHeader::flags`] (`enum imas_index_flag`).

/// Everybody stands aside.
pub const DISABLED: u32 = 1;
