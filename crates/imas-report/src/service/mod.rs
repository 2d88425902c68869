// SPDX-License-Identifier: Apache-2.0
//! Measured servers in words and as a table for a terminal; [`page()`]: as a page for a browser.

mod page;

use imas_cli::format::{self, counted};
use imas_core::SYSTEM;
use imas_core::compare::{Answer, FEWEST_ROUNDS, smallest_difference};
use imas_core::judgement::{BenchEnding, FigureAnswer, JudgedCandidate};
use imas_core::run::RawRun;
use imas_core::server_bench::{CandidateFigures, ComparedFigure, KnownCost, OpenLimit, ServiceComparison};
use imas_core::server_run::{Better, MemoryByUse};

use crate::judgement::{figure_name, marks, sentence_with, told};
use crate::measure::Unit;
pub use page::{MeasuredService, memory_curves, one_for_all, page, summary};

/// Result of a bench of a server, in one or two sentences.
#[must_use]
pub fn sentence(comparison: &ServiceComparison) -> String {
    if comparison.judgement.ending == BenchEnding::NothingToCompare {
        return nothing(comparison);
    }
    let mut remarks = comparison.named(comparison.pick()).map(open_limits).unwrap_or_default();
    if matches!(comparison.judgement.ending, BenchEnding::TooFewRounds { .. }) {
        remarks.extend(leanest(comparison).map(|one| so_far(comparison, one)));
    }
    if comparison.pick() != SYSTEM {
        let untested = comparison.untested.iter();
        remarks.extend(untested.map(|limit| format!("{limit} is not tested, as no run has that figure")));
        remarks.extend(
            comparison.one_variable.as_ref().map(|one| {
                format!("{} alone ({}) gives {}", one.variable, one.candidate, percent(one.ratio))
            }),
        );
    }
    sentence_with(&comparison.judgement, &remarks)
}

/// The candidate that looks best, with what is known of it: `so far glibc:arena1 looks best (CPU -3 %, memory -20 %; 2
/// rounds, not proven)`.
#[must_use]
pub fn so_far(comparison: &ServiceComparison, one: &CandidateFigures) -> String {
    let change = |(figure, name): (&str, &str)| {
        let ratio = one.figures.get(figure)?.ratio?;
        Some(format!("{name} {}", format::percent(ratio.mid)))
    };
    let figures = [("cpu", "CPU"), ("memory", "memory"), ("memory_idle", "after the pause")];
    let parts: Vec<String> = figures.into_iter().filter_map(change).collect();
    let proof = match comparison.pick() == one.name {
        true => "proven",
        false => "not proven",
    };
    format!(
        "so far {} looks best ({}; {}, {proof})",
        one.name,
        parts.join(", "),
        counted(one.rounds, "round")
    )
}

/// Where the memory of the server is under `system`, by the look into its heaps at the end of the first run that has
/// one. None where the heaps could not be read, or another malloc serves.
#[must_use]
pub fn where_memory_is<'a>(runs: impl IntoIterator<Item = &'a RawRun>) -> Option<String> {
    let mut system = runs.into_iter().filter(|run| run.candidate == SYSTEM && run.ok);
    let all = system.find_map(|run| MemoryByUse::of(&run.of_server().heaps))?;
    let part = |bytes: f64| format!("{:.0} %", bytes / all.resident.max(1.0) * 100.0);
    Some(format!(
        "where the memory is after the load: of {} MiB {} are blocks in use, {} free in malloc's heaps, {} stacks, {} \
         outside of them",
        format::mib(all.resident),
        part(all.live),
        part(all.possible()),
        part(all.stacks),
        part(all.other)
    ))
}

/// Smallest differences that these rounds could have proven: `could have seen: memory 4 %, CPU 9 %, p99 31
/// %`.
#[must_use]
pub fn could_have_seen(comparison: &ServiceComparison) -> Option<String> {
    let names = [
        ("memory", "memory"),
        ("memory_idle", "after the pause"),
        ("memory_day", "over the day"),
        ("cpu", "CPU"),
        ("p99", "p99"),
    ];
    let one = |(figure, name): (&str, &str)| {
        Some(format!("{name} {:.0} %", (comparison.visible.get(figure)? * 100.0).ceil()))
    };
    let all: Vec<String> = names.into_iter().filter_map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "{} could have proven a difference of: {}",
            counted(comparison.judgement.rounds, "round"),
            all.join(", ")
        )
    })
}

