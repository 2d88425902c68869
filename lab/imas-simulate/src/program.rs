// SPDX-License-Identifier: Apache-2.0
//! The data of one program in the laboratory: rounds of runs, from a data set or synthetic, and the cost of each candidate
//! on some of them, beside `system` in the same rounds.

use std::collections::BTreeMap;

use imas_core::adaptive::Point;
use imas_core::candidate::{CountedSample, SYSTEM};
use imas_core::pace::{PaceCorrection, Paced};
use imas_core::printable;
use imas_core::raw_runs::data::Data;
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::median;

/// A program to replay. Every inner list has one entry per candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulatedProgram {
    /// Name of the program.
    pub name: String,
    /// Candidates; `system` is the first.
    pub candidates: Vec<String>,
    /// Measured rounds; in rounds of a data set every candidate has its figures, in made-up ones None is a
    /// trial without.
    pub rounds: Vec<Vec<Option<Point>>>,
    /// Counted rounds, which `paper` looks at.
    pub counted: Vec<Vec<Option<CountedSample>>>,
    /// The counted rounds are the measured ones, number by number, as in a store: of them, too, a policy sees
    /// only those it may see.
    pub same_runs: bool,
    /// True costs of each candidate over `system`, where known.
    pub truth: Option<Vec<Point>>,
}

/// A program that cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExcludedProgram {
    /// Name of the program.
    pub name: String,
    /// Reason why the program cannot be replayed.
    pub why: String,
}

/// Fewest complete rounds: two to be seen and two that judge.
pub const MIN_ROUNDS: usize = 4;

/// The programs of a data set by name, and those that cannot be replayed. A candidate that ever failed with a
/// program (crash, timeout, other exit or output) is out for it. Counted rounds need `system`; a candidate
/// without runs of its own in them is none that `paper` can pick.
pub fn programs(data: &Data) -> (Vec<SimulatedProgram>, Vec<ExcludedProgram>) {
    let mut by_name: BTreeMap<&str, Vec<&RawRun>> = BTreeMap::new();
    for run in &data.runs {
        by_name.entry(&run.program).or_default().push(run);
    }
    let (mut programs, mut left_out) = (vec![], vec![]);
    let mut dropped = data.dropped();
    for (name, runs) in by_name {
        let dropped = dropped.remove(name);
        match program(name, &runs) {
            Ok((program, scarce)) => {
                programs.push(program);
                left_out.extend(scarce);
            }
            Err(why) => left_out
                .push(ExcludedProgram { name: name.to_owned(), why: dropped.map_or(why, str::to_owned) }),
        }
    }
    let never_ran = dropped.into_iter();
    left_out
        .extend(never_ran.map(|(name, why)| ExcludedProgram { name: name.to_owned(), why: why.to_owned() }));
    (programs, left_out)
}

/// The program, and its candidates that have too few runs.
fn program(name: &str, runs: &[&RawRun]) -> Result<(SimulatedProgram, Vec<ExcludedProgram>), String> {
    let candidates = candidates(runs);
    if candidates.first().is_none_or(|first| first != SYSTEM) {
        let failed = runs.iter().find(|run| run.candidate == SYSTEM && !run.ok);
        return Err(
            match failed.map(|run| run.why.clone().unwrap_or_else(|| format!("exit {}", run.exit))) {
                Some(why) => format!("it fails under system itself ({why})"),
                None => "no run under system counts".to_owned(),
            },
        );
    }
    if candidates.len() < 2 {
        return Err("no candidate beside system".to_owned());
    }
    let even = pace_correction(runs, &candidates);
    let point = |run: &RawRun| Point::new(even.cpu_s(paced(run)), run.mean_bytes as f64);
    let rounds = self::rounds(runs, &candidates, RunKind::Measured, point);
    let Complete { stays, rounds, scarce } = complete(candidates.len(), rounds);
    let named = |&(i, rounds): &(usize, usize)| ExcludedProgram {
        name: format!("{name} under {}", candidates[i]),
        why: format!("figures in {rounds} of its rounds only"),
    };
    let scarce = scarce.iter().map(named).collect();
    let candidates: Vec<String> = stays.iter().map(|&i| candidates[i].clone()).collect();
    if rounds.len() < MIN_ROUNDS {
        return Err(format!(
            "{} with figures of CPU and memory for every candidate, {MIN_ROUNDS} are needed",
            printable::counted(rounds.len(), "round")
        ));
    }
    let counted = self::rounds(runs, &candidates, RunKind::Counted, counted);
    let has_system = |round: &Vec<Option<CountedSample>>| round[0].is_some();
    let program = SimulatedProgram {
        name: name.to_owned(),
        counted: counted.into_iter().filter(has_system).collect(),
        same_runs: false,
        rounds,
        candidates,
        truth: None,
    };
    Ok((program, scarce))
}

