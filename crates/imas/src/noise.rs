// SPDX-License-Identifier: Apache-2.0
//! `imas doctor --noise`: one program against itself, to see which measure is steady on this machine.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_core::stats::{Steadiness, steadiness};
use imas_linux::measure::{self, Outcome};
use imas_linux::one_cpu::steady_cpu;
use imas_linux::program::Command;
use serde_json::json;

use crate::output;

/// A true difference of this size is what is looked for.
const DIFFERENCE: f64 = 0.03;
/// So many pairs are a comparison that people wait for.
const FEW_PAIRS: u32 = 20;
/// No run takes longer.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Lines that the program of the house sorts: about half a second of work.
const LINES: u64 = 400_000;

/// One run with what the machine was like just before.
struct Run {
    outcome: Outcome,
    spin_s: f64,
}

/// A figure of a run; 0 where it was not measured.
type Measure = (&'static str, fn(&Run) -> f64);

/// What CPU time is called.
const CPU_SECONDS: &str = "user + system seconds";

const MEASURES: [Measure; 11] = [
    (CPU_SECONDS, |run| run.outcome.user_s + run.outcome.system_s),
    ("user seconds", |run| run.outcome.user_s),
    ("system seconds", |run| run.outcome.system_s),
    ("elapsed seconds", |run| run.outcome.wall_s),
    ("user + system by calibration loop", |run| (run.outcome.user_s + run.outcome.system_s) / run.spin_s),
    ("instructions", |run| counted(run.outcome.counts.instructions)),
    ("cycles", |run| counted(run.outcome.counts.cycles)),
    ("cache misses", |run| counted(run.outcome.counts.cache_misses)),
    ("page faults", |run| counted(Some(run.outcome.minor_faults))),
    ("mean memory", |run| counted(Some(run.outcome.resident.mean_bytes))),
    ("peak memory", |run| counted(Some(run.outcome.resident.peak_bytes))),
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
    let (runs, kept) = measured(words, pairs)?;
    let rows = rows(&runs, &kept);
    if as_json {
        let measures: Vec<_> =
            rows.iter().map(|(name, steady)| json!({ "measure": name, "steadiness": steady })).collect();
        output::json(
            &json!({ "schema": 1, "pairs": pairs, "difference": DIFFERENCE, "measures": measures }),
        )?;
    } else {
        output::text(&page(words, pairs, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
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
fn rows(runs: &[Run], kept: &[Run]) -> Vec<(String, Option<Steadiness>)> {
    let cpu = MEASURES[0].1;
    let kept = (format!("{CPU_SECONDS}, on one CPU"), of_pairs(kept, cpu));
    let free = MEASURES.iter().map(|(name, of)| ((*name).to_owned(), of_pairs(runs, *of)));
    std::iter::once(kept).chain(free).collect()
}

/// Pairs of runs on all CPUs, and pairs of runs on one, by turns.
fn measured(words: &[OsString], pairs: u32) -> Result<(Vec<Run>, Vec<Run>)> {
    let command = Command::resolve(words, std::env::var_os("PATH").as_deref())?;
    let variables = std::env::vars_os().collect();
    let once = |cpu: Option<usize>| -> Result<Run> {
        let spin_s = imas_linux::spin::calibrate();
        let run = measure::Run {
            file: &command.file,
            argv: &command.argv,
            folder: None,
            variables: &variables,
            input: None,
            show_output: false,
            timeout: TIMEOUT,
            cpu,
        };
        Ok(Run { outcome: run.measure()?, spin_s })
    };
    let serial = once(None)?.outcome.is_serial(); // and it fills the caches
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

fn of_pairs(runs: &[Run], of: fn(&Run) -> f64) -> Option<Steadiness> {
    let pairs: Vec<(f64, f64)> = runs.chunks_exact(2).map(|pair| (of(&pair[0]), of(&pair[1]))).collect();
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
