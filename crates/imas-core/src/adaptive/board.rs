// SPDX-License-Identifier: Apache-2.0
//! The differences of all trials to `system` of the same round, the turn of this host in its fleet, how far a difference can
//! be trusted, and what one more trial is worth.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::Point;
use super::lives::Untouched;
pub use super::round::JudgedTrial;
use super::round::{Round, in_sequence, steady};
use crate::compare::Residue;
pub use crate::compare::Spread;
use crate::compare::estimate::ResidueRun;
use crate::fleet_prior::FleetEvidence;
use crate::stats::Moments;

/// How many of the newest differences are kept one by one.
pub const RECENT: usize = 3;

/// Results of the trials, by candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct Board {
    /// Differences to `system` of each candidate (x: cpu, y: memory).
    pub pairs: Vec<Moments>,
    /// Newest differences to `system` of each candidate, [`RECENT`] at most, oldest first.
    pub recent: Vec<Vec<Point>>,
    /// Number of each candidate's trials without figures since its newest difference to `system`.
    pub unanswered: Vec<u32>,
    /// Number of each candidate's trials that yielded figures.
    pub counted: Vec<u32>,
    /// Number of each candidate's trials that yielded no figures.
    pub void: Vec<u32>,
    /// Candidates that had their trial in the round that is not yet complete; all where the latest trials ran
    /// side by side, so that the next trial begins a round.
    pub in_round: Vec<usize>,
    /// Number of rounds, the unfinished one included.
    pub rounds: u32,
    /// Place of each candidate in the first round ([`crate::Candidate::place`]); empty: random order.
    pub places: Vec<u32>,
    /// Number of rounds before each candidate's first trial, with figures or without. All rounds where it had
    /// none.
    pub came_after: Vec<u32>,
    /// Index of `system`.
    pub system: usize,
    /// Residuals of the figures after the effects of candidates and rounds.
    pub residue: Residue,
    /// Evidence of other hosts. None on a host without a fleet.
    pub fleet: Option<FleetEvidence>,
    /// How much untouched replicas differ in memory. None where none was seen, or that is not what the trials
    /// are measured by.
    pub untouched: Option<Untouched>,
}

impl Board {
    /// Board of `len` candidates from all trials in order of time. A round ends where a candidate occurs
    /// again. Where a round has no figures of `system`, its trials are paired with the latest earlier ones,
    /// else with the first later ones.
    pub fn new(trials: &[JudgedTrial], len: usize, system: usize) -> Self {
        Self::of(&in_order(trials), len, system)
    }

    /// Board of `len` candidates from trials that are divided into rounds already. Rounds of trials that ran
    /// side by side, and rounds of lives, are compared with their own `system` alone. The others are compared
    /// with none of theirs.
    pub(crate) fn of(divided: &[Round], len: usize, system: usize) -> Self {
        let raw: Vec<&[JudgedTrial]> = divided.iter().map(|round| round.trials.as_slice()).collect();
        let apart: Vec<bool> =
            divided.iter().map(|round| round.is_side_by_side || round.is_of_lives).collect();
        let steadied = steady(&raw, len);
        let rounds: Vec<&[JudgedTrial]> = steadied.iter().map(Vec::as_slice).collect();
        let mut board = Self {
            pairs: vec![Moments::default(); len],
            recent: vec![vec![]; len],
            unanswered: vec![0; len],
            counted: vec![0; len],
            void: vec![0; len],
            in_round: in_round(divided, len),
            rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
            places: vec![],
            came_after: came_after(&rounds, len),
            system,
            residue: residue(&rounds),
            fleet: None,
            untouched: None,
        };
        for (round, reference) in rounds.iter().zip(references(&rounds, &apart, system)) {
            for trial in *round {
                board.enter(trial, reference);
            }
        }
        // The watch for a pick that became worse needs the runs without limited outliers.
        for (round, reference) in raw.iter().zip(references(&raw, &apart, system)) {
            for trial in *round {
                board.remember(trial, reference);
            }
        }
        board
    }

