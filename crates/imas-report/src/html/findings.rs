// SPDX-License-Identifier: Apache-2.0
//! Findings about one program, as the page shows them. The page computes no figure and makes no pick: both
//! are from the result that `imas bench` prints, or from the policy that decides.

use imas_core::SYSTEM;
use imas_core::bench::{CandidateRuns, Comparison, MedianRun};
use imas_core::judgement::{BenchEnding, Goal};
use imas_core::stats::Interval;
use serde::Serialize;

use crate::bench::{BenchReport, CandidateReport};
use crate::chart::{Chart, Plane, PlanePoint};
use imas_cli::format;
use imas_cli::table::Table;

const HEADS: [&str; 9] =
    ["candidate", "picks", "runs", "CPU", "CPU change", "memory MiB", "memory change", "peak MiB", "verdict"];

/// The result for one program.
#[derive(Debug, Default)]
pub struct ProgramFindings {
    /// The result in one sentence.
    pub sentence: String,
    /// The result in a few words.
    pub short: String,
    /// Names of the fastest, the leanest and the balanced pick.
    pub picks: [String; 3],
    /// The candidates.
    pub table: Table,
    /// The candidates in one picture.
    pub picture: Option<Chart>,
    /// Warnings about the figures.
    pub warnings: Vec<String>,
}

/// The words for the picks, in the order of [`ProgramFindings::picks`].
const PICKS: [&str; 3] = ["fastest", "leanest", "balanced"];

/// One candidate in table and picture.
#[derive(Debug, Default)]
pub struct CandidateFindings {
    /// Name of the candidate.
    pub name: String,
    /// Runs, or rounds of trials, that its figures come from.
    pub runs: usize,
    /// Medians of the candidate's runs.
    pub median: Option<MedianRun>,
    /// Ratio of CPU time to `system`.
    pub cpu: Option<Interval>,
    /// Ratio of memory to `system`.
    pub memory: Option<Interval>,
    /// Whether the candidate can be picked.
    pub is_eligible: bool,
    /// The verdict in words.
    pub verdict: String,
}

impl CandidateFindings {
    fn of<Host: Serialize>(bench: &BenchReport<Host>, report: &CandidateReport) -> Self {
        Self {
            name: report.name.clone(),
            runs: report.runs.len(),
            median: report.median.clone(),
            cpu: report.ratio.cpu,
            memory: report.ratio.memory,
            is_eligible: report.ineligible.is_none(),
            verdict: bench.words(report),
        }
    }

    /// The change that a ratio means; a dash for `system` itself and where nothing is known.
    fn change(&self, ratio: Option<Interval>) -> String {
        let known = ratio.filter(|_| self.name != SYSTEM);
        known.map_or_else(dash, |ratio| format::change(&ratio))
    }

    fn cells(&self, picks: &[String; 3]) -> Vec<String> {
        let median = self.median.as_ref();
        let mib = |get: fn(&MedianRun) -> u64| median.map_or_else(dash, |run| format::mib(get(run) as f64));
        let marks = PICKS.iter().zip(picks).filter(|(_, name)| **name == self.name).map(|(word, _)| *word);
        vec![
            self.name.clone(),
            marks.collect::<Vec<_>>().join(", "),
            self.runs.to_string(),
            median.map_or_else(dash, |run| format::seconds(run.cpu_s)),
            self.change(self.cpu),
            mib(|run| run.mean_bytes),
            self.change(self.memory),
            mib(|run| run.peak_bytes),
            self.verdict.clone(),
        ]
    }

    fn point(&self) -> Option<PlanePoint> {
        let (cpu, memory) = (self.cpu?, self.memory?);
        let words = |ratio| format::change(&ratio);
        let text = format!("{}: CPU {}, memory {}", self.name, words(cpu), words(memory));
        Some(PlanePoint { name: self.name.clone(), cpu, memory, text })
    }
}

impl ProgramFindings {
    /// The findings of a benchmark's result: the same sentence, picks and figures.
    #[must_use]
    pub fn of_bench<Host: Serialize>(report: &BenchReport<Host>) -> Self {
        let goals = [Goal::Cpu, Goal::Memory, Goal::Balanced];
        let picks = goals.map(|goal| report.judgement.pick(goal).unwrap_or(SYSTEM).to_owned());
        let candidates: Vec<_> =
            report.candidates.iter().map(|one| CandidateFindings::of(report, one)).collect();
        let is_known = report.judgement.ending != BenchEnding::NothingToCompare;
        Self {
            sentence: report.sentence(),
            warnings: report.warnings.iter().map(imas_core::bench::Warning::what).collect(),
            ..Self::of_candidates(picks, &candidates, is_known)
        }
    }

    /// The findings of runs and their comparison: the result as `imas bench` printed it when it made those
    /// runs.
    #[must_use]
    pub fn of_runs(runs: &[CandidateRuns], comparison: Comparison) -> Self {
        Self::of_bench(&BenchReport::of_runs(vec![], runs.to_vec(), comparison))
    }

    /// Table, picture and short words of candidates and picks; the sentence is the caller's.
    #[must_use]
    pub fn of_candidates(picks: [String; 3], candidates: &[CandidateFindings], is_known: bool) -> Self {
        let mut table = Table::new("", "Changes against system, with 95 % intervals", &HEADS);
        candidates.iter().for_each(|one| table.push(one.cells(&picks)));
        Self {
            short: short(&picks[2], candidates, is_known),
            picture: plane(candidates),
            table,
            picks,
            ..Self::default()
        }
    }

    /// The balanced pick.
    pub(super) fn pick(&self) -> &str {
        &self.picks[2]
    }
}

/// The balanced pick and what it changes.
fn short(pick: &str, candidates: &[CandidateFindings], is_known: bool) -> String {
    match candidates.iter().find(|one| one.name == pick && pick != SYSTEM) {
        Some(one) => format!("{pick}: CPU {}, memory {}", one.change(one.cpu), one.change(one.memory)),
        None if is_known => "system, no other is better beyond the noise".to_owned(),
        None => "nothing could be compared".to_owned(),
    }
}

/// The candidates in the plane of CPU time and memory.
fn plane(candidates: &[CandidateFindings]) -> Option<Chart> {
    let eligible = candidates.iter().filter(|one| one.is_eligible);
    Plane {
        title: "Candidates by CPU time and memory".to_owned(),
        caption: "Ratio to system, with 95 % intervals; logarithmic axes. A hollow mark: another candidate is better \
                  on both."
            .to_owned(),
        points: eligible.filter_map(CandidateFindings::point).collect(),
    }
    .draw()
}

fn dash() -> String {
    "-".to_owned()
}