/// Rounds in which every candidate has figures.
struct Complete<T> {
    /// Indices of the candidates that stay.
    stays: Vec<usize>,
    /// Figures by round, then by candidate of `stays`.
    rounds: Vec<Vec<Option<T>>>,
    /// The other candidates, each with the number of rounds in which it has figures.
    scarce: Vec<(usize, usize)>,
}

/// Candidates with figures in most rounds, and the rounds that have them all: in one that was interrupted, or
/// made before a candidate joined, a policy would take what was never run for a trial that failed. Where too
/// few rounds are left, the candidate that is there least goes.
fn complete<T: Clone>(candidates: usize, mut rounds: Vec<Vec<Option<T>>>) -> Complete<T> {
    rounds.retain(|round| round[0].is_some() && round.iter().flatten().count() > 1);
    let figures = |i: usize| rounds.iter().filter(|round| round[i].is_some()).count();
    let common = |of: &[usize]| rounds.iter().filter(|round| of.iter().all(|&i| round[i].is_some())).count();
    let mut stays: Vec<usize> = (0..candidates).filter(|&i| 2 * figures(i) > rounds.len()).collect();
    while stays.len() > 2 && common(&stays) < MIN_ROUNDS {
        let rarest = (1..stays.len()).min_by_key(|&at| figures(stays[at])).unwrap_or(1);
        stays.remove(rarest);
    }
    let scarce = (0..candidates).filter(|i| !stays.contains(i)).map(|i| (i, figures(i))).collect();
    let of_those = |round: &Vec<Option<T>>| stays.iter().map(|&i| round[i].clone()).collect::<Vec<_>>();
    let rounds = rounds.iter().map(of_those).filter(|round| round.iter().all(Option::is_some)).collect();
    Complete { stays, rounds, scarce }
}

fn paced(run: &RawRun) -> Paced {
    (run.user_s + run.system_s, run.pace)
}

/// Correction that is fitted to all measured rounds, also those that will judge. That is fair, because the
/// fit does not use the candidates.
fn pace_correction(runs: &[&RawRun], candidates: &[String]) -> PaceCorrection {
    let is_measured = |run: &&&RawRun| run.kind == RunKind::Measured && run.ok;
    let of = |name: &String| {
        let mine = runs.iter().filter(is_measured).filter(|run| run.candidate == *name);
        mine.map(|run| paced(run)).collect()
    };
    PaceCorrection::fit(&candidates.iter().map(of).collect::<Vec<_>>())
}

/// Names of the candidates, `system` first, then in the order of `place`. Candidates that failed are left
/// out. So are candidates that were counted only: nothing could judge them as a pick.
fn candidates(runs: &[&RawRun]) -> Vec<String> {
    let failed = |name: &str| runs.iter().any(|run| run.candidate == name && !run.ok);
    let mut names: Vec<String> = vec![];
    for run in runs.iter().filter(|run| run.ok && run.kind == RunKind::Measured) {
        if !names.contains(&run.candidate) && !failed(&run.candidate) {
            names.push(run.candidate.clone());
        }
    }
    // The order must not depend on the seed of the first round; the order of `paper` does matter to its result.
    names.sort_by_key(|name| (name != SYSTEM, place(name), name.clone()));
    names
}

/// Order of these among themselves; the rest follow by name. It is the data set's, not the order of today's
/// default set: a printed table must come out again when the default set has changed.
fn place(name: &str) -> usize {
    const ORDER: [&str; 6] = [SYSTEM, "glibc:arena1", "jemalloc", "tcmalloc", "hoard", "mimalloc"];
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

/// Figures of the valid runs of one kind, by round, then by candidate.
fn rounds<T: Clone>(
    runs: &[&RawRun],
    candidates: &[String],
    kind: RunKind,
    figures: impl Fn(&RawRun) -> Option<T>,
) -> Vec<Vec<Option<T>>> {
    let mut rounds: BTreeMap<u32, Vec<Option<T>>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.kind == kind && run.ok) {
        let Some(at) = candidates.iter().position(|name| *name == run.candidate) else { continue };
        rounds.entry(run.round).or_insert_with(|| vec![None; candidates.len()])[at] = figures(run);
    }
    rounds.into_values().collect()
}

