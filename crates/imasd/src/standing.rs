// SPDX-License-Identifier: Apache-2.0
//! What is seen of placed processes while they live: one that is killed leaves nothing of that behind, and a hang shows in nothing else
//! ([`imas_core::hang`]).

use imas_core::SYSTEM;
use imas_core::hang::{LEAST_S, Sighting};
use imas_linux::standstill::{age_s, look};

use crate::daemon::Daemon;
use crate::watched::Watch;

/// Processes younger than this share of the least time of a hang are not looked at.
const YOUNG: f64 = 0.3;
/// The next look at a process comes when it has lived so many times as long as at the last one: an old service is hardly ever looked at.
const LATER: f64 = 1.2;
/// Looks of one turn at most: each takes some 0.1 ms.
const MOST: usize = 64;

impl Daemon {
    /// Looks at those that are due.
    pub(crate) fn look_at_the_standing(&mut self) {
        let due = self.watched.watches.values_mut().filter(|watch| is_due(watch));
        for watch in due.take(MOST) {
            let seen = look(watch.witness.pid, watch.witness.start_ticks);
            if let Some(now) = seen {
                watch.sighting = Some(Sighting::then(watch.sighting, now));
                self.counters.looks += 1;
            }
        }
    }
}

fn is_due(watch: &Watch) -> bool {
    if watch.ended || watch.witness.candidate == SYSTEM {
        return false;
    }
    let next_s = watch.sighting.map_or(YOUNG * LEAST_S, |seen| LATER * seen.lived_s);
    age_s(watch.witness.start_ticks).is_some_and(|age_s| age_s >= next_s)
}
