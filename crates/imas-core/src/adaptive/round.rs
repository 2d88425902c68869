// SPDX-License-Identifier: Apache-2.0
//! Trials divided into rounds: those that ran side by side, and those that followed one another.
//!
//! Replicas that start together are one **block** (docs/decisions/0030): whatever the load does, it does to
//! all of them. A block is compared within itself only. Trials that followed one another form a round until a
//! candidate comes again.

use super::trial::JudgedTrial;

/// Trials that are compared with each other.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Round {
    pub(crate) trials: Vec<JudgedTrial>,
    /// The trials ran at the same time: they are compared with no `system` of another time.
    pub(crate) is_side_by_side: bool,
    /// The trials' figures are those of processes that lived on: they are compared with no figure of another
    /// kind.
    pub(crate) is_of_lives: bool,
}

/// Places of a round's trials among all trials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Division {
    pub(crate) members: Vec<usize>,
    pub(crate) is_side_by_side: bool,
}

impl Division {
    /// The round of its trials.
    pub(crate) fn round(&self, trials: &[JudgedTrial]) -> Round {
        Round {
            trials: self.members.iter().filter_map(|at| trials.get(*at).copied()).collect(),
            is_side_by_side: self.is_side_by_side,
            is_of_lives: false,
        }
    }
}

/// Time in which a trial ran, seconds since the epoch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) begin_s: f64,
    pub(crate) end_s: f64,
}

impl Span {
    /// Whether both ran at the same time for at least half of the shorter one.
    fn is_beside(self, other: Self) -> bool {
        let both_s = self.end_s.min(other.end_s) - self.begin_s.max(other.begin_s);
        let shorter_s = (self.end_s - self.begin_s).min(other.end_s - other.begin_s);
        both_s > 0.0 && both_s >= shorter_s / 2.0
    }
}

/// All trials, which are in order of time, divided into rounds; `spans` says when each ran. `ends` says
/// whether a round of trials that followed one another, begun at the first index, also ends before the
/// second.
pub(crate) fn divided(
    trials: &[JudgedTrial],
    spans: &[Span],
    ends: impl Fn(usize, usize) -> bool,
    system: usize,
) -> Vec<Division> {
    let mut rounds = vec![];
    let mut alone = 0..0;
    for group in groups(spans) {
        if is_block(&trials[group.clone()], system) {
            rounds.extend(in_sequence(trials, alone.clone(), &ends));
            rounds.extend(of_block(trials, group.clone(), system));
            alone = group.end..group.end;
        } else {
            alone.end = group.end;
        }
    }
    rounds.extend(in_sequence(trials, alone, &ends));
    rounds
}

/// The rounds of trials that followed one another.
pub(crate) fn in_sequence(
    trials: &[JudgedTrial],
    among: std::ops::Range<usize>,
    ends: &impl Fn(usize, usize) -> bool,
) -> Vec<Division> {
    let mut rounds = Vec::new();
    let mut start = among.start;
    for at in among.clone() {
        let comes_again = trials[start..at].iter().any(|earlier| earlier.candidate == trials[at].candidate);
        if comes_again || (at > start && ends(start, at)) {
            rounds.push(start..at);
            start = at;
        }
    }
    rounds.push(start..among.end);
    let of = |range: std::ops::Range<usize>| Division { members: range.collect(), is_side_by_side: false };
    rounds.into_iter().filter(|range| !range.is_empty()).map(of).collect()
}

/// Groups of trials that ran side by side, as ranges. A trial that did not run beside the first of its group
/// begins the next.
fn groups(spans: &[Span]) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = vec![];
    for (at, span) in spans.iter().enumerate() {
        match groups.last_mut().filter(|group| spans[group.start].is_beside(*span)) {
            Some(group) => group.end = at + 1,
            None => groups.push(at..at + 1),
        }
    }
    groups
}

/// Whether something can be compared within the group: `system` with another candidate.
fn is_block(group: &[JudgedTrial], system: usize) -> bool {
    let has = |is: &dyn Fn(&JudgedTrial) -> bool| group.iter().any(is);
    has(&|trial| trial.candidate == system && trial.point.is_some())
        && has(&|trial| trial.candidate != system)
}