/// Why nothing can be compared.
fn nothing(comparison: &ServiceComparison) -> String {
    let system = || comparison.candidates.iter().filter(|one| one.name == SYSTEM);
    let others = || comparison.candidates.iter().filter(|one| one.name != SYSTEM);
    let made: usize = system().map(|one| one.runs).sum();
    if made == 0 {
        return format!("Nothing can be compared: no run under system counts{}.", why_none(system()));
    }
    if others().all(|one| one.rounds == 0) {
        let made = counted(made, "run");
        return format!(
            "Nothing can be compared: beside {made} under system none counts{}.",
            why_none(others())
        );
    }
    "Nothing can be compared: no run beside system has the figure of the objective.".to_owned()
}

/// Why no run of these candidates counts: how many failed, and of what most of them did.
fn why_none<'a>(candidates: impl Iterator<Item = &'a CandidateFigures>) -> String {
    let failures: Vec<&str> =
        candidates.flat_map(|one| &one.failures).map(|failure| failure.what.as_str()).collect();
    let times = |what: &str| failures.iter().filter(|other| **other == what).count();
    let Some(most) = failures.iter().rev().max_by_key(|what| times(what)) else { return String::new() };
    let failed = match failures.len() {
        1 => "1 run failed".to_owned(),
        many => format!("{many} runs failed, {} so", times(most)),
    };
    format!(" ({failed}: {most})")
}

/// The limits that a candidate is neither proven to break nor shown to keep, each as a clause.
fn open_limits(one: &CandidateFigures) -> Vec<String> {
    one.unproven.iter().map(open_limit).collect()
}

fn open_limit(open: &OpenLimit) -> String {
    let name = figure_name(&open.limit.figure);
    match open.known {
        KnownCost::FromNothing { runs, of } => {
            format!("{name} in {runs} of {of} runs, where system had none")
        }
        KnownCost::Ratio(worse) => {
            let by = if open.better == Better::Lower { "" } else { " worse by" };
            let most = open.limit.percent();
            let end = match open.limit.allows(worse.lo) {
                true => format!("not shown to cost more than {most} %"),
                false => format!("likely to cost more than {most} %"),
            };
            format!("{name}{by} {} is {end}", format::short_change(&worse))
        }
    }
}

/// The verdict on one candidate, with the marks of picks.
#[must_use]
pub fn verdict(comparison: &ServiceComparison, one: &CandidateFigures) -> String {
    let runs = one.runs + one.failures.len();
    let failed =
        (!one.failures.is_empty()).then(|| format!("failed in {} of {runs} runs", one.failures.len()));
    if one.name == SYSTEM {
        return std::iter::once("reference".to_owned()).chain(failed).collect::<Vec<_>>().join("; ");
    }
    let judged = comparison.judgement.candidate(&one.name);
    let words = match judged.filter(|_| one.rounds >= FEWEST_ROUNDS) {
        None if one.rounds < comparison.judgement.rounds && one.rounds > 0 => {
            vec![left_out(comparison, one)]
        }
        None => vec![format!("too few rounds ({}) to say", one.rounds)],
        Some(judged) => figure_words(judged, comparison.by_clock),
    };
    let exceeds = one.exceeds.iter().map(|rail| format!("not within {rail}"));
    let marks = marks(&comparison.judgement, &one.name);
    failed.into_iter().chain(words).chain(exceeds).chain(marks).collect::<Vec<_>>().join(", ")
}

