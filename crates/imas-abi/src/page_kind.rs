// SPDX-License-Identifier: Apache-2.0
//! What a page is for (`enum imas_page_kind`).

/// Page of a trial: libimas.so counts into it.
pub const TRIAL: u32 = 1;
/// Page of a flight: libimas-guard.so notes entry, fatal signal and clean exit only.
pub const FLIGHT: u32 = 2;
