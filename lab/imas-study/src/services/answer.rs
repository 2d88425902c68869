// SPDX-License-Identifier: Apache-2.0
//! How many runs a bench of a server takes to its answer, and what the answer gains: the course of `imas bench` itself,
//! followed on stored runs, beside the rule before it and single settings for all.
//!
//! Each round judges a bench that was made of the others. The bench takes them in the order that follows the judging
//! round; a candidate that left early has fewer rounds, so its n-th round is the n-th that it has. Each run stands beside
//! one run under `system` of its own round, as in a bench.

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::compare::Looks;
use imas_core::judgement::Goal;
use imas_core::run::RawRun;
use imas_core::server_bench::course::{CourseEnd, CourseOptions, FollowedCourse};
use imas_core::server_bench::{GuardRail, ServiceOptions, usual_rails};
use imas_core::server_run::{Failure, Figure, ServerRun, Stage};
use imas_core::stats::{Interval, median};
use serde::Serialize;

use crate::services::judge::{HeldOutPicks, JUDGED, change, geometric_mean};
use crate::services::pick_rule::PickRule;
use crate::services::round_changes::RoundChanges;

/// Resamples of an interval: it is asked thousands of times.
const RESAMPLES: usize = 200;
/// The figures of a bench that is followed.
const FIGURES: [&str; 4] = ["memory", "memory_idle", "cpu", "p99"];

/// Candidates and rules that are compared.
#[derive(Debug, Clone)]
pub struct AnswerOptions {
    /// The candidates of a bench beside `system`.
    pub candidates: Vec<String>,
    /// Worth of CPU time, as in [`ServiceOptions::worth`].
    pub worth: f64,
    /// Limits of the rule before, as `imas bench` had them.
    pub old_rails: Vec<GuardRail>,
}

impl AnswerOptions {
    /// How a followed bench compares.
    #[must_use]
    pub fn how(&self) -> ServiceOptions {
        let (goal, looks) = (Goal::Memory, Some(Looks::SERVER));
        ServiceOptions {
            goal,
            rails: usual_rails(goal),
            worth: self.worth,
            seed: 1,
            resamples: RESAMPLES,
            looks,
        }
    }

    /// The course of a followed bench.
    #[must_use]
    pub fn course(&self) -> CourseOptions {
        CourseOptions { ignores_heaps: false, looks: Looks::SERVER }
    }
}

/// One rule over all services.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct AnswerRow {
    /// The rule.
    pub rule: String,
    /// Runs of a bench, mean over services and judging rounds.
    pub runs: f64,
    /// Services that were judged.
    pub services: usize,
    /// Ratios to `system` in the order of [`JUDGED`], geometric means over the services.
    pub ratios: [Option<Interval>; JUDGED.len()],
    /// Bytes saved under load and after the pause, and all bytes of these services under `system`.
    pub saved: [[f64; 2]; 2],
}

/// How one service's bench went.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct ServiceAnswer {
    /// The service.
    pub service: String,
    /// Runs to the answer, one number for each judging round.
    pub runs: Vec<usize>,
    /// The picks, each once, the most frequent first.
    pub picks: Vec<String>,
    /// How the benches ended, each way once.
    pub ends: Vec<String>,
    /// Ratios to `system` in the order of [`JUDGED`].
    pub ratios: [Option<f64>; JUDGED.len()],
}

/// All rules, and each service by the course.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct Answers {
    /// The rules.
    pub rows: Vec<AnswerRow>,
    /// The services.
    pub services: Vec<ServiceAnswer>,
}

impl Answers {
    /// Judges the rules on the runs of a journal.
    #[must_use]
    pub fn of(runs: &[RawRun], options: &AnswerOptions) -> Self {
        let mut services: Vec<Benches> = RoundChanges::of_all(runs)
            .into_iter()
            .filter(|changes| changes.rounds.len() > 1)
            .map(|changes| Benches::of(changes, runs, options))
            .collect();
        services.retain(|one| !one.set.is_empty());
        let fixed = ["glibc:arena1", "glibc:lean", "glibc:lean-trim", "jemalloc:trim"];
        let mut rows = vec![
            row("imas bench", &services, |one| (one.course.as_ref(), mean_runs(&one.runs))),
            row("imas bench before", &services, |one| (one.before.as_ref(), one.runs_before)),
        ];
        let of_setting = |(at, name): (usize, &str)| {
            row(&format!("{name} for all"), &services, |one| (one.fixed[at].as_ref(), 0.0))
        };
        rows.extend(fixed.into_iter().enumerate().map(of_setting));
        Self { rows, services: services.into_iter().filter_map(Benches::answer).collect() }
    }

