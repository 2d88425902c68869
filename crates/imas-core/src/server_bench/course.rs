// SPDX-License-Identifier: Apache-2.0
//! The next runs of a bench of a server, by the runs that were made: the cheap question comes first
//! (docs/decisions/0059).
//!
//! 1. One run under `system`, with a look into its heaps. Where no allocator could save anything, the bench ends.
//! 2. One run of each candidate in the same round. The worst leave.
//! 3. What is left runs beside `system`, round by round, until it is proven better, or too close to tell.
//!
//! A pure function of the runs: the bench asks it after each round, and the laboratory asks it about stored runs.

use super::{CandidateFigures, ServiceComparison, ServiceOptions, compare_services};
use crate::SYSTEM;
use crate::compare::{LARGEST_BOUND, Looks, smallest_difference};
use crate::judgement::{BenchEnding, FigureAnswer, Goal, MOST_ROUNDS};
use crate::run::RawRun;
use crate::server_run::{C_LIBRARY, MemoryByUse, STATIC};

/// Least share of the resident memory that an allocator must be able to save for a bench to go on.
pub const LEAST_SHARE: f64 = 0.02;
/// Share of the margin that a candidate must gain, as it looks, to stay.
const LOOKS_LIKE: f64 = 0.6;
/// Candidates that stay after the first round. From the second on one stays.
const SECOND: usize = 2;

/// Parts that a course may leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CourseOptions {
    /// The look into the heaps ends nothing: all are to be measured, or some candidates are settings of a runtime, which
    /// act on memory outside of malloc's heaps.
    pub ignores_heaps: bool,
    /// Looks at the rounds.
    pub looks: Looks,
}

/// The runs that come next.
#[derive(Clone, PartialEq, Debug)]
pub enum NextRuns {
    /// `system` alone, in the first round.
    System,
    /// Candidates of the first round, beside the run under `system`.
    Candidates(Vec<String>),
    /// `system` and these candidates, in this further round.
    Round(u32, Vec<String>),
    /// Nothing.
    End(CourseEnd),
}

/// Why the course ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CourseEnd {
    /// No allocator could save more than this share of the resident memory.
    NothingToSave {
        /// The share, as a part of 1.
        share: f64,
    },
    /// No candidate looks better.
    NoneLooksBetter,
    /// The candidate that is left is proven better.
    Proven,
    /// The rounds that may be made would not prove what is left.
    TooClose,
    /// All rounds were made.
    AllMade,
}

impl NextRuns {
    /// The runs that come after these, which `comparison` compares.
    #[must_use]
    pub fn after(runs: &[RawRun], comparison: &ServiceComparison, options: &CourseOptions) -> Self {
        let of = |name: &str| runs.iter().filter(|run| run.candidate == name).collect::<Vec<_>>();
        let system = of(SYSTEM);
        if system.is_empty() {
            return Self::System;
        }
        let others = comparison.candidates.iter().filter(|one| one.name != SYSTEM);
        let missing: Vec<String> =
            others.filter(|one| of(&one.name).is_empty()).map(|one| one.name.clone()).collect();
        if !missing.is_empty() {
            let share = if options.ignores_heaps { None } else { system.iter().find_map(|run| saving(run)) };
            return match share.filter(|share| *share < LEAST_SHARE) {
                Some(share) => Self::End(CourseEnd::NothingToSave { share }),
                None => Self::Candidates(missing),
            };
        }
        let made = comparison.judgement.rounds;
        if comparison.judgement.best().is_some() {
            return Self::End(CourseEnd::Proven);
        }
        let staying = staying(comparison);
        let Some(&first) = staying.first() else { return Self::End(CourseEnd::NoneLooksBetter) };
        // A round counts as made although `system` failed in it.
        let round = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
        let left = options.looks.most.saturating_sub(round);
        let is_close = |one: &CandidateFigures| one.more_rounds.is_none_or(|more| more > 2 * left);
        match () {
            () if left == 0 => Self::End(CourseEnd::AllMade),
            () if made >= options.looks.first as usize && is_close(first) => Self::End(CourseEnd::TooClose),
            () => Self::Round(round, staying.into_iter().map(|one| one.name.clone()).collect()),
        }
    }
}