fn counted(run: &RawRun) -> Option<CountedSample> {
    Some(CountedSample { ns_per_op: run.ns_per_op?, frag: run.frag?, heap_bytes: run.heap_bytes? as f64 })
}

/// Excess of a candidate over `system`, logarithms: median over the rounds, axis by axis. None when it has no
/// run in them.
pub fn cost(program: &SimulatedProgram, rounds: &[usize], candidate: usize) -> Option<Point> {
    let excess = |&round: &usize| Some(program.rounds[round][candidate]?.over(program.rounds[round][0]?));
    let points: Vec<Point> = rounds.iter().filter_map(excess).collect();
    let axis = |get: fn(&Point) -> f64| median(&points.iter().map(get).collect::<Vec<_>>());
    Some(Point { cpu: axis(|p| p.cpu)?, memory: axis(|p| p.memory)? })
}

/// Index of the candidate that these rounds call the best at weight `w` of CPU, without margin or proof. None
/// without rounds.
pub fn best(program: &SimulatedProgram, rounds: &[usize], w: f64) -> Option<usize> {
    let scored = |i| Some((i, cost(program, rounds, i)?.score(w)));
    let scores = (0..program.candidates.len()).filter_map(scored);
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    use imas_core::raw_runs::data::read;

    fn run(candidate: &str, kind: &str, round: usize) -> String {
        format!(
            "{{\"program\":\"p\",\"candidate\":\"{candidate}\",\"kind\":\"{kind}\",\"ok\":true,\"round\":{round},\"user_s\":1,\"mean_bytes\":9,\"ns_per_op\":1,\"frag\":0.1,\"heap_bytes\":10}}\n"
        )
    }

    /// Six rounds: the last was interrupted; `late` joined after the first, `rare` was there twice.
    #[test]
    fn rounds_that_lack_a_candidate_are_no_rounds() {
        let here = |name: &str, round: usize| match name {
            "late" => (1..5).contains(&round),
            "rare" => round < 2,
            _ => true,
        };
        let names = ["system", "a", "late", "rare"];
        let runs = (0..6).flat_map(|round| names.map(|name| (name, round)));
        let text: String = runs
            .filter(|(name, round)| here(name, *round))
            .map(|(name, round)| run(name, "measured", round))
            .collect();
        let (programs, left_out) = programs(&read(&text));
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(
            left_out[0].name == "p under rare" && left_out[0].why.contains("2 of its rounds"),
            "{left_out:?}"
        );
        assert_eq!(programs[0].candidates, ["system", "a", "late"]);
        assert_eq!(programs[0].rounds.len(), 4);
        assert!(programs[0].rounds.iter().flatten().all(Option::is_some));
    }

    /// Measured rounds with the candidates that `names` returns for each.
    fn measured(rounds: usize, names: impl Fn(usize) -> Vec<&'static str>) -> String {
        let of = |round| names(round).into_iter().map(move |name| run(name, "measured", round));
        (0..rounds).flat_map(of).collect()
    }

    /// Six rounds, `a` in the first four, `b` in the last four: with both there would be two.
    #[test]
    fn the_rarest_candidate_is_left_out_where_few_rounds_have_all() {
        let names = |round: usize| match round {
            0 | 1 => vec!["system", "a"],
            2 | 3 => vec!["system", "a", "b"],
            _ => vec!["system", "b"],
        };
        let (programs, left_out) = programs(&read(&measured(6, names)));
        assert_eq!((programs[0].candidates.len(), programs[0].rounds.len(), left_out.len()), (2, 4, 1));
    }

    /// Twelve rounds. `late` is in five of them only, and the other seven must not be dropped for it.
    #[test]
    fn a_candidate_of_few_rounds_removes_no_round() {
        let names = |round| if round < 7 { vec!["system", "a"] } else { vec!["system", "a", "late"] };
        let (programs, left_out) = programs(&read(&measured(12, names)));
        assert_eq!((programs[0].candidates.len(), programs[0].rounds.len(), left_out.len()), (2, 12, 1));
    }

    #[test]
    fn a_name_with_counted_runs_only_is_no_candidate() {
        let measured = (0..4).flat_map(|round| ["system", "a"].map(|name| run(name, "measured", round)));
        let counted = (0..2).flat_map(|round| ["system", "a", "b"].map(|name| run(name, "counted", round)));
        let (programs, left_out) = programs(&read(&measured.chain(counted).collect::<String>()));
        assert!(left_out.is_empty(), "{left_out:?}");
        assert_eq!(programs[0].candidates, ["system", "a"]);
        assert!(programs[0].counted.iter().all(|round| round.len() == 2));
    }
}