    /// The rules as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            "rule",
            "runs",
            "services",
            "memory",
            "after the pause",
            "CPU",
            "p99",
            "MiB saved",
            "after the pause",
        ];
        let mut table = Table::new("answers", "Rules on rounds that did not choose", &columns);
        for row in &self.rows {
            let ratio = |figure: &str| {
                let at = JUDGED.iter().position(|judged| *judged == figure);
                change(at.and_then(|at| row.ratios[at]))
            };
            let saved = |[saved, all]: [f64; 2]| format!("{} of {}", format::mib(saved), format::mib(all));
            table.push(vec![
                row.rule.clone(),
                format!("{:.1}", row.runs),
                row.services.to_string(),
                ratio("memory"),
                ratio("memory_idle"),
                ratio("cpu"),
                ratio("p99"),
                saved(row.saved[0]),
                saved(row.saved[1]),
            ]);
        }
        table
    }

    /// Each service by the course.
    #[must_use]
    pub fn each(&self) -> Table {
        let columns = ["service", "runs", "picks", "memory", "after the pause", "CPU", "ends"];
        let mut table = Table::new("each-answer", "Runs to the answer", &columns);
        for one in &self.services {
            let ratio = |figure: &str| {
                let at = JUDGED.iter().position(|judged| *judged == figure);
                let ratio = at.and_then(|at| one.ratios[at]);
                ratio.map_or_else(|| "-".to_owned(), format::percent)
            };
            let runs: Vec<String> = one.runs.iter().map(ToString::to_string).collect();
            table.push(vec![
                one.service.clone(),
                runs.join(" "),
                one.picks.join(" "),
                ratio("memory"),
                ratio("memory_idle"),
                ratio("cpu"),
                one.ends.join(", "),
            ]);
        }
        table
    }

    /// Share of the services whose bench takes at most `runs` runs, by the middle of its judging rounds.
    #[must_use]
    pub fn within(&self, runs: usize) -> (usize, usize) {
        let middle =
            |one: &ServiceAnswer| median(&one.runs.iter().map(|runs| *runs as f64).collect::<Vec<_>>());
        let is_within = |one: &&ServiceAnswer| middle(one).is_some_and(|middle| middle <= runs as f64);
        (self.services.iter().filter(is_within).count(), self.services.len())
    }
}

/// The benches of one service.
struct Benches {
    service: String,
    /// The candidates that it has of those that are compared.
    set: Vec<usize>,
    /// Runs and ends of the followed courses.
    runs: Vec<usize>,
    ends: Vec<String>,
    course: Option<HeldOutPicks>,
    before: Option<HeldOutPicks>,
    /// Runs that the journal has of the candidates and `system`.
    runs_before: f64,
    fixed: [Option<HeldOutPicks>; 4],
    /// Memory under `system` under load and after the pause, bytes.
    bytes: [Option<f64>; 2],
}

