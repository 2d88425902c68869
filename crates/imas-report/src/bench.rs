// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench`: one value, four formats.

use imas_core::bench::{
    BenchPicks, CandidateResult, Ineligible, MedianRun, MoreRuns, Ratios, Run, Verdict, Warning, Word,
};
use imas_core::split::Split;
use serde::{Deserialize, Serialize};

use crate::{format, split, table};

/// Figures of the paper, from runs in which every call was counted.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct PaperFigures {
    /// Mean of the class means of malloc, realloc, memalign and free, in nanoseconds.
    pub ns_per_op: Option<f64>,
    /// (heap - live) / heap over mapped bytes, 0 to 1.
    pub frag_virtual: Option<f64>,
    /// The same over resident bytes.
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
pub struct Candidate {
    /// Name in the catalogue.
    pub name: String,
    /// Whether it could be used.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Version of the allocator.
    pub version: String,
    /// Every run in the order it was made.
    pub runs: Vec<Run>,
    /// Median of every figure.
    pub median: Option<MedianRun>,
    /// To `system`, with 95 % intervals.
    pub ratio: Ratios,
    /// Words on CPU and memory.
    pub verdict: Option<Verdict>,
    /// Why it cannot be picked although it ran.
    pub ineligible: Option<Ineligible>,
    /// How many more runs would settle what is open.
    pub more_runs: MoreRuns,
    /// From the counted runs.
    pub paper: Option<PaperFigures>,
}

impl Candidate {
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
        runs: Vec<Run>,
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
pub struct Report<Host> {
    /// Version of the shape: 1.
    pub schema: u32,
    /// The command as given.
    pub command: Vec<String>,
    /// When it began, Unix time in seconds.
    pub began_unix_s: f64,
    /// Seed of order and resampling.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// In the order of the catalogue.
    pub candidates: Vec<Candidate>,
    /// What suits when CPU is short, when memory is short, and otherwise.
    pub picks: BenchPicks,
    /// The CPU that every run was kept on, as the program uses one at a time; None when all could be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_on_cpu: Option<usize>,
    /// What to beware of.
    pub warnings: Vec<Warning>,
    /// What else was noticed, as sentences.
    pub notes: Vec<String>,
}

const HEAD: [&str; 8] =
    ["candidate", "CPU", "vs system", "memory MiB", "vs system", "ns/op", "fragm. %", "verdict"];

impl<Host: Serialize> Report<Host> {
    /// The table as people read it.
    #[must_use]
    pub fn table(&self) -> String {
        table::plain(&HEAD, self.candidates.iter().map(|candidate| self.row(candidate)))
    }

    /// Where the resident memory was under each candidate, from the counted runs; empty when they were too short to look.
    #[must_use]
    pub fn splits(&self) -> String {
        let known = |candidate: &Candidate| candidate.paper.as_ref().and_then(|paper| paper.split);
        let rows = self.candidates.iter().filter_map(|one| Some((one.name.as_str(), known(one)?)));
        split::text(&rows.collect::<Vec<_>>())
    }

    /// The same as Markdown, with command, picks and warnings.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("`{}`\n\n", self.command.join(" "));
        text.push_str(&table::markdown(&HEAD, self.candidates.iter().map(|candidate| self.row(candidate))));
        text.push_str(&format!("\n{}\n", self.sentence()));
        for warning in &self.warnings {
            text.push_str(&format!("\n- warning: {}; {}", warning.what(), warning.hint()));
        }
        text
    }

