// SPDX-License-Identifier: Apache-2.0
//! IMAS itself, judged on raw runs: Ülgen and Avci, "The intelligent memory allocator selector", 2015.
//!
//! ```text
//! files -> source (programs, failures) -> judge (strategy x program -> Outcome, on rounds that did not choose)
//!                                           -> total (means, intervals) -> findings, tables, figures
//! ```

mod aims;
mod best_worst;
mod everyday;
mod figures;
mod findings;
mod judge;
mod noise;
mod pace;
mod runtimes;
mod source;
mod strategy;
mod tables;
mod total;

use std::path::PathBuf;

use imas_core::printable::counted;
use imas_core::stats::RESAMPLES;

use crate::error::{StudyError, StudyResult};
use crate::program::Progress;
use crate::study::Study;
use judge::{Outcomes, Plan, judge};
use noise::Noise;
use source::Source;
use strategy::{Aim, Strategy};
use total::{Metric, Resampling, total};

const RULE: &str = "Reproduced: our figures say the same; a printed mean lies in our 95 % interval, which does not reach down to 0, or ours is higher. \
                    Differs: a gain shows, but not the printed one, or ours is compatible with both. Not reproduced: our runs do not show it.";

/// The options of the study.
#[derive(Clone, Debug)]
pub struct SelectorOptions {
    /// Files of raw runs, JSON lines.
    pub data: Vec<PathBuf>,
    /// Number of splits. A split divides the rounds of each program into those that choose and a third that
    /// judges.
    pub splits: u32,
    /// Seed of splits and resamples.
    pub seed: u64,
    /// Called after each program.
    pub progress: Progress,
}

impl SelectorOptions {
    /// The default: 20 splits.
    pub fn new(data: Vec<PathBuf>) -> Self {
        Self { data, splits: 20, seed: 1, progress: Progress::default() }
    }
}

/// The input of all tables and figures.
pub(crate) struct Judged {
    pub(crate) source: Source,
    pub(crate) outcomes: Outcomes,
    pub(crate) noises: Vec<Option<Noise>>,
    pub(crate) by: Resampling,
}

/// Judges IMAS under both policies, every single candidate, and the paper's findings.
///
/// # Errors
/// When a file cannot be read, or no program has enough rounds.
pub fn selector(options: &SelectorOptions) -> StudyResult<Study> {
    if options.splits == 0 {
        return Err(StudyError::NoRuns { option: "splits" });
    }
    study(Source::read(&options.data)?, options)
}

fn study(source: Source, options: &SelectorOptions) -> StudyResult<Study> {
    let strategies = Strategy::all(&source.candidates);
    let plan = Plan { splits: options.splits, seed: options.seed };
    let all = source.programs.len() as u64;
    let outcomes =
        judge(&source.programs, &strategies, plan, |done| options.progress.report(done as u64, all));
    let noises = source.programs.iter().map(Noise::of).collect();
    let by = Resampling { resamples: RESAMPLES / 5, seed: options.seed };
    let judged = Judged { source, outcomes, noises, by };
    Ok(Study {
        id: "selector".to_owned(),
        title: "The intelligent memory allocator selector".to_owned(),
        paper: "E. Ülgen and M. Avci, The intelligent memory allocator selector, Computer Languages, Systems & Structures 44, 2015"
            .to_owned(),
        result: result(&judged),
        picture: figures::picture(&judged),
        method: method(&judged, options),
        rule: RULE.to_owned(),
        findings: findings::findings(&judged),
        tables: tables::tables(&judged),
        figures: figures::figures(&judged),
    })
}

/// The gain of IMAS with each kind of pick, in one sentence.
fn result(judged: &Judged) -> String {
    let gain = |aim, metric| {
        let total = total(&judged.outcomes, &Strategy::Adaptive(aim), metric, judged.by)?;
        let gain = total.geometric?;
        Some((total.programs, format!("{:+.1} % [{:+.1}, {:+.1}]", gain.mid, gain.lo, gain.hi)))
    };
    let gains = (
        gain(Aim::Fastest, Metric::Cpu),
        gain(Aim::Leanest, Metric::Memory),
        gain(Aim::Balanced, Metric::Balance),
    );
    let (Some((programs, cpu)), Some((_, memory)), Some((_, both))) = gains else {
        return "These runs give no gain of the adaptive policy.".to_owned();
    };
    format!(
        "Over {} IMAS gains {both} against system in CPU time and memory together with its balanced picks, \
         {cpu} in CPU time with its fastest and {memory} in memory with its leanest picks.",
        counted(programs, "program")
    )
}

fn method(judged: &Judged, options: &SelectorOptions) -> Vec<String> {
    let source = &judged.source;
    let noises: Vec<Noise> = judged.noises.iter().flatten().copied().collect();
    vec![
        format!(
            "{}, {}, {}; {}. {}{}",
            counted(source.programs.len(), "program"),
            counted(source.data.runs.len(), "raw run"),
            counted(source.candidates.len(), "candidate"),
            left_out(source.left_out.len()),
            machine(source),
            unreadable(source),
        ),
        format!(
            "Every pick is judged on rounds that did not choose it: the rounds of each program are cut at random {} times (seed {}), one third \
             (two at least) judges what the others chose, then another third does. A candidate's cost is the median over the judging rounds of its ratio to \
             system in the same round, normalised CPU time where the runs allow it (docs/decisions/0012). Intervals are 95 %, by resampling the programs. A gain is per cent of system; above 0 is better. A candidate that \
             failed with a program has no figure there; a mean names the programs it rests on.",
            options.splits, options.seed
        ),
        "The paper's metric: nanoseconds per operation (mean of the means of malloc, realloc, memalign and free) and fragmentation, (heap - allocated) / \
         heap over virtual sizes, of runs that count every call; its gain is in percentage points. Ours: user and system CPU time of the whole process \
         tree, and its mean resident anonymous memory, of runs that count nothing. Virtual sizes are not what is paid: an allocator that reserves \
         a gigabyte and touches none of it is fragmented in the paper's metric."
            .to_owned(),
        noise::sentence(&noises),
    ]
}

fn left_out(programs: usize) -> String {
    const WHERE: &str = "named in the table of what is left out, with the reason";
    match programs {
        0 => "no program is left out".to_owned(),
        1 => format!("one more program is left out and {WHERE}"),
        n => format!("{n} more programs are left out and {WHERE}"),
    }
}

fn machine(source: &Source) -> String {
    let Some(header) = source.data.headers.last() else { return String::new() };
    let text = |key: &str| match &header.host[key] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    format!("Machine: {}, {} CPUs, {}, {}. ", text("cpu"), source.data.cpus(), text("kernel"), text("libc"))
}

fn unreadable(source: &Source) -> String {
    match source.data.unreadable.len() {
        0 => String::new(),
        n => format!("{n} lines are no runs and were skipped."),
    }
}