/// Words on a candidate that is not tried further, with what it was ranked by: memory under load and after the pause, and
/// CPU time at its worth, together.
fn left_out(comparison: &ServiceComparison, one: &CandidateFigures) -> String {
    let cost = |one: &CandidateFigures| one.cost.filter(|_| one.name != SYSTEM && !one.has_failed());
    let others = comparison.candidates.iter().filter(|other| other.rounds > one.rounds);
    let best = others.filter_map(|other| Some((cost(other)?, other))).min_by(|a, b| a.0.total_cmp(&b.0));
    let why = cost(one).zip(best).map(|(own, (least, other))| {
        let (own, least) = (format::percent(own), format::percent(least));
        format!(": together {own}, {} {least}", other.name)
    });
    format!("{}, left after {}{}", changes(one), counted(one.rounds, "round"), why.unwrap_or_default())
}

/// Changes of memory and CPU time as they were measured, which prove nothing.
fn changes(one: &CandidateFigures) -> String {
    let change = |(figure, name): (&str, &str)| {
        Some(format!("{name} {}", format::percent(one.figures.get(figure)?.ratio?.mid)))
    };
    let figures = [("memory", "memory"), ("memory_idle", "after the pause"), ("cpu", "CPU")];
    let all: Vec<String> = figures.into_iter().filter_map(change).collect();
    if all.is_empty() { "not measured".to_owned() } else { all.join(", ") }
}

fn figure_words(judged: &JudgedCandidate, by_clock: bool) -> Vec<String> {
    let word = |(name, figure): (&str, &imas_core::judgement::JudgedFigure)| {
        let percent = (figure.ratio.mid - 1.0) * 100.0;
        match figure.answer {
            FigureAnswer::Better => format!("{:.0} % less {name}", -percent),
            FigureAnswer::Worse => format!("{percent:.0} % more {name}"),
            FigureAnswer::NoGain if figure.looks == Answer::NotShown => format!("same {name}"),
            _ => format!("{name} open"),
        }
    };
    let clock = by_clock.then(|| "CPU not comparable".to_owned());
    told(judged).map(word).chain(clock).collect()
}

/// Heads of the table for a terminal, without the candidate and the verdict, in the order in which they are left out.
const LEFT_OUT: [&str; 7] =
    ["peak MiB", "pause MiB", "p99", "CPU", "memory MiB", "pause change", "CPU change"];
const HEADS: [&str; 8] =
    ["memory MiB", "memory change", "peak MiB", "pause MiB", "pause change", "CPU", "CPU change", "p99"];

/// A row for each candidate, in lines of at most `width` columns as far as that is possible. `unusable`: names of
/// candidates that could not be used, and why.
#[must_use]
pub fn terminal_table(comparison: &ServiceComparison, unusable: &[(String, String)], width: usize) -> String {
    let mut text = String::new();
    for left_out in 0..=LEFT_OUT.len() {
        for is_short in [false, true] {
            let shown: Vec<&str> =
                HEADS.into_iter().filter(|head| !LEFT_OUT[..left_out].contains(head)).collect();
            text = laid_out(comparison, unusable, &shown, is_short, width);
            if text.lines().all(|line| line.chars().count() <= width) {
                return text;
            }
        }
    }
    text
}

/// The verdict has at least this many characters in a line before columns are left out.
const LEAST_VERDICT: usize = 26;

fn laid_out(
    comparison: &ServiceComparison,
    unusable: &[(String, String)],
    shown: &[&str],
    is_short: bool,
    width: usize,
) -> String {
    let heads: Vec<&str> =
        ["candidate"].into_iter().chain(shown.iter().copied()).chain(["verdict"]).collect();
    // Where a change alone is shown, the reference has what it changes.
    let of_reference = |one: &CandidateFigures, head: &str| {
        let (_, figure) = CHANGED.into_iter().find(|(change, _)| one.name == SYSTEM && *change == head)?;
        (!shown.contains(&figure)).then(|| cell(one, figure, is_short)).map(|value| with_unit(value, figure))
    };
    let cells = |one: &CandidateFigures| {
        let cell = |head: &&str| of_reference(one, head).unwrap_or_else(|| cell(one, head, is_short));
        shown.iter().map(cell).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = comparison
        .candidates
        .iter()
        .map(|one| {
            let verdict = verdict(comparison, one);
            std::iter::once(one.name.clone()).chain(cells(one)).chain([verdict]).collect()
        })
        .collect();
    rows.extend(unusable.iter().map(|(name, why)| {
        let mut row = vec![name.clone()];
        row.resize(heads.len() - 1, String::new());
        row.push(format!("cannot be used here: {why}"));
        row
    }));
    let column = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heads[at].len()]).max().unwrap_or(0) + 2
    };
    let others: usize = (0..heads.len() - 1).map(column).sum();
    let room = width.saturating_sub(others + 2).max(LEAST_VERDICT);
    imas_cli::table::wrapped(&heads, rows.into_iter(), u16::try_from(room).ok())
}

