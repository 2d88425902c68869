// SPDX-License-Identifier: Apache-2.0
//! How far a mean of paired differences may be off.

use super::Board;
use crate::stats::{Moments, t_quantile};

/// Standard deviation of one paired difference of ln CPU before anything is known of the program: between that of docs/measuring.md and what CPU time at even pace
/// leaves of it. Too high a figure gives up good candidates of quiet programs after one round; too low a one costs trials of loud ones (docs/decisions/0013).
const PRIOR_CPU: f64 = 0.05;
/// The same of ln memory.
const PRIOR_MEMORY: f64 = 0.03;
/// How many degrees of freedom that prior is worth; fewer as the program shows itself louder.
///
/// It serves to drop candidates and to give up, never to prove. This and the constants below were set on made-up programs (`imas-lab simulate`).
const PRIOR_FREEDOM: f64 = 2.0;
/// How many degrees of freedom the program's common variance is worth against a candidate's own.
const COMMON_FREEDOM: f64 = 20.0;

/// Share of the prior's variance that a proof takes for granted, however alike the first trials are.
const LEAST: f64 = 1.0 / 16.0;

/// The program's noise at one weight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noise {
    w: f64,
    /// Of the program's own trials.
    seen: Common,
    /// Of those and the prior.
    expected: Common,
    /// Variance that a proof takes for granted.
    least: f64,
}

/// Variance of one difference, common to all candidates.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Common {
    variance: f64,
    freedom: f64,
}

/// What is known of a mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Standard deviation of one difference.
    pub sigma: f64,
    /// Degrees of freedom behind it.
    pub freedom: f64,
}

impl Noise {
    /// Of what the residue of all trials shows. The prior shrinks by as much as the program is louder.
    pub fn of(board: &Board, w: f64) -> Self {
        let prior = (w * PRIOR_CPU).powi(2) + ((1.0 - w) * PRIOR_MEMORY).powi(2);
        // A difference of two runs has twice the variance of one.
        let squares = 2.0 * board.residue.sums.squares(w, 1.0 - w);
        let freedom = board.residue.freedom;
        let worth = PRIOR_FREEDOM * (prior * freedom / squares).min(1.0);
        let worth = if worth.is_finite() { worth } else { PRIOR_FREEDOM };
        Self {
            w,
            seen: Common::new(squares, freedom),
            expected: Common::new(worth * prior + squares, worth + freedom),
            least: LEAST * prior,
        }
    }

    /// A candidate's own spread, moderated towards what is to be expected. Good enough where an error costs trials or a gain that is not found.
    pub fn expected(&self, pairs: &Moments) -> Spread {
        let (sigma, freedom) = self.moderated(self.expected, pairs);
        Spread { sigma, freedom: self.expected.freedom.max(freedom) }
    }

    /// The same by the program's own trials alone, for proofs: with a prior, a program that is louder than others and whose first rounds happen
    /// to look quiet would be changed for nothing, the more often the louder it is.
    pub fn shown(&self, pairs: &Moments) -> Spread {
        let (sigma, _) = self.moderated(self.seen, pairs);
        Spread { sigma: sigma.max(self.least.sqrt()), freedom: self.seen.freedom }
    }

    /// Standard deviation, and its degrees of freedom if candidates differ in theirs.
    fn moderated(&self, common: Common, pairs: &Moments) -> (f64, f64) {
        let weight = common.freedom.min(COMMON_FREEDOM);
        let own = f64::from(pairs.count.saturating_sub(1));
        let squares = weight * common.variance + pairs.squares(self.w, 1.0 - self.w);
        let freedom = weight + own;
        let variance = if freedom > 0.0 { squares / freedom } else { 0.0 };
        (variance.sqrt(), freedom)
    }
}

impl Common {
    /// 0 where nothing is known; no bound follows from that, as there are no degrees of freedom either.
    fn new(squares: f64, freedom: f64) -> Self {
        Self { variance: if freedom > 0.0 { squares / freedom } else { 0.0 }, freedom }
    }
}

impl Spread {
    /// How far the mean of `count` differences may be off, one-sided, with error probability `tail`.
    pub fn bound(&self, tail: f64, count: u32) -> f64 {
        if count == 0 {
            return f64::INFINITY;
        }
        t_quantile(tail, self.freedom) * self.sigma / f64::from(count).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::board::Trial;

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
                trials.push(Trial { candidate, point: point(cpu) });
            }
        }
        let board = Board::new(&trials, 3, 0);
        let noise = Noise::of(&board, 1.0);
        let ratio = noise.expected(&board.pairs[2]).sigma / noise.expected(&board.pairs[1]).sigma;
        assert!(ratio > 1.25, "{ratio}");
    }
}
