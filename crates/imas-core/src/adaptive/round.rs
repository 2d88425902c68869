// SPDX-License-Identifier: Apache-2.0
//! Trials in rounds: what one cost, the rounds into which trials are divided, one process or several side by side, and
//! the limit of outlying ones.

use serde::{Deserialize, Serialize};

use crate::stats::median;

/// Logarithms of a trial's costs. Only differences between trials of the same program are meaningful.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// ln of user and system CPU time.
    pub cpu: f64,
    /// ln of the mean of resident anonymous memory.
    pub memory: f64,
}

impl Point {
    /// Point of seconds and bytes; None unless both are positive numbers.
    pub fn new(cpu_s: f64, bytes: f64) -> Option<Self> {
        let is_figure = |x: f64| x.is_finite() && x > 0.0;
        (is_figure(cpu_s) && is_figure(bytes)).then(|| Self { cpu: cpu_s.ln(), memory: bytes.ln() })
    }

    /// Difference to the other point, by axis.
    pub fn over(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }

    /// w ln(cpu) + (1 - w) ln(memory): lower is better.
    pub fn score(self, w: f64) -> f64 {
        w * self.cpu + (1.0 - w) * self.memory
    }
}

// One trial as the policy sees it.

/// A trial of one candidate; without figures where it yielded none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JudgedTrial {
    /// Index of the candidate.
    pub candidate: usize,
    /// Figures of the trial.
    pub point: Option<Point>,
}

// Trials divided into rounds: those that ran side by side, and those that followed one another.
//
// Replicas that start together are one **block** (docs/decisions/0030): whatever the load does, it does to
// all of them. A block is compared within itself only. Trials that followed one another form a round until a
// candidate comes again.

/// Trials that are compared with each other.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Round {
    pub(crate) trials: Vec<JudgedTrial>,
    /// The trials ran at the same time: they are compared with no `system` of another time.
    pub(crate) is_side_by_side: bool,
    /// The trials' figures are of processes that lived on: they are compared with no figure of another
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

// Winsorizing of outlying runs: something else used the machine during one run.
//
// Median polish (J. W. Tukey, "Exploratory Data Analysis", 1977) estimates the effects of candidate and
// round; an outlier hardly moves it. The residual of each run is then limited to a multiple of the program's
// usual residual (P. J. Huber, "Robust Statistics", 1981). So a mean over rounds and its spread do not
// depend on one run of many.

/// Residuals up to this number of standard deviations stay as they are.
const LIMIT: f64 = 2.5;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// Factor from the upper quartile of absolute deviations to the standard deviation, for normal noise.
const QUARTILE_TO_SIGMA: f64 = 1.0 / 1.1503;
/// Least noise that is assumed, as a difference of logarithms.
const LEAST_SIGMA: f64 = 0.005;
/// Fewest rounds of a candidate in which an outlier can be identified.
const ROUNDS: usize = 3;
/// Sweeps of the median polish; the second one changes little.
const SWEEPS: usize = 3;

/// Trials of the rounds, with outliers limited.
pub(crate) fn steady(rounds: &[&[JudgedTrial]], candidates: usize) -> Vec<Vec<JudgedTrial>> {
    let cpu = limited(&table(rounds, candidates, |point| point.cpu));
    let memory = limited(&table(rounds, candidates, |point| point.memory));
    let steadied = |(round, trials): (usize, &&[JudgedTrial])| -> Vec<JudgedTrial> {
        let of = |trial: &JudgedTrial| JudgedTrial {
            candidate: trial.candidate,
            point: cpu[round][trial.candidate]
                .zip(memory[round][trial.candidate])
                .map(|(cpu, memory)| Point { cpu, memory }),
        };
        trials.iter().map(of).collect()
    };
    rounds.iter().enumerate().map(steadied).collect()
}

/// Figures of each round, for each candidate. None where it had no trial with figures.
type Table = Vec<Vec<Option<f64>>>;

fn table(rounds: &[&[JudgedTrial]], candidates: usize, axis: fn(&Point) -> f64) -> Table {
    let row = |round: &&[JudgedTrial]| {
        let mut row = vec![None; candidates];
        for trial in *round {
            row[trial.candidate] = trial.point.as_ref().map(axis);
        }
        row
    };
    rounds.iter().map(row).collect()
}