/// A course that was followed to its end.
#[derive(Clone, PartialEq, Debug)]
pub struct FollowedCourse {
    /// The runs, in the order in which they were made.
    pub runs: Vec<RawRun>,
    /// Why it ended; None where a run could not be made.
    pub end: Option<CourseEnd>,
    /// Comparison of the runs.
    pub comparison: ServiceComparison,
}

impl FollowedCourse {
    /// The course of these candidates, `system` among them. `make` makes the run of a candidate in a round: None ends
    /// the course.
    pub fn of(
        names: &[String],
        how: &ServiceOptions,
        options: &CourseOptions,
        mut make: impl FnMut(&str, u32) -> Option<RawRun>,
    ) -> Self {
        let mut runs: Vec<RawRun> = vec![];
        loop {
            let comparison = compare_services(names, &runs, how);
            let (round, of) = match NextRuns::after(&runs, &comparison, options) {
                NextRuns::System => (0, vec![SYSTEM.to_owned()]),
                NextRuns::Candidates(of) => (0, of),
                NextRuns::Round(round, of) => (round, [vec![SYSTEM.to_owned()], of].concat()),
                NextRuns::End(end) => {
                    return Self { runs, end: Some(end), comparison: comparison.ended(end) };
                }
            };
            for name in of {
                let Some(run) = make(&name, round) else { return Self { runs, end: None, comparison } };
                runs.push(run);
            }
        }
    }
}

/// Greatest cost with which a candidate looks better, as a ratio to `system`; `margin` is the smallest gain that counts.
#[must_use]
pub fn most_cost(margin: f64) -> f64 {
    1.0 - LOOKS_LIKE * margin
}

/// The candidates that stay, the best first: they ran in each round, and look better. After the second round one stays.
fn staying(comparison: &ServiceComparison) -> Vec<&CandidateFigures> {
    let made = comparison.judgement.rounds;
    let most = most_cost(comparison.margin());
    let is_fit = |one: &&CandidateFigures| {
        one.name != SYSTEM
            && one.rounds >= made
            && one.failures.is_empty()
            && one.exceeds.is_empty()
            && !matches!(one.answer, FigureAnswer::NoGain | FigureAnswer::Worse)
    };
    let by_cost = comparison.candidates.iter().filter(is_fit).filter_map(|one| Some((one.cost?, one)));
    let mut fit: Vec<(f64, &CandidateFigures)> = by_cost.filter(|(cost, _)| *cost < most).collect();
    fit.sort_by(|a, b| a.0.total_cmp(&b.0));
    fit.truncate(if made < 2 { SECOND } else { 1 });
    fit.into_iter().map(|(_, one)| one).collect()
}

/// Share of the resident memory that an allocator could save at most, by the looks into the heaps of a run under
/// `system`: all that is in heaps and not live. None where that is not known, or where another malloc serves, which
/// candidates take the place of.
#[must_use]
pub fn saving(run: &RawRun) -> Option<f64> {
    let server = run.of_server();
    if !server.malloc_by.is_empty() && server.malloc_by.iter().all(|by| by == STATIC) {
        return Some(0.0);
    }
    if server.malloc_by.iter().any(|by| by != C_LIBRARY) {
        return None;
    }
    let share = |by_use: MemoryByUse| by_use.possible() / by_use.resident.max(1.0);
    let load = share(MemoryByUse::of(&server.heaps)?);
    Some(MemoryByUse::of(&server.heaps_idle).map_or(load, |idle| share(idle).max(load)))
}

impl ServiceComparison {
    /// Smallest gain of the goal that counts.
    pub(super) fn margin(&self) -> f64 {
        smallest_difference(super::goal_figure(self.goal))
    }