    fn enter(&mut self, trial: &JudgedTrial, reference: Option<Point>) {
        let Some(point) = trial.point else {
            self.void[trial.candidate] += 1;
            return;
        };
        self.counted[trial.candidate] += 1;
        if let Some(reference) = reference {
            let excess = point.over(reference);
            let pairs = &mut self.pairs[trial.candidate];
            *pairs = pairs.merge(Moments::of(excess.cpu, excess.memory));
        }
    }

    fn remember(&mut self, trial: &JudgedTrial, reference: Option<Point>) {
        if trial.point.is_none() {
            self.unanswered[trial.candidate] += 1;
        }
        let Some((point, reference)) = trial.point.zip(reference) else { return };
        self.unanswered[trial.candidate] = 0;
        let recent = &mut self.recent[trial.candidate];
        recent.push(point.over(reference));
        if recent.len() > RECENT {
            recent.remove(0);
        }
    }

    /// Number of trials, with figures or without.
    pub fn trials(&self) -> u32 {
        (0..self.counted.len()).map(|i| self.trials_of(i)).sum()
    }

    /// Number of trials of one candidate, with figures or without.
    pub fn trials_of(&self, candidate: usize) -> u32 {
        self.counted[candidate] + self.void[candidate]
    }
}

fn in_round(rounds: &[Round], len: usize) -> Vec<usize> {
    match rounds.last() {
        Some(last) if last.is_side_by_side => (0..len).collect(),
        Some(last) => last.trials.iter().map(|trial| trial.candidate).collect(),
        None => vec![],
    }
}

fn came_after(rounds: &[&[JudgedTrial]], len: usize) -> Vec<u32> {
    let is_in =
        |round: &&[JudgedTrial], candidate: usize| round.iter().any(|trial| trial.candidate == candidate);
    let before = |i: usize| rounds.iter().position(|round| is_in(round, i)).unwrap_or(rounds.len());
    (0..len).map(|i| u32::try_from(before(i)).unwrap_or(u32::MAX)).collect()
}

/// Divides the trials where a candidate occurs again.
pub fn rounds(trials: &[JudgedTrial]) -> Vec<Vec<JudgedTrial>> {
    in_order(trials).into_iter().map(|round| round.trials).collect()
}

fn in_order(trials: &[JudgedTrial]) -> Vec<Round> {
    let divisions = in_sequence(trials, 0..trials.len(), &|_, _| false);
    divisions.iter().map(|division| division.round(trials)).collect()
}

/// Costs of `system` in each round. Where a round that is not for itself alone (`apart`) has no figures of
/// it: the costs in the nearest such round that has.
fn references(rounds: &[&[JudgedTrial]], apart: &[bool], system: usize) -> Vec<Option<Point>> {
    let of_round =
        |round: &&[JudgedTrial]| round.iter().filter(|t| t.candidate == system).find_map(|trial| trial.point);
    let own: Vec<Option<Point>> = rounds.iter().map(of_round).collect();
    let in_sequence = |at: usize| own[at].filter(|_| !apart[at]);
    let nearest = |at: usize| {
        let before = (0..=at).rev().find_map(in_sequence);
        before.or_else(|| (at..own.len()).find_map(in_sequence))
    };
    // The trial of `system` may still follow in an unfinished round. Until then the round is not paired with
    // another round's `system`: whatever the machine did between the two would be charged to the candidate.
    let is_waiting = |at: usize| at + 1 == rounds.len() && rounds[at].iter().all(|t| t.candidate != system);
    let of = |at: usize| if apart[at] { own[at] } else { nearest(at).filter(|_| !is_waiting(at)) };
    (0..own.len()).map(of).collect()
}

/// Scatter of the trials of these rounds.
pub(super) fn residue(rounds: &[&[JudgedTrial]]) -> Residue {
    let of_round = |(round, trials): (usize, &&[JudgedTrial])| {
        let run = move |trial: &JudgedTrial| {
            let Point { cpu, memory } = trial.point?;
            Some(ResidueRun { round, candidate: trial.candidate, figures: [cpu, memory] })
        };
        trials.iter().filter_map(run).collect::<Vec<_>>()
    };
    Residue::of_runs(rounds.iter().enumerate().flat_map(of_round).collect())
}

