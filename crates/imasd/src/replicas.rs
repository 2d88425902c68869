// SPDX-License-Identifier: Apache-2.0
//! Whether several instances of a program live side by side: workers of a service that are started one by
//! one.
//!
//! Such a program may have several trials at the same time, each under another candidate. They are then
//! compared under the same load, and one restart of all instances gives an answer. Programs that end soon
//! have one trial at a time: their next start is soon.

use std::time::{Duration, Instant};

use imas_linux::standstill::age_s;

use crate::process_info::{Identity, is_running};

/// Instances that were started within this time are replicas of each other.
const TOGETHER: Duration = Duration::from_secs(3600);
/// So many are remembered.
const MOST: usize = 16;

/// Processes of one program.
#[derive(Debug, Default, Clone)]
pub(crate) struct Replicas {
    seen: Vec<(Identity, Instant)>,
    /// When two that had lived long enough were last seen side by side.
    side_by_side: Option<Instant>,
}

impl Replicas {
    /// A process of the program was seen.
    pub(crate) fn note(&mut self, identity: Identity) {
        if self.seen.iter().any(|(known, _)| *known == identity) {
            return;
        }
        self.seen.retain(|(known, _)| is_running(*known));
        if self.seen.len() == MOST {
            self.seen.remove(0);
        }
        self.seen.push((identity, Instant::now()));
    }

    /// Whether there are, or were within the last hour, two that had lived for `least_s` or longer.
    pub(crate) fn are_there(&mut self, least_s: f64) -> bool {
        let is_old = |identity: &Identity| age_s(identity.start_ticks).is_some_and(|age_s| age_s >= least_s);
        let old = self.seen.iter().filter(|(identity, _)| is_running(*identity) && is_old(identity));
        if old.count() >= 2 {
            self.side_by_side = Some(Instant::now());
        }
        self.side_by_side.is_some_and(|at| at.elapsed() < TOGETHER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::life;

    #[test]
    fn two_that_live_side_by_side_are_replicas_and_are_remembered() {
        let start = || std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut children = [start(), start()];
        let identities = children.each_ref().map(|child| life(child.id()).unwrap().identity);
        let mut replicas = Replicas::default();
        replicas.note(identities[0]);
        replicas.note(identities[0]);
        assert!(!replicas.are_there(0.0), "one");
        replicas.note(identities[1]);
        assert!(!replicas.are_there(1e6), "too young");
        assert!(replicas.are_there(0.0));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(replicas.are_there(1e6), "their restart is the occasion");
    }
}
