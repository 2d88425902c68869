// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench`: one value, four formats.

mod table;

use std::collections::BTreeMap;

use imas_cli::format;
use imas_core::bench::{
    BaselineCheck, CandidateResult, CandidateRuns, CheckStatus, Comparison, IneligibleCandidate, MedianRun,
    Ratios, Warning,
};
use imas_core::judgement::{BenchEnding, BenchJudgement};
use imas_core::printable;
use imas_core::printable::counted;
use imas_core::run::RawRun;
use imas_core::split::Split;
use serde::{Deserialize, Serialize};

pub use table::{BenchColumn, BenchLayout, USUAL, coloured};

use crate::{judgement, measure};
use table::Attempt;

/// Figures of the paper, from runs in which every call was counted.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct PaperFigures {
    /// Mean of the class means of malloc, realloc, memalign and free, in nanoseconds.
    pub ns_per_op: Option<f64>,
    /// (heap - live) / heap over mapped bytes, 0 to 1.
    pub frag_virtual: Option<f64>,
    /// (heap - live) / heap over resident bytes, 0 to 1.
    pub frag_resident: Option<f64>,
    /// Mean heap in bytes: writable anonymous mappings.
    pub heap_bytes: u64,
    /// Calls of all classes.
    pub operations: u64,
    /// The object whose malloc served.
    pub served: String,
    /// Where the resident memory was; None when the runs were too short to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

/// One candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CandidateReport {
    /// Name in the catalogue.
    pub name: String,
    /// Whether the candidate could be used.
    pub available: bool,
    /// Why the candidate could not be used.
    pub reason: Option<String>,
    /// Version of the allocator.
    pub version: String,
    /// Every run in the order it was made.
    pub runs: Vec<RawRun>,
    /// Median of every figure.
    pub median: Option<MedianRun>,
    /// Ratios to `system`, with 95 % intervals.
    pub ratio: Ratios,
    /// Why the candidate cannot be picked although it ran.
    pub ineligible: Option<IneligibleCandidate>,
    /// Figures of the paper, from the counted runs.
    pub paper: Option<PaperFigures>,
}

impl CandidateReport {
    /// A candidate that could not be used.
    #[must_use]
    pub fn unusable(name: &str, version: &str, reason: &str) -> Self {
        Self {
            name: name.to_owned(),
            available: false,
            reason: Some(reason.to_owned()),
            version: version.to_owned(),
            runs: vec![],
            median: None,
            ratio: Ratios::default(),
            ineligible: None,
            paper: None,
        }
    }

    /// A candidate that ran.
    #[must_use]
    pub fn measured(
        version: &str,
        runs: Vec<RawRun>,
        result: CandidateResult,
        paper: Option<PaperFigures>,
    ) -> Self {
        Self {
            name: result.name,
            available: true,
            reason: None,
            version: version.to_owned(),
            runs,
            median: result.median,
            ratio: result.ratio,
            ineligible: result.ineligible,
            paper,
        }
    }
}

/// The whole result; this is the shape of the exported JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BenchReport<Host> {
    /// Version of the shape: 1.
    pub schema: u32,
    /// The command as given.
    pub command: Vec<String>,
    /// When the benchmark began, Unix time in seconds.
    pub began_unix_s: f64,
    /// Seed of order and resampling.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// The candidates in the order of the catalogue.
    pub candidates: Vec<CandidateReport>,
    /// Answers, picks and ending: the result.
    pub judgement: BenchJudgement,
    /// The CPU that every run was kept on, as the program uses one at a time; None when all could be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_on_cpu: Option<usize>,
    /// Values of `--parameter-list` and `--parameter-scan` in this command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// How many rounds were made, and why no more; None for runs that were made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<RoundsMade>,
    /// Results of the rules against a baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<BaselineCheck>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
    /// Further notes, as sentences.
    pub notes: Vec<String>,
}

impl BenchReport<()> {
    /// A report of runs that were made elsewhere.
    #[must_use]
    pub fn of_runs(command: Vec<String>, runs: Vec<CandidateRuns>, comparison: Comparison) -> Self {
        let rows = runs.into_iter().zip(comparison.candidates);
        Self {
            schema: 1,
            command,
            began_unix_s: 0.0,
            seed: 0,
            host: (),
            candidates: rows
                .map(|(ready, result)| CandidateReport::measured("", ready.runs, result, None))
                .collect(),
            judgement: comparison.judgement,
            kept_on_cpu: None,
            parameters: BTreeMap::new(),
            rounds: None,
            checks: vec![],
            warnings: comparison.warnings,
            notes: vec![],
        }
    }
}

