// SPDX-License-Identifier: Apache-2.0
//! The facts in the header of an index, without sizes.

/// The facts in the header, without sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Grows with each publication.
    pub generation: u64,
    /// The catalogue table that the ids belong to.
    pub catalogue_id: u64,
    /// `CLOCK_BOOTTIME` now, in nanoseconds: see [`boot_time_ns`].
    pub made_boot_ns: u64,
    /// Id of this boot: see [`crate::process::boot_id`].
    pub boot_id: String,
    /// The stub is to do nothing in any process.
    pub disabled: bool,
}

/// Nanoseconds since boot, sleep included.
#[must_use]
pub fn boot_time_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| u64::try_from(std::time::Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
}
