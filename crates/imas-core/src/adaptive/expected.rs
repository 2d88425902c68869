// SPDX-License-Identifier: Apache-2.0
//! What each pick is expected to gain.

use serde::{Deserialize, Serialize};

use super::Known;
use crate::paper::Pick;
use crate::stats::saved;

/// A pick and its gain over `system`. Fractions of what `system` costs: 0.1 is 10 % less; below 0 is more.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Which pick. Its figure is CPU time for the fastest, memory for the leanest, the root of their product for the balanced.
    pub pick: Pick,
    /// Index of the candidate; that of `system` where nothing is proven better.
    pub candidate: usize,
    /// The gain; 0 for `system`.
    pub gain: f64,
    /// Its 95 % interval: as for a candidate that was not chosen for its figures, which this one was. None for `system`.
    pub interval: Option<(f64, f64)>,
    /// Rounds behind it.
    pub rounds: u32,
}

/// The three picks. Empty while nothing is known.
pub fn expected(known: &Known) -> Vec<Expected> {
    if known.roles.is_empty() || known.board.trials() == 0 {
        return vec![];
    }
    [(Pick::Fastest, 1.0), (Pick::Leanest, 0.0), (Pick::Balanced, 0.5)]
        .map(|(pick, w)| of(known, pick, w))
        .into()
}

fn of(known: &Known, pick: Pick, w: f64) -> Expected {
    let judgement = known.judge(w);
    let standing = &judgement.standings[judgement.pick];
    let is_system = judgement.pick == known.board.system;
    let interval = (saved(standing.gain - standing.within), saved(standing.gain + standing.within));
    Expected {
        pick,
        candidate: judgement.pick,
        gain: saved(standing.gain),
        interval: (!is_system).then_some(interval),
        rounds: standing.rounds,
    }
}