impl Benches {
    fn of(changes: RoundChanges, runs: &[RawRun], options: &AnswerOptions) -> Self {
        let own: Vec<&RawRun> = runs.iter().filter(|run| run.program == changes.service).collect();
        let at = |name: &str| changes.candidates.iter().position(|one| one == name);
        let set: Vec<usize> = options.candidates.iter().filter_map(|name| at(name)).collect();
        let (mut counts, mut ends) = (vec![], vec![]);
        let course = HeldOutPicks::of(&changes, |judging, others| {
            let followed = followed(&changes, &own, &set, judging, others, options);
            counts.push(followed.runs.len());
            ends.push(followed.end.map_or("no more rounds", in_words).to_owned());
            at(followed.comparison.pick())
        });
        let rule = PickRule {
            goal: Goal::Memory,
            rails: options.old_rails.clone(),
            least_gain: imas_core::compare::Margins::USUAL.memory,
            needs_proof: true,
            resamples: RESAMPLES,
        };
        let of_set = |others: &[u32]| {
            let scores = set.iter().filter_map(|one| Some((rule.score(&changes, *one, others)?, *one)));
            scores.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, one)| one)
        };
        let fixed = ["glibc:arena1", "glibc:lean", "glibc:lean-trim", "jemalloc:trim"]
            .map(|name| at(name).and_then(|one| HeldOutPicks::of(&changes, |_, _| Some(one))));
        let is_of_bench =
            |run: &&&RawRun| run.candidate == SYSTEM || options.candidates.contains(&run.candidate);
        let system = |figure: &str| {
            let own = own.iter().filter(|run| run.candidate == SYSTEM && run.ok);
            median(&own.filter_map(|run| run.value(figure)).collect::<Vec<_>>())
        };
        ends.sort_unstable();
        ends.dedup();
        Self {
            runs_before: own.iter().filter(is_of_bench).count() as f64,
            bytes: [system("memory"), system("memory_idle")],
            before: HeldOutPicks::of(&changes, |_, others| of_set(others)),
            service: changes.service.clone(),
            runs: counts,
            ends,
            course,
            fixed,
            set,
        }
    }

    fn answer(self) -> Option<ServiceAnswer> {
        let course = self.course?;
        Some(ServiceAnswer {
            service: self.service,
            runs: self.runs,
            picks: course.candidates,
            ends: self.ends,
            ratios: course.ratios,
        })
    }
}

fn in_words(end: CourseEnd) -> &'static str {
    match end {
        CourseEnd::NothingToSave { .. } => "nothing to save",
        CourseEnd::NoneLooksBetter => "none looks better",
        CourseEnd::Proven => "proven",
        CourseEnd::TooClose => "too close",
        CourseEnd::AllMade => "all made",
    }
}

fn mean_runs(runs: &[usize]) -> f64 {
    runs.iter().sum::<usize>() as f64 / runs.len().max(1) as f64
}

fn row<'a>(
    rule: &str,
    services: &'a [Benches],
    of: impl Fn(&'a Benches) -> (Option<&'a HeldOutPicks>, f64),
) -> AnswerRow {
    let judged: Vec<(&Benches, &HeldOutPicks, f64)> = services
        .iter()
        .filter_map(|one| {
            let (picks, runs) = of(one);
            Some((one, picks?, runs))
        })
        .collect();
    let ratios = |at: usize| -> Option<Interval> {
        geometric_mean(&judged.iter().filter_map(|(_, picks, _)| picks.ratios[at]).collect::<Vec<_>>())
    };
    let saved = |which: usize, figure: &str| {
        let at = JUDGED.iter().position(|judged| *judged == figure);
        let each = judged.iter().filter_map(|(one, picks, _)| {
            let bytes = one.bytes[which]?;
            Some((bytes * (1.0 - picks.ratios[at?]?), bytes))
        });
        each.fold([0.0; 2], |sum, (saved, all)| [sum[0] + saved, sum[1] + all])
    };
    AnswerRow {
        rule: rule.to_owned(),
        runs: judged.iter().map(|(.., runs)| runs).sum::<f64>() / judged.len().max(1) as f64,
        services: judged.len(),
        ratios: std::array::from_fn(ratios),
        saved: [saved(0, "memory"), saved(1, "memory_idle")],
    }
}

/// The course of a bench that has the rounds beside the judging one, in the order that follows it.
fn followed(
    changes: &RoundChanges,
    own: &[&RawRun],
    set: &[usize],
    judging: u32,
    others: &[u32],
    options: &AnswerOptions,
) -> FollowedCourse {
    let mut order: Vec<u32> = others.to_vec();
    order.sort_unstable();
    let first = order.iter().position(|round| *round > judging).unwrap_or(0);
    order.rotate_left(first);
    let names: Vec<String> = std::iter::once(SYSTEM.to_owned())
        .chain(set.iter().map(|at| changes.candidates[*at].clone()))
        .collect();
    let mut number = 0.0;
    FollowedCourse::of(&names, &options.how(), &options.course(), |name, round| {
        number += 1.0;
        let run = RawRun { candidate: name.to_owned(), round, at_s: number, ..RawRun::default() };
        let candidate = changes.candidates.iter().position(|one| one == name);
        match candidate {
            None => {
                let real = *order.get(round as usize)?;
                Some(of_system(run, changes, own, real))
            }
            Some(at) => of_candidate(run, changes, at, &order, round as usize),
        }
    })
}