fn limited(table: &Table) -> Table {
    let rest = polished(table);
    let runs = |candidate: usize| rest.iter().filter(|row| row[candidate].is_some()).count();
    let candidates = rest.first().map_or(0, Vec::len);
    let known: Vec<bool> = (0..candidates).map(|candidate| runs(candidate) >= ROUNDS).collect();
    let mut sizes: Vec<f64> = rest.iter().flatten().filter_map(|x| *x).map(f64::abs).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    // The polish fits one run exactly for each round and each candidate; these residuals of 0 carry no noise.
    let runs_of = |row: &&Vec<Option<f64>>| row.iter().any(Option::is_some);
    let fitted = rest.iter().filter(runs_of).count() + (0..candidates).filter(|&i| runs(i) > 0).count();
    let Some(middle) = median(sizes.get(fitted.saturating_sub(1)..).unwrap_or(&[])) else {
        return table.clone();
    };
    // Where more than a quarter of a candidate's runs are outliers, its runs simply vary: they are no
    // outliers.
    let own = |i: usize| upper_quartile(rest.iter().filter_map(|row| row[i]).map(f64::abs).collect());
    let most: Vec<f64> = (0..candidates)
        .map(|i| LIMIT * (TO_SIGMA * middle).max(QUARTILE_TO_SIGMA * own(i)).max(LEAST_SIGMA))
        .collect();
    let drawn_in = |(row, rest): (&Vec<Option<f64>>, &Vec<Option<f64>>)| -> Vec<Option<f64>> {
        let cell = |candidate: usize| {
            let (x, rest) = (row[candidate]?, rest[candidate]?);
            Some(if known[candidate] { x - rest + rest.clamp(-most[candidate], most[candidate]) } else { x })
        };
        (0..candidates).map(cell).collect()
    };
    table.iter().zip(&rest).map(drawn_in).collect()
}

/// 0 when empty.
fn upper_quartile(mut sizes: Vec<f64>) -> f64 {
    sizes.sort_unstable_by(f64::total_cmp);
    let place = (3 * sizes.len()).div_ceil(4).saturating_sub(1);
    sizes.get(place).copied().unwrap_or(0.0)
}

/// Residuals after the effects of candidates and rounds.
fn polished(table: &Table) -> Table {
    let mut rest = table.clone();
    let candidates = rest.first().map_or(0, Vec::len);
    for _ in 0..SWEEPS {
        for candidate in 0..candidates {
            let column: Vec<f64> = rest.iter().filter_map(|row| row[candidate]).collect();
            let middle = median(&column).unwrap_or(0.0);
            for x in rest.iter_mut().filter_map(|row| row[candidate].as_mut()) {
                *x -= middle;
            }
        }
        for row in &mut rest {
            let middle = median(&row.iter().filter_map(|x| *x).collect::<Vec<_>>()).unwrap_or(0.0);
            for x in row.iter_mut().flatten() {
                *x -= middle;
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
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

    fn rounds(table: &[[f64; 3]]) -> Vec<Vec<JudgedTrial>> {
        let point = |cpu| Some(Point { cpu, memory: 0.0 });
        let row = |row: &[f64; 3]| {
            row.iter()
                .enumerate()
                .map(|(candidate, cpu)| JudgedTrial { candidate, point: point(*cpu) })
                .collect()
        };
        table.iter().map(row).collect()
    }

    fn cpus(table: &[[f64; 3]]) -> Vec<Vec<f64>> {
        let rounds = rounds(table);
        let rounds: Vec<&[JudgedTrial]> = rounds.iter().map(Vec::as_slice).collect();
        let row = |row: &Vec<JudgedTrial>| row.iter().map(|trial| trial.point.unwrap().cpu).collect();
        steady(&rounds, 3).iter().map(row).collect()
    }

    /// A slow round and a slow candidate are left alone; a slow run is limited.
    #[test]
    fn only_an_odd_run_is_shrunk() {
        let mut table = [[0.0, 0.1, 0.3], [0.5, 0.6, 0.8], [0.2, 0.3, 0.5], [0.1, 0.2, 0.4]];
        assert!(
            cpus(&table).iter().flatten().zip(table.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-12)
        );
        table[1][2] += 0.7;
        let steadied = cpus(&table);
        assert!((steadied[1][2] - (0.8 + LIMIT * LEAST_SIGMA)).abs() < 1e-9, "{steadied:?}");
        assert!((steadied[1][1] - 0.6).abs() < 1e-9);
    }

    #[test]
    fn of_two_runs_none_is_the_odd_one() {
        let table = [[0.0, 0.1, 0.3], [0.0, 0.1, 1.3]];
        assert_eq!(cpus(&table), table.map(|row| row.to_vec()));
    }
}