/// The rounds of a block: the first trials of all candidates, the second ones, and so on, each with its own
/// `system`. One run of `system` for two runs of a candidate would count its noise as if it were two.
fn of_block(trials: &[JudgedTrial], group: std::ops::Range<usize>, system: usize) -> Vec<Division> {
    let is_void_system = |at: &usize| trials[*at].candidate == system && trials[*at].point.is_none();
    let (void, others): (Vec<usize>, Vec<_>) = group.partition(is_void_system);
    let mut rounds: Vec<Division> = vec![];
    for at in others.into_iter().chain(void) {
        let candidate = trials[at].candidate;
        let has = |round: &Division| round.members.iter().any(|other| trials[*other].candidate == candidate);
        match rounds.iter_mut().find(|round| !has(round)) {
            Some(round) => round.members.push(at),
            None => rounds.push(Division { members: vec![at], is_side_by_side: true }),
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::super::Point;
    use super::*;

    /// Candidate, begin and end of each trial; a negative candidate is one without figures.
    fn cut(trials: &[(i32, f64, f64)]) -> Vec<(Vec<usize>, bool)> {
        let point = |candidate: i32| (candidate >= 0).then_some(Point { cpu: 1.0, memory: 1.0 });
        let candidate = |candidate: i32| if candidate < 0 { 0 } else { candidate.unsigned_abs() as usize };
        let judged: Vec<_> = trials
            .iter()
            .map(|(i, _, _)| JudgedTrial { candidate: candidate(*i), point: point(*i) })
            .collect();
        let spans: Vec<_> =
            trials.iter().map(|(_, begin_s, end_s)| Span { begin_s: *begin_s, end_s: *end_s }).collect();
        let rounds = divided(&judged, &spans, |_, _| false, 0);
        let names = |round: Round| round.trials.iter().map(|trial| trial.candidate).collect();
        rounds.iter().map(|round| (names(round.round(&judged)), round.is_side_by_side)).collect()
    }

    #[test]
    fn what_runs_side_by_side_is_a_block_and_what_follows_is_another() {
        let first = [(1, 0.0, 10.0), (0, 1.0, 11.0), (2, 2.0, 12.0)];
        // A rolling restart: the first worker of the next deployment starts while the last one still runs.
        let second = [(3, 11.5, 21.0), (0, 12.0, 22.0)];
        let both = [first.as_slice(), &second].concat();
        assert_eq!(cut(&both), [(vec![1, 0, 2], true), (vec![3, 0], true)]);
    }

    #[test]
    fn trials_that_follow_one_another_are_rounds_until_a_candidate_comes_again() {
        let trials = [(1, 0.0, 1.0), (0, 1.0, 2.0), (1, 2.0, 3.0), (1, 2.8, 5.0), (0, 6.0, 7.0)];
        assert_eq!(cut(&trials), [(vec![1, 0], false), (vec![1], false), (vec![1, 0], false)]);
    }

    #[test]
    fn a_group_without_figures_of_system_is_no_block() {
        assert_eq!(cut(&[(1, 0.0, 9.0), (2, 0.0, 9.0)]), [(vec![1, 2], false)]);
        assert_eq!(cut(&[(1, 0.0, 9.0), (-1, 0.0, 9.0)]), [(vec![1, 0], false)]);
        assert_eq!(cut(&[(0, 0.0, 9.0), (0, 0.0, 9.0)]), [(vec![0], false), (vec![0], false)]);
    }

    #[test]
    fn two_runs_of_a_candidate_are_never_compared_with_one_of_system() {
        let trials = [(1, 0.0, 9.0), (1, 0.0, 9.0), (0, 0.0, 9.0), (2, 0.0, 9.0), (0, 0.0, 9.0)];
        assert_eq!(cut(&trials), [(vec![1, 0, 2], true), (vec![1, 0], true)]);
        let void_first = [(-1, 0.0, 9.0), (1, 0.0, 9.0), (0, 0.0, 9.0)];
        assert_eq!(cut(&void_first), [(vec![1, 0], true), (vec![0], true)]);
    }
}
