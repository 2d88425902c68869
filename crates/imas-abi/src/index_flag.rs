// SPDX-License-Identifier: Apache-2.0
//! Bits of [`crate::IndexHeader::flags`] (`enum imas_index_flag`).

/// The stub does nothing in any process.
pub const DISABLED: u32 = 1;
