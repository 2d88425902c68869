// SPDX-License-Identifier: Apache-2.0
//! `imas doctor --noise`: one program against itself, to see which measure is steady on this machine.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_core::cost::{Priced, cost_by_others};
use imas_core::pace::{EvenPace, Paced};
use imas_core::stats::{Steadiness, steadiness};
use imas_linux::measure::{self, Outcome};
use imas_linux::one_cpu::steady_cpu;
use imas_linux::program::Command;
use imas_runs::backing::{Backing, Extremes};
use serde_json::json;

use crate::{message, output};

/// A true difference of this size is what is looked for.
const DIFFERENCE: f64 = 0.03;
/// So many pairs are a comparison that people wait for.
const FEW_PAIRS: u32 = 20;
/// No run takes longer.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Lines that the program of the house sorts: about half a second of work.
const LINES: u64 = 400_000;

/// A figure of a run; 0 where it was not measured.
type Measure = (&'static str, fn(&Outcome) -> f64);

/// What CPU time is called.
const CPU_SECONDS: &str = "user + system seconds";
const CPU: Measure = (CPU_SECONDS, |run| run.user_s + run.system_s);

const MEASURES: [Measure; 10] = [
    CPU,
    ("user seconds", |run| run.user_s),
    ("system seconds", |run| run.system_s),
    ("elapsed seconds", |run| run.wall_s),
    ("instructions", |run| counted(run.counts.instructions)),
    ("cycles", |run| counted(run.counts.cycles)),
    ("cache misses", |run| counted(run.counts.cache_misses)),
    ("page faults", |run| counted(Some(run.minor_faults))),
    ("mean memory", |run| counted(Some(run.resident.mean_bytes))),
    ("peak memory", |run| counted(Some(run.resident.peak_bytes))),
];

fn counted(count: Option<u64>) -> f64 {
    count.unwrap_or(0) as f64
}

/// Runs `command`, or a sort of lines made up for it, in `pairs` pairs.
pub(crate) fn run(command: &[OsString], pairs: u32, as_json: bool) -> Result<ExitCode> {
    let lines = lines()?;
    let own: Vec<OsString> =
        ["sort", "--parallel=1", "-k2,2", "-S", "64M"].into_iter().map(OsString::from).collect();
    let own: Vec<OsString> = own.into_iter().chain([lines.path().into()]).collect();
    let words = if command.is_empty() { &own[..] } else { command };
    let backing = Backing::default();
    let (runs, kept) = measured(words, pairs, &backing)?;
    backing.look_after_a_while();
    let touches = backing.extremes();
    warn_of_failures(words, &[&runs[..], &kept].concat());
    let rows = rows(&runs, &kept);
    if as_json {
        let measures: Vec<_> =
            rows.iter().map(|(name, steady)| json!({ "measure": name, "steadiness": steady })).collect();
        let first_touch = touches
            .map(|Extremes { least, most }| json!({ "least_s_per_gib": least, "most_s_per_gib": most }));
        output::json(
            &json!({ "schema": 1, "pairs": pairs, "difference": DIFFERENCE, "measures": measures, "first_touch": first_touch }),
        )?;
    } else {
        output::text(&page(words, pairs, &rows))?;
        output::text(&touches.map(said_of_touches).unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A program that fails at once is steady, and says nothing of the one that was meant.
fn warn_of_failures(words: &[OsString], runs: &[Outcome]) {
    let failed: Vec<&Outcome> = runs.iter().filter(|run| run.exit != 0 || run.timed_out).collect();
    let Some(last) = failed.last() else { return };
    let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let how = match last.signal {
        _ if last.timed_out => "for taking too long".to_owned(),
        Some(signal) => format!("with signal {signal}"),
        None => format!("with exit {}", last.exit),
    };
    let said = last.stderr_tail.lines().rev().find(|line| !line.trim().is_empty());
    let said = said.map_or_else(String::new, |said| format!(": {}", said.trim()));
    message::warning(&format!(
        "{program}: {} of {} runs failed, the last {how}{said}",
        failed.len(),
        runs.len()
    ));
    message::say("hint: the figures are of a program that fails; give words with which it does its work");
}

fn lines() -> Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().context("a file of lines to sort")?;
    let mut text = String::new();
    let mut state = 1_u64;
    for line in 0..LINES {
        // Park and Miller's generator: the work is the same everywhere.
        state = state * 16_807 % 2_147_483_647;
        text.push_str(&format!("{line} {state}\n"));
    }
    file.write_all(text.as_bytes()).context("a file of lines to sort")?;
    Ok(file)
}

/// The measures of runs that could use every CPU, and CPU time of those kept on one.
fn rows(runs: &[Outcome], kept: &[Outcome]) -> Vec<(String, Option<Steadiness>)> {
    let plain = runs.iter().map(CPU.1);
    let of = |(name, of): &Measure| ((*name).to_owned(), of_pairs(runs.iter().map(of)));
    vec![
        (format!("{CPU_SECONDS} at even pace, on one CPU"), of_pairs(even(kept))),
        (format!("{CPU_SECONDS}, on one CPU"), of_pairs(kept.iter().map(CPU.1))),
        (format!("{CPU_SECONDS} at even pace"), of_pairs(even(runs))),
        (format!("{CPU_SECONDS}, better of two"), of_better_of_two(plain)),
        (COST.to_owned(), cost(runs).and_then(|costs| of_pairs(costs.into_iter()))),
    ]
    .into_iter()
    .chain(MEASURES.iter().map(of))
    .collect()
}

/// What the counters say a run cost.
const COST: &str = "instructions, faults and misses, priced";

/// None where one of them is not counted.
fn cost(runs: &[Outcome]) -> Option<Vec<f64>> {
    let priced = |run: &Outcome| {
        let counts =
            [run.counts.instructions?, run.minor_faults, run.counts.cache_misses?, run.counts.dtlb_misses?];
        Some(Priced { cpu_s: CPU.1(run), counts: counts.map(|count| count as f64) })
    };
    cost_by_others(&runs.iter().map(priced).collect::<Option<Vec<_>>>()?)
}

/// CPU time with the pace taken out.
fn even(runs: &[Outcome]) -> impl Iterator<Item = f64> {
    let runs: Vec<Paced> = runs.iter().map(|run| (CPU.1(run), run.pace)).collect();
    let even = EvenPace::fit(std::slice::from_ref(&runs));
    runs.into_iter().map(move |run| even.cpu_s(run))
}

/// A pair of it takes two pairs of runs.
fn of_better_of_two(figures: impl Iterator<Item = f64>) -> Option<Steadiness> {
    let of_fours = of_pairs(better_of_two(figures))?;
    Some(Steadiness { pairs_needed: 2 * of_fours.pairs_needed, ..of_fours })
}

/// The smaller figure of every other run and the next but one, so that the figures of a pair still come from next to each other.
fn better_of_two(figures: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let figures: Vec<f64> = figures.collect();
    let fours: Vec<[f64; 2]> =
        figures.chunks_exact(4).map(|four| [four[0].min(four[2]), four[1].min(four[3])]).collect();
    fours.into_iter().flatten()
}

/// Pairs of runs on all CPUs, and pairs of runs on one, by turns.
fn measured(words: &[OsString], pairs: u32, backing: &Backing) -> Result<(Vec<Outcome>, Vec<Outcome>)> {
    let command = Command::resolve(words, std::env::var_os("PATH").as_deref())?;
    let variables = std::env::vars_os().collect();
    let once = |cpu: Option<usize>| -> Result<Outcome> {
        let run = measure::Run {
            file: &command.file,
            argv: &command.argv,
            folder: None,
            variables: &variables,
            input: None,
            show_output: false,
            timeout: TIMEOUT,
            still: None,
            cpu,
            backed_bytes: backing.bytes(),
        };
        let outcome = run.measure()?;
        backing.saw(&outcome);
        Ok(outcome)
    };
    let serial = once(None)?.is_serial(); // and it fills the caches
    let one = if serial { steady_cpu() } else { None };
    let (mut free, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        free.extend([once(None)?, once(None)?]);
        if one.is_some() {
            kept.extend([once(one)?, once(one)?]);
        }
    }
    Ok((free, kept))
}

fn of_pairs(figures: impl Iterator<Item = f64>) -> Option<Steadiness> {
    let figures: Vec<f64> = figures.collect();
    let pairs: Vec<(f64, f64)> = figures.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    steadiness(&pairs, DIFFERENCE)
}

fn page(words: &[OsString], pairs: u32, rows: &[(String, Option<Steadiness>)]) -> String {
    let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let row = |(name, steady): &(String, Option<Steadiness>)| match steady {
        Some(s) => vec![
            name.clone(),
            format!("{:.1} %", s.variation * 100.0),
            format!("{:.1} %", s.paired * 100.0),
            s.pairs_needed.to_string(),
        ],
        None => vec![name.clone(), "not measured here".to_owned(), String::new(), String::new()],
    };
    let head = ["measure", "variation of one run", "of a pair", "pairs for 3 %"];
    let now = rows.iter().find_map(|(_, steady)| *steady).map(advice).unwrap_or_default();
    format!(
        "{program} against itself under system, {pairs} pairs\n\n{}\npairs for 3 %: paired runs with which a true difference of 3 % is found nine times in ten, at 5 % error\n{now}",
        imas_report::table::plain(&head, rows.iter().map(row))
    )
}

/// What a page of free memory costs who touches it first.
fn said_of_touches(touches: Extremes) -> String {
    let Extremes { least, most } = touches;
    let what = if touches.is_given_back() {
        "it goes back to the host when nobody takes it for seconds, and who takes it then waits, most for huge pages"
    } else {
        "it stays here"
    };
    format!("free memory: touching a GiB of it takes {least:.2} to {most:.2} s: {what}\n")
}

/// What the noise of CPU time means for a comparison made now.
fn advice(cpu: Steadiness) -> String {
    let pairs = cpu.pairs_needed;
    if pairs <= FEW_PAIRS {
        return format!(
            "a difference of 3 % in CPU is found with {pairs} paired runs here now: imas bench -n {pairs}\n"
        );
    }
    format!(
        "a difference of 3 % in CPU takes {pairs} paired runs here now. Fewer do when nothing else runs (see 'uptime'),\n\
         or with more input: runs of a second are steadier than short ones\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_of_two_takes_twice_the_runs() {
        let pairs = [[1.0, 1.1], [1.2, 1.0], [1.0, 1.3], [1.1, 1.0]];
        let once = of_pairs(pairs.into_iter().flatten()).unwrap();
        let twice = of_better_of_two(pairs.into_iter().flat_map(|pair| [pair, pair]).flatten()).unwrap();
        assert_eq!(twice.paired, once.paired, "the better of two equal runs is either");
        assert_eq!(twice.pairs_needed, 2 * once.pairs_needed);
    }
}
