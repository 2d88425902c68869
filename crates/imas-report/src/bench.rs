// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench`: one value, four formats.

mod checks;
mod colour;
mod column;
mod layout;
mod rounds;
mod verdict;

use std::collections::BTreeMap;

use imas_core::bench::{
    BaselineCheck, BenchPicks, CandidateResult, IneligibleCandidate, MedianRun, MoreRuns, Outlook,
    PassedOver, Ratios, Verdict, Warning, WhyPassedOver,
};
use imas_core::compare::{Answer, Margins};
use imas_core::paper::Pick;
use imas_core::run::RawRun;
use imas_core::split::Split;
use imas_core::stats::Interval;
use serde::{Deserialize, Serialize};

pub use checks::check_text;
pub use colour::coloured;
pub use column::{BenchColumn, USUAL};
pub use layout::BenchLayout;
pub use rounds::{RoundsEnd, RoundsMade};

use imas_core::printable;

use crate::split;
use imas_cli::{format, table};
use layout::Attempt;

/// Largest number of further rounds that is printed; beyond it the answer is "too close to tell".
const MOST_ROUNDS_NAMED: u32 = 100;

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
    /// Words on CPU and memory.
    pub verdict: Option<Verdict>,
    /// Why the candidate cannot be picked although it ran.
    pub ineligible: Option<IneligibleCandidate>,
    /// How many more runs would settle what is open.
    pub more_runs: MoreRuns,
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
            verdict: None,
            ineligible: None,
            more_runs: MoreRuns::default(),
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
            verdict: Some(result.verdict),
            ineligible: result.ineligible,
            more_runs: result.more_runs,
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
    /// What suits when CPU is short, when memory is short, and otherwise.
    pub picks: BenchPicks,
    /// Candidates with better figures than the picks, and why they are not picked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// What the runs say as a whole; None in results from before it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// The CPU that every run was kept on, as the program uses one at a time; None when all could be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_on_cpu: Option<usize>,
    /// Values of `--parameter-list` and `--parameter-scan` in this command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// How many rounds were made, and why no more; None in results from before it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<RoundsMade>,
    /// What came of the rules against a baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<BaselineCheck>,
    /// What to beware of.
    pub warnings: Vec<Warning>,
    /// What else was noticed, as sentences.
    pub notes: Vec<String>,
}

