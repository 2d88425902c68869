// SPDX-License-Identifier: Apache-2.0
//! How imasd's child behaves, which replays when the machine is idle. imasd starts it with the lowest priorities
//! for CPU and disk, and stops it when there is other work.

use anyhow::{Context as _, Result};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};

/// The highest value: where memory runs out, this process and its replays are ended before anything else.
const FIRST_TO_GO: &str = "1000";

/// Says so to the kernel. Where it cannot be said, nothing else depends on it.
pub(super) fn be_the_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
}

/// The raw files are read: the replays, and what they leave behind, need no right of imasd.
pub(super) fn need_nothing_of_others() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(()); // a tree of root's own: an exec would give all of it back
    }
    clear_ambient_capability_set().context("the rights of imasd")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).context("the rights of imasd")
}
