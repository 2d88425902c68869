// SPDX-License-Identifier: Apache-2.0
//! Summary of the raw runs: figures, intervals and verdicts. It is recomputed each time; nothing of it is
//! stored.

use std::collections::{BTreeMap, BTreeSet};

use imas_core::bench::{CandidateRuns, Comparison, Options, compare, prepare};
use imas_core::candidate::SYSTEM;
use imas_core::raw_runs::data::Dropped;
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::{geometric_mean, median, relative_spread};
use serde::Serialize;

/// The summary of all runs.
#[derive(Debug, Clone, Serialize)]
pub struct SuiteSummary {
    /// Summaries of the programs, in the order of their names.
    pub programs: Vec<ProgramSummary>,
    /// One entry per candidate but `system`, in the order of their names.
    pub overall: Vec<Overall>,
    /// Candidates that were left out of a program, and why.
    pub troubles: Vec<Trouble>,
    /// Programs that were left out as a whole, and why: missing, failing under `system` itself.
    pub left_out: BTreeMap<String, String>,
    /// Median over the programs of the half-width of the 95 % interval of `system`'s own CPU time, relative
    /// to it; None with too few runs. What is smaller than this cannot be distinguished from noise.
    pub noise: Option<f64>,
}

/// Summary of one program.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramSummary {
    /// Name in the suite.
    pub name: String,
    /// Number of valid runs of `system`.
    pub rounds: usize,
    /// Every candidate compared with `system`. A candidate with trouble has no runs here.
    pub comparison: Comparison,
    /// The candidates that were left out: name and keyword of the trouble.
    pub left_out: BTreeMap<String, String>,
    /// Half-width of the 95 % interval of `system`'s CPU time, relative to it.
    pub noise: Option<f64>,
}

/// One candidate for all programs: geometric means of the ratios to `system`.
#[derive(Debug, Clone, Serialize)]
pub struct Overall {
    /// Name in the catalogue.
    pub candidate: String,
    /// Programs that the candidate ran as they should.
    pub programs: usize,
    /// Programs that the candidate is left out of.
    pub left_out: usize,
    /// CPU time as a ratio to `system`.
    pub cpu: Option<f64>,
    /// Resident memory as a ratio to `system`.
    pub memory: Option<f64>,
}

/// The invalid runs of one candidate and program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Name in the suite.
    pub program: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// timeout, crash, exit, output, check, ready, load or counts.
    pub why: String,
    /// Number of runs that ended so.
    pub runs: usize,
    /// Number of all runs.
    pub of: usize,
    /// Message of the last such run.
    pub message: String,
}

impl SuiteSummary {
    /// Summarises the runs and the programs that were left out. Counted runs are checked for trouble only,
    /// because counting costs CPU time.
    #[must_use]
    pub fn of(lines: &[RawRun], dropped: &Dropped, seed: u64) -> Self {
        let mut by_program: BTreeMap<&str, Vec<&RawRun>> = BTreeMap::new();
        for line in lines {
            by_program.entry(&line.program).or_default().push(line);
        }
        let troubles: Vec<Trouble> = by_program.values().flat_map(|lines| troubles(lines)).collect();
        let programs: Vec<ProgramSummary> =
            by_program.iter().map(|(name, lines)| program(name, lines, &troubles, seed)).collect();
        let noise: Vec<f64> = programs.iter().filter_map(|program| program.noise).collect();
        let owned = |(name, why): (&str, &str)| (name.to_owned(), why.to_owned());
        let left_out = dropped.reasons().into_iter().map(owned).collect();
        Self { overall: overall(&programs), noise: median(&noise), programs, troubles, left_out }
    }
}

fn troubles(lines: &[&RawRun]) -> Vec<Trouble> {
    let mut found: BTreeMap<(&str, &str), Trouble> = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.ok) {
        let why = line.why.as_deref().unwrap_or("unknown");
        let trouble = found.entry((&line.candidate, why)).or_insert_with(|| Trouble {
            program: line.program.clone(),
            candidate: line.candidate.clone(),
            why: why.to_owned(),
            runs: 0,
            of: lines.iter().filter(|other| other.candidate == line.candidate).count(),
            message: line.message.clone().unwrap_or_default(),
        });
        trouble.runs += 1;
    }
    found.into_values().collect()
}