impl<Host: Serialize> BenchReport<Host> {
    /// The table as people read it: what the layout names and has room for.
    #[must_use]
    pub fn table(&self, layout: &BenchLayout) -> String {
        let mut text = String::new();
        for attempt in layout.attempts() {
            let heads = attempt.heads();
            let rows = self.sorted(layout.sort).into_iter().map(|one| self.row(one, &attempt));
            let at_most = attempt.verdict.filter(|_| heads.last() == Some(&"verdict"));
            text = imas_cli::table::wrapped(&heads, rows, at_most);
            if text.lines().all(|line| line.chars().count() <= layout.width()) {
                break;
            }
        }
        text
    }

    /// The candidates, those without the figure last.
    fn sorted(&self, by: Option<BenchColumn>) -> Vec<&CandidateReport> {
        let mut rows: Vec<&CandidateReport> = self.candidates.iter().collect();
        if let Some(column) = by {
            let figure = |one: &CandidateReport| column.figure(one).unwrap_or(f64::INFINITY);
            rows.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
        }
        rows
    }

    /// Where the resident memory was under each candidate, from the counted runs; empty when they were too
    /// short to look.
    #[must_use]
    pub fn splits(&self) -> String {
        let known = |candidate: &CandidateReport| candidate.paper.as_ref().and_then(|paper| paper.split);
        let rows = self.candidates.iter().filter_map(|one| Some((one.name.as_str(), known(one)?)));
        measure::split_text(&rows.collect::<Vec<_>>())
    }

    /// The report as Markdown, with command, picks and warnings.
    #[must_use]
    pub fn markdown(&self, layout: &BenchLayout) -> String {
        let mut text = format!("{}\n\n", imas_cli::table::markdown_code(&self.command.join(" ")));
        let attempt = &layout.widest();
        let rows = self.sorted(layout.sort).into_iter().map(|one| self.row(one, attempt));
        text.push_str(&imas_cli::table::markdown(&attempt.heads(), rows));
        text.push_str(&format!("\n{}\n", self.sentence()));
        for check in &self.checks {
            text.push_str(&format!("\n- {}", check_text(check)));
        }
        for warning in &self.warnings {
            text.push_str(&format!("\n- warning: {}; {}", warning.what(), warning.hint()));
        }
        printable::text(&text).into_owned()
    }

    /// Every run of these results as a line of CSV.
    ///
    /// # Errors
    /// When a value cannot be written as CSV.
    pub fn csv(reports: &[Self]) -> Result<Vec<u8>, csv::Error> {
        const HEADS: &str = "candidate,version,round,exit,user_s,system_s,wall_s,peak_bytes,mean_bytes,\
                             minor_faults,major_faults,voluntary_switches,involuntary_switches,\
                             instructions,cycles,dtlb_misses,cache_misses,outlier,even_cpu_s,command";
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.write_record(HEADS.split(','))?;
        for report in reports {
            let command = report.command.join(" ");
            for candidate in &report.candidates {
                for run in &candidate.runs {
                    let step = (&candidate.name, &candidate.version, run.round, run.exit);
                    let times = (run.user_s, run.system_s, run.wall_s);
                    let memory = (run.peak_bytes, run.mean_bytes, run.minor_faults, run.major_faults);
                    let switches = (run.voluntary_switches, run.involuntary_switches);
                    let counters = (run.instructions, run.cycles, run.dtlb_misses, run.cache_misses);
                    let noise = (run.outlier, run.even_cpu_s);
                    writer.serialize((step, times, memory, switches, counters, noise, &command))?;
                }
            }
        }
        writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
    }