// The trials of one host where a fleet shares them out (docs/decisions/0032-a-fleet-learns-together.md).
//
// In its turn a host tries one candidate once, and then `system`, with which it is compared. `system` may
// follow at any time: it is safe, so a program that starts once a day yields pairs as well.

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

    /// Returns whether a candidate is to be checked, whose older trial (its own or one of `system`) is of that time.
    pub(super) fn is_check_due(&self, i: usize, older_s: Option<f64>) -> bool {
        let is_this_hosts = self.checks.get(i).is_some_and(|checks| *checks);
        is_this_hosts && older_s.is_none_or(|older_s| older_s < self.checks_begin_s)
    }
}

// Error of a mean of paired differences.

/// Prior standard deviation of one paired difference of ln CPU. It lies between the one of docs/measuring.md and
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
    /// Spread of the trials here, the trials of other hosts and the prior together.
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

// Worth of further trials of a candidate: the gain in score that is expected to be lost without them.
//
// The prior of a candidate's true gain is normal. It is centred on the mean of its rounds, shrunk towards
// the gain that is usual for allocators. A trial is worth making while the expected loss without it exceeds
// the trial's price. Expected opportunity cost: S. E. Chick and K. Inoue, "New two-stage and sequential
// procedures for selecting the best simulated system", Operations Research 49, 2001. Whether a proof will
// still come is a predictive power: D. J. Spiegelhalter, L. S. Freedman and P. R. Blackburn, "Monitoring
// clinical trials: conditional or predictive power?", Controlled Clinical Trials 7, 1986.

/// Posterior distribution of a true difference: normal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Belief {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
}

impl Belief {
    /// Belief in no difference, but for the usual spread: standard deviation `usual`.
    pub fn usual(usual: f64) -> Self {
        Self { mean: 0.0, variance: usual.powi(2) }
    }

    /// This belief after `rounds` differences with mean `seen` and standard deviation `sigma` each.
    #[must_use]
    pub fn after(self, rounds: u32, seen: f64, sigma: f64) -> Self {
        let precision = f64::from(rounds) / sigma.powi(2);
        let variance = 1.0 / (1.0 / self.variance + precision);
        Self { mean: variance * (self.mean / self.variance + precision * seen), variance }
    }