fn program(name: &str, lines: &[&RawRun], troubles: &[Trouble], seed: u64) -> ProgramSummary {
    let left_out: BTreeMap<String, String> = troubles
        .iter()
        .filter(|trouble| trouble.program == name)
        .map(|trouble| (trouble.candidate.clone(), trouble.why.clone()))
        .collect();
    let measured = || lines.iter().filter(|line| line.kind == RunKind::Measured && line.ok);
    let mut names: BTreeSet<&str> = lines.iter().map(|line| line.candidate.as_str()).collect();
    names.remove(SYSTEM);
    let mut runs: Vec<CandidateRuns> = std::iter::once(SYSTEM)
        .chain(names)
        .map(|name| {
            // One invalid run excludes the candidate: the average of its other runs would hide the trouble.
            let mine = measured().filter(|line| line.candidate == name && !left_out.contains_key(name));
            CandidateRuns { name: name.to_owned(), runs: mine.copied().cloned().collect() }
        })
        .collect();
    prepare(&mut runs);
    let options = Options { seed, ..Options::default() };
    let cpu: Vec<f64> = runs[0].runs.iter().map(RawRun::compared_cpu_s).collect();
    ProgramSummary {
        name: name.to_owned(),
        rounds: cpu.len(),
        noise: relative_spread(&cpu, options.resamples, seed),
        comparison: compare(&runs, &options),
        left_out,
    }
}

fn overall(programs: &[ProgramSummary]) -> Vec<Overall> {
    let names: BTreeSet<&str> =
        programs.iter().flat_map(|p| p.comparison.candidates.iter().map(|c| c.name.as_str())).collect();
    let of = |name: &str| {
        let found: Vec<_> =
            programs.iter().filter_map(|p| p.comparison.candidates.iter().find(|c| c.name == name)).collect();
        let cpu: Vec<f64> = found.iter().filter_map(|c| Some(c.ratio.cpu?.mid)).collect();
        let memory: Vec<f64> = found.iter().filter_map(|c| Some(c.ratio.memory?.mid)).collect();
        Overall {
            candidate: name.to_owned(),
            programs: cpu.len(),
            left_out: programs.iter().filter(|p| p.left_out.contains_key(name)).count(),
            cpu: geometric_mean(&cpu),
            memory: geometric_mean(&memory),
        }
    };
    names.into_iter().filter(|name| *name != SYSTEM).map(of).collect()
}

#[cfg(test)]
mod tests {
    use imas_core::judgement::Goal;

    use super::*;

    fn line(candidate: &str, round: u32, user_s: f64, why: Option<&str>) -> RawRun {
        let why = why.map(str::to_owned);
        RawRun {
            program: "p".into(),
            candidate: candidate.into(),
            ok: why.is_none(),
            why,
            round,
            user_s,
            mean_bytes: 100,
            ..RawRun::default()
        }
    }

    #[test]
    fn a_candidate_that_failed_once_is_never_averaged() {
        let mut lines = Vec::new();
        for round in 0..6 {
            lines.push(line(SYSTEM, round, 1.0, None));
            lines.push(line("good", round, 0.5, None));
            lines.push(line("bad", round, 0.1, (round == 3).then_some("crash")));
        }
        let summary = SuiteSummary::of(&lines, &Dropped::default(), 1);
        let [bad, good] = summary.overall.as_slice() else { panic!("{summary:?}") };
        assert_eq!((bad.programs, bad.left_out, bad.cpu), (0, 1, None));
        assert_eq!((good.programs, good.left_out), (1, 0));
        assert!((good.cpu.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((summary.troubles[0].runs, summary.troubles[0].of), (1, 6));
        assert_eq!(summary.programs[0].comparison.judgement.pick(Goal::Cpu), Some("good"));
    }

    #[test]
    fn counted_runs_are_not_compared() {
        let mut counted = line(SYSTEM, 0, 9.0, None);
        counted.kind = RunKind::Counted;
        let summary = SuiteSummary::of(&[line(SYSTEM, 0, 1.0, None), counted], &Dropped::default(), 1);
        assert_eq!(summary.programs[0].rounds, 1);
    }
}