/// Columns of changes, each with the column of what is changed.
const CHANGED: [(&str, &str); 3] =
    [("memory change", "memory MiB"), ("pause change", "pause MiB"), ("CPU change", "CPU")];

/// A value whose column has the unit in its head.
fn with_unit(value: String, head: &str) -> String {
    if head.ends_with("MiB") && value != "-" { format!("{value} MiB") } else { value }
}

fn cell(one: &CandidateFigures, head: &str, is_short: bool) -> String {
    let dash = || "-".to_owned();
    let figure = |name: &str| one.figures.get(name);
    let mib = |name: &str| figure(name).map_or_else(dash, |found| format::mib(found.median));
    let plain = |name: &str| figure(name).map_or_else(dash, value);
    let change = |name: &str| {
        let ratio = figure(name).and_then(|figure| figure.ratio).filter(|_| one.name != SYSTEM);
        ratio.map_or_else(dash, |ratio| match ratio.lo == ratio.hi {
            true => percent(ratio.mid),
            false if is_short => format::short_change(&ratio),
            false => format::change(&ratio),
        })
    };
    match head {
        "memory MiB" => mib("memory"),
        "memory change" => change("memory"),
        "peak MiB" => mib("memory_peak"),
        "pause MiB" => mib("memory_idle"),
        "pause change" => change("memory_idle"),
        "CPU" => plain("cpu"),
        "CPU change" => change("cpu"),
        _ => plain("p99"),
    }
}

/// Median of the figure with its unit.
#[must_use]
pub fn value(figure: &ComparedFigure) -> String {
    match figure.unit.as_str() {
        "B" => format!("{} MiB", format::mib(figure.median)),
        "B/cycle" => format!("{:+.2} MiB/cycle", figure.median / f64::from(1 << 20)),
        "s" => format::seconds(figure.median),
        "ms" => format::seconds(figure.median / 1e3),
        "" => format!("{:.0}", figure.median),
        unit if figure.median.fract() == 0.0 => format!("{:.0} {unit}", figure.median),
        unit if figure.median >= 100.0 => format!("{:.0} {unit}", figure.median),
        unit => format!("{:.3} {unit}", figure.median),
    }
}

/// The pick. If there are too few rounds for a proof: the best candidate within the guard rails, if it is better than
/// `system` by the margin of memory.
pub fn best(comparison: &ServiceComparison) -> Option<&CandidateFigures> {
    let is_proof = comparison.named(SYSTEM).is_some_and(|system| system.rounds >= FEWEST_ROUNDS);
    if is_proof || comparison.pick() != SYSTEM {
        return comparison.named(comparison.pick()).filter(|pick| pick.name != SYSTEM);
    }
    leanest(comparison)
}

/// The candidate that costs least of those that break no guard rail, if it is better than `system` by the margin of
/// memory: by the goal, and CPU time at its worth.
pub fn leanest(comparison: &ServiceComparison) -> Option<&CandidateFigures> {
    let fits = comparison
        .candidates
        .iter()
        .filter(|one| one.name != SYSTEM && one.exceeds.is_empty() && !one.has_failed() && one.rounds > 0);
    let by_cost = fits.filter_map(|one| Some((one.cost?, one)));
    let leaner = by_cost.filter(|(ratio, _)| *ratio <= 1.0 - smallest_difference("memory"));
    leaner.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, one)| one)
}

fn percent(ratio: f64) -> String {
    Unit::PercentChange.text((ratio - 1.0) * 100.0)
}