impl<Host: Serialize> BenchReport<Host> {
    /// The table as people read it: what the layout names and has room for.
    #[must_use]
    pub fn table(&self, layout: &BenchLayout) -> String {
        let mut text = String::new();
        for attempt in layout.attempts() {
            let heads = heads(&attempt.columns);
            let rows = self.sorted(layout.sort).into_iter().map(|one| self.row(one, &attempt));
            let at_most = attempt.verdict.filter(|_| heads.last() == Some(&"verdict"));
            text = table::wrapped(&heads, rows, at_most);
            let is_fit = |width| text.lines().all(|line| line.chars().count() <= width);
            if layout.width.is_none_or(is_fit) {
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
        split::text(&rows.collect::<Vec<_>>())
    }

    /// The report as Markdown, with command, picks and warnings.
    #[must_use]
    pub fn markdown(&self, layout: &BenchLayout) -> String {
        let mut text = format!("{}\n\n", table::markdown_code(&self.command.join(" ")));
        let attempt = &layout.attempts()[0];
        let rows = self.sorted(layout.sort).into_iter().map(|one| self.row(one, attempt));
        text.push_str(&table::markdown(&heads(&attempt.columns), rows));
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

    /// What suits the program, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let picks = &self.picks;
        let all_system =
            [&picks.fastest, &picks.leanest, &picks.balanced].into_iter().all(|pick| pick == "system");
        if all_system {
            return self.without_picks();
        }
        let mut sentence = match picks.balanced.as_str() {
            "system" => "No candidate is proven better than system in both CPU and memory".to_owned(),
            balanced => format!("Use {balanced} ({})", self.change(balanced)),
        };
        for (pick, when) in [(&picks.fastest, "CPU is short"), (&picks.leanest, "memory is short")] {
            if *pick != picks.balanced && pick != "system" {
                sentence.push_str(&format!("; {pick} when {when} ({})", self.change(pick)));
            }
        }
        sentence + "." + &self.not_picked()
    }

    /// Nothing is proven: what these runs say all the same, and what would prove it.
    fn without_picks(&self) -> String {
        let what = match &self.outlook {
            Some(Outlook::TooFewRounds { rounds, least }) => {
                let made = format::counted(*rounds, "round");
                format!(
                    "Nothing can be said after {made}: a proof takes at least {least} (-n {least}, or more)."
                )
            }
            Some(Outlook::LooksBetter { candidate, rounds, more_rounds, .. }) => {
                let settles = match more_rounds.filter(|more| *more <= MOST_ROUNDS_NAMED) {
                    Some(more) => format!("about {} would settle it", format::counted(more, "more round")),
                    None => "it is too close to tell".to_owned(),
                };
                format!(
                    "{candidate} looks better ({}), and {} not prove it; {settles}.",
                    self.change(candidate),
                    if *rounds == 1 { "1 round does".to_owned() } else { format!("{rounds} rounds do") }
                )
            }
            Some(Outlook::Open { more_rounds, less_than }) => {
                let few = more_rounds.filter(|more| *more <= MOST_ROUNDS_NAMED);
                match (few, less_than) {
                    (Some(more), _) => format!(
                        "Not settled: no candidate is shown to be better than system, and some may be; about {} would \
                         settle it.",
                        format::counted(more, "more round")
                    ),
                    (None, Some(less_than)) => format!(
                        "Too close to tell: if a candidate is better than system, then by less than {:.0} %.",
                        (less_than * 100.0).ceil()
                    ),
                    (None, None) => {
                        "Too close to tell: no candidate is shown to be better than system.".to_owned()
                    }
                }
            }
            Some(Outlook::NoneBetter) => {
                "Nothing here is better than system for this program: leave it as it is.".to_owned()
            }
            _ => "Nothing could be compared with system.".to_owned(),
        };
        what + &self.not_picked()
    }

    /// Why candidates with better figures than the picks are not picked.
    fn not_picked(&self) -> String {
        let of = |one: &PassedOver| {
            let (axis, other, picked) = match one.pick {
                Pick::Leanest => ("least memory", "--max-cpu", &self.picks.leanest),
                _ => ("least CPU", "--max-memory", &self.picks.fastest),
            };
            let why = match one.why {
                WhyPassedOver::NotProven => "it is not proven".to_owned(),
                WhyPassedOver::CostsTooMuch => format!("it costs more than {other} allows"),
                WhyPassedOver::Tied => {
                    format!("{picked} is as good within the noise, and better in the other figure")
                }
            };
            format!(" {} shows the {axis} ({}); {why}.", one.candidate, self.change(&one.candidate))
        };
        self.passed_over.iter().map(of).collect()
    }

    /// `memory +24 %, for CPU -43 %`: what it costs beyond the margin comes first. A gain is named only where its
    /// interval excludes none at all.
    fn change(&self, name: &str) -> String {
        let found = self.candidates.iter().find(|candidate| candidate.name == name);
        let Some(candidate) = found else { return "as it is".to_owned() };
        let axes = [
            (candidate.ratio.cpu, Margins::USUAL.cpu, "CPU"),
            (candidate.ratio.memory, Margins::USUAL.memory, "memory"),
        ];
        let of = |is: &dyn Fn(Interval, f64) -> bool| -> Vec<String> {
            let is_it = |(ratio, margin, what): &(Option<Interval>, f64, &str)| {
                let ratio = ratio.filter(|ratio| is(*ratio, *margin))?;
                Some(format!("{what} {}", format::percent(ratio.mid)))
            };
            axes.iter().filter_map(is_it).collect()
        };
        let costs = of(&|ratio, margin| ratio.mid > 1.0 + margin);
        let gains = of(&|ratio, margin| Answer::by_interval(ratio, margin) == Answer::Better);
        match (costs.is_empty(), gains.is_empty()) {
            (true, true) => "as it is".to_owned(),
            (false, false) => format!("{}, for {}", costs.join(", "), gains.join(", ")),
            _ => [costs, gains].concat().join(", "),
        }
    }

    fn row(&self, candidate: &CandidateReport, attempt: &Attempt) -> Vec<String> {
        let cell = |column: &BenchColumn| match column {
            BenchColumn::Verdict => verdict::text(candidate, &self.picks),
            column => column.cell(candidate, attempt.with_intervals),
        };
        std::iter::once(candidate.name.clone()).chain(attempt.columns.iter().map(cell)).collect()
    }
}

fn heads(columns: &[BenchColumn]) -> Vec<&'static str> {
    std::iter::once("candidate").chain(columns.iter().map(|column| column.head())).collect()
}
