// SPDX-License-Identifier: Apache-2.0
//! Error of a mean of paired differences.

use super::Board;
pub use crate::compare::Spread;
use crate::stats::Moments;

/// Prior standard deviation of one paired difference of ln CPU. It lies between that of docs/measuring.md and
/// what remains with normalised CPU time. A higher value eliminates good candidates of quiet programs after
/// one round, a lower one costs trials of noisy programs (docs/decisions/0013).
const PRIOR_CPU: f64 = 0.05;
/// Prior standard deviation of one paired difference of ln memory.
const PRIOR_MEMORY: f64 = 0.03;
/// Degrees of freedom of that prior; fewer as the program proves noisier.
///
/// The prior is used to eliminate candidates, never to prove a difference. This constant and those below were
/// set on synthetic programs (`imas-lab simulate`).
const PRIOR_FREEDOM: f64 = 2.0;
/// Share of the prior's variance that a proof always assumes, however alike the first trials are.
const LEAST: f64 = 1.0 / 16.0;

/// The program's noise at one weight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noise {
    w: f64,
    /// Spread of the program's own trials.
    seen: Spread,
    /// Spread of the trials, those of other hosts and the prior together.
    expected: Spread,
    /// Least variance that a proof assumes.
    least: f64,
}

impl Noise {
    /// Noise from the residuals of all trials. The prior loses weight as the program proves noisier.
    pub fn of(board: &Board, w: f64) -> Self {
        let prior = (w * PRIOR_CPU).powi(2) + ((1.0 - w) * PRIOR_MEMORY).powi(2);
        // A difference of two runs has twice the variance of one.
        let (of_untouched, untouched) = of_untouched(board, w);
        let squares = 2.0 * (board.residue.sums.squares(w, 1.0 - w) + of_untouched);
        let freedom = board.residue.freedom + untouched;
        let worth = PRIOR_FREEDOM * (prior * freedom / squares).min(1.0);
        let worth = if worth.is_finite() { worth } else { PRIOR_FREEDOM };
        let (others, of_others) = board.fleet.as_ref().map_or((0.0, 0.0), |fleet| fleet.squares(w));
        Self {
            w,
            seen: Spread::common(squares, freedom),
            expected: Spread::common(worth * prior + squares + 2.0 * others, worth + freedom + of_others),
            least: LEAST * prior,
        }
    }

    /// A candidate's own spread, moderated towards the expected one. For decisions where an error costs only
    /// trials or a missed gain.
    pub fn expected(&self, pairs: &Moments) -> Spread {
        let Spread { sigma, freedom } = self.moderated(self.expected, pairs);
        Spread { sigma, freedom: self.expected.freedom.max(freedom) }
    }

    /// A candidate's own spread from the program's own trials alone, for proofs. With the prior, a noisy
    /// program whose first rounds happen to look quiet would be changed without reason; the noisier it is,
    /// the more often.
    pub fn shown(&self, pairs: &Moments) -> Spread {
        let Spread { sigma, .. } = self.moderated(self.seen, pairs);
        Spread { sigma: sigma.max(self.least.sqrt()), freedom: self.seen.freedom }
    }

    fn moderated(&self, common: Spread, pairs: &Moments) -> Spread {
        common.moderated(pairs.squares(self.w, 1.0 - self.w), pairs.count)
    }
}

/// Squares and degrees of freedom of replicas that were left untouched: they say how memory alone varies.
fn of_untouched(board: &Board, w: f64) -> (f64, f64) {
    let known = board.untouched.filter(|_| w == 0.0);
    known.map_or((0.0, 0.0), |known| (known.squares, known.freedom))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::board::JudgedTrial;
    use crate::stats::t_quantile;

    #[test]
    fn nothing_known_means_the_prior() {
        let noise = Noise::of(&Board::new(&[], 3, 0), 1.0);
        let spread = noise.expected(&Moments::default());
        assert!((spread.sigma - PRIOR_CPU).abs() < 1e-12);
        assert_eq!(spread.bound(0.05, 0), f64::INFINITY);
        assert!((spread.bound(0.05, 1) - PRIOR_CPU * t_quantile(0.05, PRIOR_FREEDOM)).abs() < 1e-12);
    }

    #[test]
    fn an_unsteady_candidate_is_trusted_less() {
        let point = |cpu| Some(crate::adaptive::Point { cpu, memory: 0.0 });
        let mut trials = vec![];
        for round in 0..5 {
            let swing = if round % 2 == 0 { 0.5 } else { -0.5 };
            for (candidate, cpu) in [(0, 0.0), (1, 0.01 * swing), (2, swing)] {
                trials.push(JudgedTrial { candidate, point: point(cpu) });
            }
        }
        let board = Board::new(&trials, 3, 0);
        let noise = Noise::of(&board, 1.0);
        let ratio = noise.expected(&board.pairs[2]).sigma / noise.expected(&board.pairs[1]).sigma;
        assert!(ratio > 1.25, "{ratio}");
    }
}