/// The reference of a round: 100 by each figure that was measured, with the look into the heaps that its run had.
fn of_system(run: RawRun, changes: &RoundChanges, own: &[&RawRun], real: u32) -> RawRun {
    let figures = FIGURES.into_iter().filter(|figure| changes.is_measured(figure));
    let mut server = ServerRun::of(figures.map(|figure| Figure::lower(figure, 100.0, "x")));
    let looked = own.iter().find(|run| run.candidate == SYSTEM && run.round == real && run.ok);
    if let Some(looked) = looked {
        let looked = looked.of_server();
        server.heaps.clone_from(&looked.heaps);
        server.heaps_idle.clone_from(&looked.heaps_idle);
        server.malloc_by.clone_from(&looked.malloc_by);
    }
    RawRun { user_s: 100.0, ..run }.with_server(server)
}

/// The `nth` run that a candidate has in these rounds, beside one run under `system` of its round.
fn of_candidate(run: RawRun, changes: &RoundChanges, at: usize, order: &[u32], nth: usize) -> Option<RawRun> {
    let is_made =
        |round: &&u32| changes.has_failed(at, &[**round]) || changes.change(at, **round, "memory").is_some();
    let real = *order.iter().filter(is_made).nth(nth)?;
    if changes.has_failed(at, &[real]) {
        let failure = Some(Failure::new(Stage::Died, "it failed".to_owned()));
        return Some(run.with_server(ServerRun { failure, ..ServerRun::default() }));
    }
    let beside = changes.references(real).first();
    let of = |figure: &'static str| {
        let system = beside.and_then(|beside| beside.get(figure)).copied().unwrap_or(0.0);
        Some((figure, 100.0 * (changes.change(at, real, figure)? - system).exp()))
    };
    let figures: Vec<(&str, f64)> = FIGURES.into_iter().filter_map(of).collect();
    let cpu = figures.iter().find(|(figure, _)| *figure == "cpu").map_or(100.0, |(_, cpu)| *cpu);
    let figures = figures.into_iter().map(|(figure, value)| Figure::lower(figure, value, "x"));
    Some(RawRun { user_s: cpu, ..run }.with_server(ServerRun::of(figures)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(candidate: &str, round: u32, memory: f64, cpu: f64) -> RawRun {
        let figures = [("memory", memory), ("memory_idle", memory), ("cpu", cpu)];
        let server = ServerRun::of(figures.map(|(name, value)| Figure::lower(name, value, "B")));
        let at_s = f64::from(round);
        RawRun {
            program: "s".into(),
            candidate: candidate.into(),
            round,
            at_s,
            user_s: cpu,
            ..RawRun::default()
        }
        .with_server(server)
    }

    /// `a` is the pick of a bench that does not begin with the odd round, in which it takes as much as `system`.
    #[test]
    fn the_course_is_judged_on_the_round_that_it_did_not_see() {
        let ratios = [1.0, 0.70, 0.71, 0.69, 0.705, 0.7];
        let of = |(round, ratio): (u32, f64)| {
            [
                run("system", round, 100e6, 1.0),
                run("a", round, 100e6 * ratio, 1.0),
                run("b", round, 110e6, 1.0),
            ]
        };
        let runs: Vec<RawRun> = (0..).zip(ratios).flat_map(of).collect();
        let options = AnswerOptions {
            candidates: vec!["a".into(), "b".into()],
            worth: 1.0,
            old_rails: vec!["cpu+2%".parse().unwrap()],
        };
        let found = Answers::of(&runs, &options);
        let one = &found.services[0];
        assert_eq!(one.runs.len(), 6);
        assert_eq!(one.runs[0], 7, "three rounds of a, one of b");
        assert_eq!(one.picks[0], "a");
        assert_eq!(found.rows[0].rule, "imas bench");
        let judged = one.ratios[0].unwrap();
        // Benches with the odd round among their first three prove nothing; of the three that pick `a`, one is judged by it.
        let expected = (0.70_f64 * 0.71).powf(1.0 / 6.0);
        assert!((judged - expected).abs() < 1e-6, "{judged}, not {expected}");
        assert_eq!(found.within(7), (1, 1));
    }
}
