// SPDX-License-Identifier: Apache-2.0
//! The candidate to advise where glibc's heaps hold pages that a trim would return.

use imas_linux::serving::candidate::RealCandidates;

/// In the order in which they are advised: those that give pages back while the program lives, then the setting that
/// returns what is free at the end of a heap at once.
const CANDIDATES: [&str; 3] = ["glibc:lean-trim", "glibc:trim", "glibc:lean"];
/// Fewer bytes do not justify a restart.
pub const LEAST_BYTES: u64 = 8 << 20;

/// The advised candidate; None where the catalogue has none.
#[must_use]
pub fn candidate(among: &RealCandidates) -> Option<&'static str> {
    CANDIDATES.into_iter().find(|name| among.has(name))
}
