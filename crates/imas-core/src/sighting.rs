// SPDX-License-Identifier: Apache-2.0
//! What was seen of a process from outside while it lived: whether it used CPU time, and whether it waited for a lock.

use serde::{Deserialize, Serialize};

/// What was seen of a process, with all its descendants, while it lived.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Sighting {
    /// Seconds from its start to the last look.
    pub lived_s: f64,
    /// CPU time it had used by then, seconds.
    pub cpu_s: f64,
    /// Seconds for which it had used none by then, as far as earlier looks show.
    pub still_s: f64,
    /// Every thread waited for a lock at that look.
    pub locked: bool,
}

impl Sighting {
    /// What is known after a further look at the same process.
    #[must_use]
    pub fn then(earlier: Option<Self>, now: Self) -> Self {
        let still_s = match earlier {
            Some(was) if was.locked && now.locked && now.cpu_s <= was.cpu_s => {
                was.still_s + (now.lived_s - was.lived_s).max(0.0)
            }
            _ => 0.0,
        };
        Self { still_s, ..now }
    }
}