    /// Belief about the difference of this and `other`; the two are independent.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self { mean: self.mean - other.mean, variance: self.variance + other.variance }
    }

    /// Expected value of the positive part: the expected loss when a candidate with this lead over the best
    /// is eliminated.
    pub fn upside(&self) -> f64 {
        let deviation = self.variance.sqrt();
        let z = self.mean / deviation;
        let normal = Normal::standard();
        deviation * (normal.pdf(z) + z * normal.cdf(z))
    }

    /// Expected gain from continuing. `rounds` rounds have shown `seen` and `more` rounds follow. Counted is
    /// the true difference where the mean of all rounds comes out above `needed`, and 0 otherwise.
    pub fn gain_if_proven(&self, rounds: u32, seen: f64, more: u32, sigma: f64, needed: f64) -> f64 {
        let (before, after) = (f64::from(rounds), f64::from(more));
        let share = after / (before + after);
        let normal = Normal::standard();
        let middle = (1.0 - share) * seen + share * self.mean;
        let deviation = share * (self.variance + sigma.powi(2) / after.max(1.0)).sqrt();
        if deviation <= 0.0 {
            return if seen > needed { self.mean } else { 0.0 };
        }
        let z = (middle - needed) / deviation;
        self.mean * normal.cdf(z) + share * self.variance / deviation * normal.pdf(z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::t_quantile;

    fn trial(candidate: usize, cpu: f64) -> JudgedTrial {
        JudgedTrial { candidate, point: Some(Point { cpu, memory: 0.0 }) }
    }

    #[test]
    fn a_round_ends_where_a_candidate_comes_again() {
        let trials =
            [trial(1, 2.0), trial(0, 1.0), trial(0, 5.0), trial(2, 5.5), trial(1, 7.0), trial(1, 8.0)];
        let board = Board::new(&trials, 3, 0);
        assert_eq!((board.rounds, board.in_round.clone()), (3, vec![1]));
        assert_eq!(board.counted, [2, 3, 1]);
        // 2 - 1 and 7 - 5; the last round has no trial of `system` yet.
        assert_eq!((board.pairs[1].count, board.pairs[1].mean_x), (2, 1.5));
        assert_eq!((board.pairs[2].count, board.pairs[2].mean_x), (1, 0.5));
    }

    #[test]
    fn a_round_without_figures_of_system_takes_the_latest() {
        let void = JudgedTrial { candidate: 0, point: None };
        let board = Board::new(&[trial(1, 2.0), trial(0, 1.0), trial(1, 4.0), void], 2, 0);
        assert_eq!((board.pairs[1].count, board.pairs[1].mean_x), (2, 2.0));
    }

    #[test]
    fn within_a_round_the_order_does_not_matter() {
        let one = Board::new(&[trial(0, 1.0), trial(1, 2.0), trial(0, 3.0), trial(1, 5.0)], 2, 0);
        let two = Board::new(&[trial(1, 2.0), trial(0, 1.0), trial(1, 5.0), trial(0, 3.0)], 2, 0);
        assert_eq!(one.pairs, two.pairs);
    }

    #[test]
    fn a_trial_without_figures_is_void() {
        let board = Board::new(&[JudgedTrial { candidate: 1, point: None }, trial(0, 1.0)], 2, 0);
        assert_eq!(
            (board.void.clone(), board.counted.clone(), board.pairs[1].count),
            (vec![0, 1], vec![1, 0], 0)
        );
        assert_eq!(board.trials(), 2);
        assert_eq!(Board::new(&[], 2, 0).rounds, 0);
    }

    /// A deployment's trial is compared with what ran beside it; a load of another time is in no difference.
    #[test]
    fn a_deployment_is_compared_within_itself() {
        let round = |trials: &[JudgedTrial], is_side_by_side| Round {
            trials: trials.to_vec(),
            is_side_by_side,
            is_of_lives: false,
        };
        let rounds = [
            round(&[trial(1, 2.0), trial(0, 1.0)], true),
            round(&[trial(2, 5.0)], false), // alone: of a load that no `system` shares
            round(&[trial(2, 9.5), trial(0, 9.0)], true),
            round(&[trial(1, 7.0)], true), // its own `system` crashed
        ];
        let board = Board::of(&rounds, 3, 0);
        assert_eq!((board.pairs[1].count, board.pairs[1].mean_x), (1, 1.0));
        assert_eq!((board.pairs[2].count, board.pairs[2].mean_x), (1, 0.5));
        assert_eq!(board.counted, [2, 2, 2]);
        assert_eq!(board.in_round, [0, 1, 2], "the next trial begins a round");
    }

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

    #[test]
    fn many_rounds_outweigh_the_prior() {
        let usual = Belief::usual(0.05);
        let one = usual.after(1, 0.10, 0.05);
        assert!((one.mean - 0.05).abs() < 1e-12 && (one.variance - 0.00125).abs() < 1e-12);
        assert!(usual.after(100, 0.10, 0.05).mean > 0.098);
        assert_eq!(usual.after(0, 0.0, 0.05).variance, 0.05f64.powi(2));
    }

    /// The upside at a mean of 0 is the standard deviation over the root of 2 pi. Far from 0 it is nothing,
    /// or the mean itself.
    #[test]
    fn upside_worked_by_hand() {
        let of = |mean: f64| Belief { mean, variance: 0.01 }.upside();
        assert!((of(0.0) - 0.1 * 0.398_942_280_4).abs() < 1e-9);
        assert!(of(-1.0) < 1e-12 && (of(1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_that_cannot_be_proven_is_worth_nothing() {
        let belief = Belief::usual(0.08).after(4, 0.01, 0.08);
        assert!(belief.gain_if_proven(4, 0.01, 4, 0.08, 10.0) < 1e-12);
        let sure = belief.gain_if_proven(4, 0.01, 4, 0.08, -10.0);
        assert!((sure - belief.mean).abs() < 1e-9);
        assert_eq!(belief.gain_if_proven(4, 0.01, 0, 0.08, 0.02), 0.0);
    }
}