    /// Every run as a line of CSV.
    ///
    /// # Errors
    /// When a value cannot be written as CSV.
    pub fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            candidate: &'a str,
            version: &'a str,
            round: u32,
            exit: i32,
            user_s: f64,
            system_s: f64,
            wall_s: f64,
            peak_bytes: u64,
            mean_bytes: u64,
            minor_faults: u64,
            major_faults: u64,
            voluntary_switches: u64,
            involuntary_switches: u64,
            instructions: Option<u64>,
            cycles: Option<u64>,
            dtlb_misses: Option<u64>,
            cache_misses: Option<u64>,
            outlier: bool,
            even_cpu_s: Option<f64>,
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        for candidate in &self.candidates {
            for run in &candidate.runs {
                writer.serialize(Line {
                    candidate: &candidate.name,
                    version: &candidate.version,
                    round: run.round,
                    exit: run.exit,
                    user_s: run.user_s,
                    system_s: run.system_s,
                    wall_s: run.wall_s,
                    peak_bytes: run.peak_bytes,
                    mean_bytes: run.mean_bytes,
                    minor_faults: run.minor_faults,
                    major_faults: run.major_faults,
                    voluntary_switches: run.voluntary_switches,
                    involuntary_switches: run.involuntary_switches,
                    instructions: run.instructions,
                    cycles: run.cycles,
                    dtlb_misses: run.dtlb_misses,
                    cache_misses: run.cache_misses,
                    outlier: run.outlier,
                    even_cpu_s: run.even_cpu_s,
                })?;
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
            return "Nothing here is better than system for this program beyond the noise: leave it as it is.".to_owned();
        }
        let mut sentence = match picks.balanced.as_str() {
            "system" => "Leave it as it is".to_owned(),
            balanced => format!("Use {balanced} ({})", self.gain(balanced)),
        };
        for (pick, when) in [(&picks.fastest, "CPU is short"), (&picks.leanest, "memory is short")] {
            if *pick != picks.balanced {
                sentence.push_str(&format!("; {pick} when {when} ({})", self.gain(pick)));
            }
        }
        sentence + "."
    }

    /// `12 % less CPU, 5 % less memory`; words only where the verdict has them.
    fn gain(&self, name: &str) -> String {
        let found = self.candidates.iter().find(|candidate| candidate.name == name);
        let Some((candidate, verdict)) = found.and_then(|c| c.verdict.as_ref().map(|verdict| (c, verdict)))
        else {
            return "as it is".to_owned();
        };
        let part = |word: Word, ratio: Option<imas_core::stats::Interval>, what: &str| {
            let percent = (ratio?.mid - 1.0) * 100.0;
            let direction = if percent < 0.0 { "less" } else { "more" };
            let tells = matches!(word, Word::Faster | Word::Slower | Word::LessMemory | Word::MoreMemory);
            tells.then(|| format!("{:.0} % {direction} {what}", percent.abs()))
        };
        let parts: Vec<_> = [
            part(verdict.cpu, candidate.ratio.cpu, "CPU"),
            part(verdict.memory, candidate.ratio.memory, "memory"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "as it is".to_owned() } else { parts.join(", ") }
    }

    fn row(&self, candidate: &Candidate) -> Vec<String> {
        let dash = || "-".to_owned();
        let median = candidate.median.as_ref();
        let paper = candidate.paper.as_ref();
        let ratio = |ratio: &Option<imas_core::stats::Interval>| match ratio {
            Some(ratio) if candidate.name != "system" => format::change(ratio),
            _ => dash(),
        };
        vec![
            candidate.name.clone(),
            median.map_or_else(dash, |median| format::seconds(median.cpu_s)),
            ratio(&candidate.ratio.cpu),
            median.map_or_else(dash, |median| format::mib(median.mean_bytes as f64)),
            ratio(&candidate.ratio.memory),
            paper.and_then(|p| p.ns_per_op).map_or_else(dash, |ns| format!("{ns:.0}")),
            paper.and_then(|p| p.frag_virtual).map_or_else(dash, |frag| format!("{:.0}", frag * 100.0)),
            self.verdict(candidate),
        ]
    }

    fn verdict(&self, candidate: &Candidate) -> String {
        if let Some(reason) = &candidate.reason {
            return format!("not usable: {reason}");
        }
        let mut words: Vec<String> = Vec::new();
        match (&candidate.ineligible, &candidate.verdict) {
            (Some(why), _) => words.push(objection(*why)),
            (None, Some(verdict)) if verdict.cpu == verdict.memory => words.push(verdict.cpu.to_string()),
            (None, Some(verdict)) => words.extend([verdict.cpu.to_string(), verdict.memory.to_string()]),
            (None, None) => {}
        }
        let picks = &self.picks;
        let titles =
            [("fastest", &picks.fastest), ("leanest", &picks.leanest), ("balanced", &picks.balanced)];
        words.extend(
            titles.iter().filter(|(_, pick)| **pick == candidate.name).map(|(title, _)| format!("*{title}*")),
        );
        words.join(", ")
    }
}

/// Why a candidate that ran is out of the question, in a few words; the warnings say more.
fn objection(why: Ineligible) -> String {
    match why {
        Ineligible::NoRuns => "no runs".to_owned(),
        Ineligible::Crashed { signal } => format!("crashes (signal {signal})"),
        Ineligible::Hung => "hangs".to_owned(),
        Ineligible::ExitDiffers { exit } => format!("exits with {exit}"),
        Ineligible::OutputDiffers => "other output".to_owned(),
    }
}
