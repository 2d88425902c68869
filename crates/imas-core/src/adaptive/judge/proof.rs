// SPDX-License-Identifier: Apache-2.0
//! What it takes to replace the incumbent, and whether it will still come to that.
//!
//! Two things are asked of a challenger. It **differs** from the incumbent for the better, proven by the program's own trials with the confidence of the settings over
//! all candidates, all looks and both directions: in the score, or in memory alone. And it is **believed** to be better on the whole with the same confidence, each axis by
//! what its rounds show drawn towards no difference, and by the margin as measured. Memory is steady where CPU is not: asking the score alone for
//! proof lets the noise of CPU hide a quarter of the memory (docs/decisions/0013). A program to which all candidates are alike is protected by the first
//! question, one that pays for memory with CPU by the second.

use serde::{Deserialize, Serialize};

use super::super::noise::{Noise, Spread};
use super::{Judge, Role, VOID_TRIALS};

/// The same price as that of a candidate given up, for the gain to be expected from its still being proven better than the incumbent.
const HOPE: f64 = 0.005;
/// Exponent of the share of the error that is spent by a round (K. Kim and D. L. DeMets, "Design and analysis of group sequential tests based on the type I error
/// spending rate function", Biometrika 74, 1987): the first rounds can prove little whatever they get.
const SPENDING: f64 = 2.0;
/// Looks at the same growing set of rounds are lucky together: their shares may sum to more than the error allowed. By as much more as leaves the incumbent in place
/// in 95 % of runs at the worst of 32 kinds of pure noise (docs/decisions/0013).
const TOGETHER: f64 = 1.15;
/// So many standard deviations of what is believed a challenger must be ahead: 95 %, one-sided.
const SURE: f64 = 1.645;

/// In what a candidate is proven to differ for the better.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// In the score.
    Score,
    /// In memory, while the score alone would not prove it.
    Memory,
}

/// A way to prove a difference.
pub(super) struct Direction {
    proof: Proof,
    /// Weight of CPU.
    w: f64,
    /// Of the error allowed.
    share: f64,
    noise: Noise,
}

/// The score; and memory alone, where it is not the score already and counts at all.
pub(super) fn directions(w: f64, score: Noise, memory: Noise) -> Vec<Direction> {
    let of = |proof, w, share, noise| Direction { proof, w, share, noise };
    if w <= 0.0 || w >= 1.0 {
        return vec![of(Proof::Score, w, 1.0, score)];
    }
    vec![of(Proof::Score, w, 0.5, score), of(Proof::Memory, 0.0, 0.5, memory)]
}

impl Judge<'_> {
    /// How it is proven to beat the incumbent; None where it is not.
    pub(super) fn proof(&self, i: usize) -> Option<Proof> {
        let rounds = self.common_rounds(i, self.incumbent);
        let belief = self.belief(i, self.incumbent);
        let is_better = !self.is_regressed(i)
            && rounds >= self.settings.min_rounds
            && self.lead(i, self.w) >= self.settings.margin(self.w)
            && belief.mean > SURE * belief.variance.sqrt();
        let differs = |direction: &&Direction| {
            let spread = direction.noise.shown(&self.board.pairs[i]);
            self.lead(i, direction.w) > spread.bound(direction.share * self.tail(i, rounds), rounds)
        };
        let found = self.directions.iter().find(differs).filter(|_| is_better);
        found.map(|direction| direction.proof)
    }

    pub(super) fn is_proven(&self, i: usize) -> bool {
        self.proof(i).is_some()
    }

    /// The gain to be expected from its being proven in the rounds that are left is not worth them.
    pub(super) fn is_hopeless(&self, i: usize) -> bool {
        let rounds = self.common_rounds(i, self.incumbent);
        let most = self.settings.max_rounds;
        let spread = self.expected(i);
        let more = most.saturating_sub(rounds);
        let by = |direction: &Direction| self.needed(i, direction, more);
        let to_differ = self.directions.iter().map(by).fold(f64::INFINITY, f64::min);
        let to_be_sure = SURE * spread.sigma / f64::from(most.max(1)).sqrt();
        let needed = to_differ.max(to_be_sure).max(self.settings.margin(self.w));
        let belief = self.belief(i, self.incumbent);
        belief.gain_if_proven(rounds, self.lead(i, self.w), more, spread.sigma, needed) < HOPE
    }

    /// Lead in score that is needed after the last round to differ in this direction. In memory it is what has been seen that counts: it hardly moves any more.
    fn needed(&self, i: usize, direction: &Direction, more: u32) -> f64 {
        let most = self.settings.max_rounds;
        let pairs = &self.board.pairs[i];
        let freedom = direction.noise.shown(pairs).freedom + f64::from(more) * self.freedom_a_round();
        let then = Spread { freedom, ..direction.noise.expected(pairs) };
        let bound = then.bound(direction.share * self.tail(i, most), most);
        match direction.proof {
            Proof::Score => bound,
            Proof::Memory if self.lead(i, direction.w) > bound => 0.0,
            Proof::Memory => f64::INFINITY,
        }
    }

    /// Degrees of freedom that a further round adds: one for each candidate in it beside `system`.
    fn freedom_a_round(&self) -> f64 {
        let may_come = |&i: &usize| i != self.board.system && self.may(i) && self.board.void[i] < VOID_TRIALS;
        let is_in = |&i: &usize| self.rounds(i) == 0 || self.out(i).is_none();
        (0..self.board.pairs.len()).filter(may_come).filter(is_in).count().max(1) as f64
    }

    /// Over the incumbent, at weight `a` of CPU.
    fn lead(&self, i: usize, a: f64) -> f64 {
        let over_system =
            |i: usize| if i == self.board.system { 0.0 } else { -self.board.pairs[i].mean(a, 1.0 - a) };
        over_system(i) - over_system(self.incumbent)
    }

    /// Candidates that could replace the incumbent, by whom the error is shared. One that left the set was proven among those that were there then: who comes
    /// later takes nothing of its proof away.
    fn rivals(&self, i: usize) -> f64 {
        if self.roles[i] != Role::Kept {
            return self.challengers;
        }
        let came_after = &self.board.came_after;
        let was_there = |&j: &usize| {
            j != self.incumbent && self.roles[j] != Role::Barred && came_after[j] <= came_after[i]
        };
        let rivals = (0..self.roles.len()).filter(was_there).count();
        (rivals.max(1) as f64).min(self.challengers)
    }

    /// Share of the error that the look at one candidate after so many rounds may spend. Candidates count for n / (2 - 1/n) instead of n: they are measured
    /// against the same runs of `system`, so that they are lucky together.
    fn tail(&self, i: usize, rounds: u32) -> f64 {
        let most = self.settings.max_rounds.max(1);
        let rounds = rounds.min(most);
        let spent = |rounds: u32| (f64::from(rounds) / f64::from(most)).powf(SPENDING);
        let before = if rounds <= self.settings.min_rounds { 0.0 } else { spent(rounds - 1) };
        let n = self.rivals(i);
        TOGETHER * (1.0 - self.settings.confidence) * (spent(rounds) - before) * (2.0 - 1.0 / n) / n
    }
}