    /// The comparison of a course that ended so. Candidates that left are not what was left open.
    #[must_use]
    pub fn ended(mut self, end: CourseEnd) -> Self {
        if self.judgement.best().is_some() {
            return self;
        }
        let left = staying(&self).first().map(|one| self.ending_of(one));
        self.judgement.ending = match end {
            CourseEnd::NothingToSave { share } => BenchEnding::NothingToSave { share },
            CourseEnd::NoneLooksBetter => BenchEnding::NoneLooksBetter,
            CourseEnd::Proven | CourseEnd::TooClose | CourseEnd::AllMade => {
                left.unwrap_or(BenchEnding::NoneLooksBetter)
            }
        };
        self
    }

    /// Ending where this candidate was left and is not proven better.
    fn ending_of(&self, one: &CandidateFigures) -> BenchEnding {
        let gain_below = match one.answer {
            FigureAnswer::Open { gain_below } => gain_below,
            _ => f64::INFINITY,
        };
        match one.more_rounds.filter(|more| (1..=MOST_ROUNDS).contains(more)) {
            Some(more_rounds) if one.looks_better => {
                BenchEnding::LooksBetter { candidate: one.name.clone(), more_rounds }
            }
            Some(more_rounds) => BenchEnding::NotSettled { more_rounds },
            None if gain_below <= LARGEST_BOUND => BenchEnding::TooClose { gain_below },
            None => BenchEnding::TooNoisy,
        }
    }
}

/// Most runs that a course makes with this number of candidates beside `system`, and the number that is usual.
#[must_use]
pub fn runs_of_a_course(candidates: usize, looks: Looks) -> (usize, usize) {
    let first = 1 + candidates;
    let (usual, most) = (looks.first as usize, looks.most as usize);
    let later = |rounds: usize| if rounds < 2 { 0 } else { (1 + SECOND.min(candidates)) + 2 * (rounds - 2) };
    (first + later(usual), first + later(most))
}

