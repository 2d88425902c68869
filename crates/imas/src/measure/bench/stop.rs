// SPDX-License-Identifier: Apache-2.0
//! When `imas bench` makes no further round.

use std::time::{Duration, Instant};

use imas_core::bench::{LookOutcome, Looks};
use imas_report::bench::RoundsEnd;

/// Decides between two runs.
pub(super) struct StopRule {
    /// After which rounds the runs are looked at; None: their number is fixed.
    pub(super) looks: Option<Looks>,
    max_time: Option<Duration>,
    began: Instant,
    /// Why no further round is made, once that is decided.
    pub(super) ended: Option<RoundsEnd>,
}

impl StopRule {
    /// `began` is what `max_time_s` counts from.
    pub(super) fn new(looks: Option<Looks>, max_time_s: Option<f64>, began: Instant) -> Self {
        let max_time = max_time_s.map(Duration::from_secs_f64);
        Self { looks, max_time, began, ended: None }
    }

    /// Whether the runs are tested after this number of rounds.
    pub(super) fn is_look(&self, rounds: u32) -> bool {
        self.looks.is_some_and(|looks| rounds >= looks.first)
    }

    pub(super) fn looked(&mut self, outcome: LookOutcome) {
        self.ended = match outcome {
            LookOutcome::Open => None,
            LookOutcome::Settled => Some(RoundsEnd::Settled),
            LookOutcome::Hopeless => Some(RoundsEnd::Hopeless),
        };
    }

    /// Every candidate has a run: the time counts.
    pub(super) fn check_time(&mut self) {
        let is_up = self.max_time.is_some_and(|max_time| self.began.elapsed() >= max_time);
        self.ended = self.ended.or_else(|| is_up.then_some(RoundsEnd::MaxTime));
    }
}
