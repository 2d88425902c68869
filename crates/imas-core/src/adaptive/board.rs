// SPDX-License-Identifier: Apache-2.0
//! Trials in order of time, divided into rounds and paired with `system`.

use crate::compare::Residue;
use crate::compare::residue::ResidueRun;
use crate::fleet_prior::FleetEvidence;
use crate::stats::Moments;

use super::Point;
use super::round::{Round, in_sequence};
use super::steady::steady;
pub use super::trial::JudgedTrial;
use super::untouched::Untouched;

/// How many of the newest differences are kept one by one.
pub const RECENT: usize = 3;

/// What the trials show of every candidate.
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
    /// Number of rounds before each candidate's first trial, with figures or without. All rounds where it had
    /// none.
    pub came_after: Vec<u32>,
    /// Index of `system`.
    pub system: usize,
    /// Residuals of the figures after the effects of candidates and rounds.
    pub residue: Residue,
    /// What other hosts measured. None on a host without a fleet.
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
    /// side by side, and those of lives, are compared with their own `system` alone. The others are compared
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

/// What `system` cost in each round. Where a round that is not for itself alone (`apart`) has no figures of
/// it: in the nearest such round that has.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