/// Goals whose pick weighs CPU time against it.
pub(super) fn weighs_cpu(goal: Goal) -> bool {
    goal == Goal::Memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_run::{ArenaHeaps, Figure, HeldMemory, ServerRun};

    const OPTIONS: CourseOptions = CourseOptions { ignores_heaps: false, looks: Looks::SERVER };

    /// A server whose runs are made as the course wants them. `memory` and `cpu`: factors by candidate; a run deviates
    /// by `noise`, as its round and place say.
    struct Made {
        factors: [(&'static str, f64, f64); 4],
        noise: f64,
        free: u64,
    }

    impl Made {
        fn run(&self, name: &str, round: u32, number: usize) -> RawRun {
            let (_, memory, cpu) = self.factors.into_iter().find(|one| one.0 == name).unwrap();
            let deviation = self.noise * [0.3, -1.0, 0.8, -0.2, 0.5, -0.6, 0.1][number % 7];
            let figures = [
                Figure::lower("memory", 1e8 * memory * deviation.exp(), "B"),
                Figure::lower("cpu", cpu, "s"),
            ];
            let held = HeldMemory { live: 60, free_pages: self.free, ..HeldMemory::default() };
            let heaps = ArenaHeaps {
                bytes: 1000,
                main_bytes: 60 + self.free,
                held: Some(held),
                ..ArenaHeaps::default()
            };
            let server = ServerRun {
                heaps: vec![heaps],
                malloc_by: vec![C_LIBRARY.to_owned()],
                ..ServerRun::of(figures)
            };
            let at_s = number as f64;
            RawRun { candidate: name.into(), round, at_s, user_s: cpu, ..RawRun::default() }
                .with_server(server)
        }

        /// The runs, and how the course ended.
        fn course(&self, options: &CourseOptions) -> (Vec<RawRun>, CourseEnd, ServiceComparison) {
            let names = self.factors.map(|one| one.0.to_owned());
            let how = ServiceOptions { worth: 1.0, looks: Some(options.looks), ..ServiceOptions::default() };
            let mut number = 0;
            let found = FollowedCourse::of(&names, &how, options, |name, round| {
                number += 1;
                Some(self.run(name, round, number))
            });
            (found.runs, found.end.unwrap(), found.comparison)
        }
    }

    const THREE: [(&str, f64, f64); 4] =
        [("system", 1.0, 1.0), ("a", 0.7, 1.0), ("b", 0.95, 1.0), ("c", 1.2, 0.9)];

    #[test]
    fn what_has_nothing_to_save_takes_one_run() {
        let made = Made { factors: THREE, noise: 0.01, free: 19 };
        let (runs, end, comparison) = made.course(&OPTIONS);
        assert_eq!((runs.len(), end), (1, CourseEnd::NothingToSave { share: 0.019 }));
        assert_eq!(comparison.judgement.ending, BenchEnding::NothingToSave { share: 0.019 });
        let all = CourseOptions { ignores_heaps: true, ..OPTIONS };
        assert_eq!(made.course(&all).1, CourseEnd::Proven, "--all goes on");
        assert_eq!(Made { free: 21, ..made }.course(&OPTIONS).1, CourseEnd::Proven);
    }

    #[test]
    fn the_best_stays_until_it_is_proven() {
        let made = Made { factors: THREE, noise: 0.01, free: 100 };
        let (runs, end, comparison) = made.course(&OPTIONS);
        assert_eq!((end, comparison.pick()), (CourseEnd::Proven, "a"));
        let of = |name: &str| runs.iter().filter(|run| run.candidate == name).count();
        assert_eq!((of("system"), of("a"), of("c")), (3, 3, 1), "{} runs", runs.len());
        assert!(of("b") < 3);
    }

    #[test]
    fn where_none_looks_better_each_has_one_run() {
        let equal = [("system", 1.0, 1.0), ("a", 0.99, 1.0), ("b", 1.0, 1.0), ("c", 1.3, 0.9)];
        let (runs, end, comparison) = Made { factors: equal, noise: 0.001, free: 100 }.course(&OPTIONS);
        assert_eq!((runs.len(), end), (4, CourseEnd::NoneLooksBetter));
        assert_eq!(comparison.judgement.ending, BenchEnding::NoneLooksBetter);
    }

    /// 20 % less memory for 30 % more CPU is not worth it, where 10 % for none is.
    #[test]
    fn cpu_has_its_price() {
        let dear = [("system", 1.0, 1.0), ("a", 0.8, 1.3), ("b", 0.9, 1.0), ("c", 1.2, 0.9)];
        let (_, end, comparison) = Made { factors: dear, noise: 0.002, free: 100 }.course(&OPTIONS);
        assert_eq!((end, comparison.pick()), (CourseEnd::Proven, "b"));
    }

    #[test]
    fn noise_ends_within_the_rounds_that_may_be_made() {
        let (runs, end, comparison) = Made { factors: THREE, noise: 0.6, free: 100 }.course(&OPTIONS);
        assert!(runs.len() <= runs_of_a_course(3, Looks::SERVER).1, "{} runs", runs.len());
        assert!(end != CourseEnd::Proven && comparison.pick() == SYSTEM, "{end:?}");
        assert_eq!(runs_of_a_course(3, Looks { first: 3, most: 8 }), (9, 19));
    }

    /// A heap that nobody looked at, or another malloc, says nothing; a static program has no heap that is reached.
    #[test]
    fn only_what_is_known_ends_a_bench() {
        let mut run = Made { factors: THREE, noise: 0.0, free: 0 }.run(SYSTEM, 0, 0);
        let by = |run: &mut RawRun, names: &[&str]| {
            let malloc_by = names.iter().map(|name| (*name).to_owned()).collect();
            run.set_server(ServerRun { malloc_by, ..run.of_server().clone() });
        };
        assert_eq!(saving(&run), Some(0.0));
        by(&mut run, &[C_LIBRARY, "libjemalloc.so.2"]);
        assert_eq!(saving(&run), None);
        by(&mut run, &[STATIC]);
        assert_eq!(saving(&run), Some(0.0));
        by(&mut run, &[C_LIBRARY]);
        run.set_server(ServerRun { heaps: vec![ArenaHeaps::default()], ..run.of_server().clone() });
        assert_eq!(saving(&run), None);
    }
}
