// SPDX-License-Identifier: Apache-2.0
//! The trials of one host where a fleet shares them out (docs/decisions/0032-a-fleet-learns-together.md).
//!
//! In its turn a host tries one candidate once, and then `system`, with which it is compared. `system` may
//! follow at any time: it is safe, so a program that starts once a day yields pairs as well.

/// The trials of this host in its turn.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostTurn {
    /// The candidate whose trial is this host's now.
    pub candidate: Option<usize>,
    /// Time when this turn began, seconds since the epoch: one trial a turn.
    pub begin_s: f64,
    /// Time until which nothing of this changes, seconds since the epoch.
    pub until_s: f64,
    /// Whether each candidate is known to no other host, so that this host tries it as if it were alone.
    pub is_own: Vec<bool>,
    /// Whether this host checks each candidate in the present period, if it is the pick by the fleet's
    /// figures alone.
    pub checks: Vec<bool>,
    /// Time when the present period of checks began, seconds since the epoch.
    pub checks_begin_s: f64,
}

impl HostTurn {
    /// Whether no other host knows the candidate.
    pub(super) fn is_own(&self, i: usize) -> bool {
        self.is_own.get(i).is_some_and(|own| *own)
    }

    /// Whether a candidate whose older trial (its own or that of `system`) is of that time is to be checked.
    pub(super) fn is_check_due(&self, i: usize, older_s: Option<f64>) -> bool {
        let is_this_hosts = self.checks.get(i).is_some_and(|checks| *checks);
        is_this_hosts && older_s.is_none_or(|older_s| older_s < self.checks_begin_s)
    }
}