    /// Result of the bench, in one or two sentences.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.too_little().unwrap_or_else(|| judgement::sentence(&self.judgement))
    }

    /// Sentence for a program that does too little to be compared: what was measured, and what to do. None for any other.
    #[must_use]
    pub fn too_little(&self) -> Option<String> {
        let is_so = self.judgement.ending == BenchEnding::NothingToCompare;
        let little = self.warnings.iter().find(|warning| is_so && warning.is_too_little())?;
        let system = self.candidates.iter().find(|one| one.name == imas_core::SYSTEM)?;
        let run = system.median.as_ref()?;
        let memory = match run.mean_bytes {
            0 => "no memory that could be read in time".to_owned(),
            bytes => format!("{} MiB", format::mib(bytes as f64)),
        };
        Some(format!(
            "Too short to compare: a run takes {}, with {} of CPU time and {memory}; {}.",
            format::seconds(run.wall_s),
            format::seconds(run.cpu_s),
            little.hint()
        ))
    }

    /// The verdict on a candidate: words on CPU and memory, and of what it is the pick; or why it cannot be picked.
    pub(crate) fn verdict(&self, candidate: &CandidateReport) -> String {
        let words = std::iter::once(self.words(candidate)).filter(|words| !words.is_empty());
        words.chain(judgement::marks(&self.judgement, &candidate.name)).collect::<Vec<_>>().join(", ")
    }

    /// The verdict without the marks of picks.
    pub(crate) fn words(&self, candidate: &CandidateReport) -> String {
        match (&candidate.reason, candidate.ineligible) {
            (Some(reason), _) => format!("not usable: {reason}"),
            (None, Some(why)) => objection(why),
            (None, None) => judgement::words(&self.judgement, &candidate.name).join(", "),
        }
    }

    /// Whether the program failed under `system`, or a figure has grown beyond its limit.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let fails = |warning: &Warning| matches!(warning, Warning::SystemFails { .. });
        self.warnings.iter().any(fails) || self.checks.iter().any(|check| check.status == CheckStatus::Failed)
    }

    fn row(&self, candidate: &CandidateReport, attempt: &Attempt) -> Vec<String> {
        let cell = |column: &BenchColumn| match column {
            BenchColumn::Verdict => self.verdict(candidate),
            column => column.cell(candidate, attempt.changes),
        };
        std::iter::once(candidate.name.clone()).chain(attempt.columns.iter().map(cell)).collect()
    }
}

/// Why a candidate that ran is out of the question, in a few words; the warnings say more.
fn objection(why: IneligibleCandidate) -> String {
    match why {
        IneligibleCandidate::NoRuns => "no runs".to_owned(),
        IneligibleCandidate::Crashed { signal } => format!("crashes (signal {signal})"),
        IneligibleCandidate::Hung => "hangs".to_owned(),
        IneligibleCandidate::Excess => "far too much".to_owned(),
        IneligibleCandidate::TimedOut => "not in time".to_owned(),
        IneligibleCandidate::ExitDiffers { exit } => format!("exits with {exit}"),
        IneligibleCandidate::OutputDiffers => "other output".to_owned(),
    }
}

/// One line: the rule, the candidate, the change with its interval, and what came of it.
#[must_use]
pub fn check_text(check: &BaselineCheck) -> String {
    let BaselineCheck { candidate, rule, ratio, status } = check;
    let change = ratio.as_ref().map_or_else(|| "not comparable".to_owned(), format::change);
    let verdict = match status {
        CheckStatus::Failed => "FAILED: the whole interval lies beyond the limit",
        CheckStatus::Passed => "passed",
        CheckStatus::NotComparable => "not checked",
    };
    format!("{rule} under {candidate}: {change} against the baseline: {verdict}")
}

/// Why the rounds ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundsEnd {
    /// All rounds were made.
    AllMade,
    /// More rounds would not change the answer.
    Settled,
    /// No candidate of a server looks better.
    NoneLooksBetter,
    /// The rounds that were left would have been far too few to settle it.
    Hopeless,
    /// The time was up.
    MaxTime,
    /// A signal ended the benchmark.
    Interrupted,
}

/// The rounds of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundsMade {
    /// Rounds that were made.
    pub made: u32,
    /// Rounds that might have been made.
    pub most: u32,
    /// Why no more rounds were made.
    pub ended: RoundsEnd,
}

impl RoundsMade {
    /// A sentence where fewer rounds were made than might have been.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let Self { made, most, ended } = *self;
        let why = match ended {
            RoundsEnd::AllMade => return None,
            RoundsEnd::Settled => "more would not change the answer",
            RoundsEnd::NoneLooksBetter => "no candidate looks better",
            RoundsEnd::Hopeless => "all of them would not settle what is open",
            RoundsEnd::MaxTime => "the time was up",
            RoundsEnd::Interrupted => "interrupted",
        };
        let were = if made == 1 { "was" } else { "were" };
        Some(format!("{made} of at most {} {were} made: {why}", counted(most, "round")))
    }
}
