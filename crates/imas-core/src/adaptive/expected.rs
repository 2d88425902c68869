// SPDX-License-Identifier: Apache-2.0
//! What each pick is expected to gain.

use serde::{Deserialize, Serialize};

use super::AdaptiveState;
use crate::paper::Pick;
use crate::stats::saved;

/// A pick and its gain over `system`, as fractions of what `system` costs: 0.1 is 10 % less; a negative gain
/// is more.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct ExpectedGain {
    /// The pick that is meant. Its figure is CPU time for the fastest, memory for the leanest, and the root
    /// of their product for the balanced pick.
    pub pick: Pick,
    /// Index of the candidate; that of `system` where no candidate is proven better.
    pub candidate: usize,
    /// The gain; 0 for `system`.
    pub gain: f64,
    /// 95 % interval for one candidate, not corrected for having been selected. None for `system`.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds it is computed from.
    pub rounds: u32,
}

/// The three picks. Empty without any trial.
pub fn expected(known: &AdaptiveState) -> Vec<ExpectedGain> {
    if known.roles.is_empty() || known.board.trials() == 0 {
        return vec![];
    }
    [(Pick::Fastest, 1.0), (Pick::Leanest, 0.0), (Pick::Balanced, 0.5)]
        .map(|(pick, w)| of(known, pick, w))
        .into()
}

fn of(known: &AdaptiveState, pick: Pick, w: f64) -> ExpectedGain {
    let judgement = known.judge(w);
    let standing = &judgement.standings[judgement.pick];
    let is_system = judgement.pick == known.board.system;
    let interval = (saved(standing.gain - standing.within), saved(standing.gain + standing.within));
    ExpectedGain {
        pick,
        candidate: judgement.pick,
        gain: saved(standing.gain),
        interval: (!is_system).then_some(interval),
        rounds: standing.rounds,
    }
}
