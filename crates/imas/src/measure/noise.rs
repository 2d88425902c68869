// SPDX-License-Identifier: Apache-2.0
//! `imas doctor --noise`: compares a program with itself, to find the measures that are steady on this
//! machine.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::format;
use imas_core::candidate::SYSTEM;
use imas_core::pace::{PaceCorrection, Paced};
use imas_core::stats::{Steadiness, steadiness};
use imas_linux::environment::Variables;
use imas_linux::measure::{RunOutcome, RunRequest};
use imas_linux::pace::steady_cpu;
use imas_linux::program::Command;
use imas_runs::executor::{Execution, Executor, RunLimits, record};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::runner::{Elimination, NextStep, Observer, Rules, Runner, SessionEnd};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::{Extremes, Subject, Timeout};
use serde_json::json;

use imas_cli::{message, output};

/// The true difference that a comparison should find.
const DIFFERENCE: f64 = 0.03;
/// Largest number of pairs that users will wait for.
const FEW_PAIRS: u32 = 20;
/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Number of lines that the built-in command sorts: about half a second of work.
const LINES: u64 = 400_000;

/// Name and value of a measure; 0 if it was not measured.
type Measure = (&'static str, fn(&RunOutcome) -> f64);

/// Name of CPU time in the output.
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

/// Runs `command` in `pairs` pairs. Without a command, it sorts generated lines.
pub(crate) fn run(command: &[OsString], pairs: u32, as_json: bool) -> Result<ExitCode> {
    let lines = lines()?;
    let own: Vec<OsString> =
        ["sort", "--parallel=1", "-k2,2", "-S", "64M"].into_iter().map(OsString::from).collect();
    let own: Vec<OsString> = own.into_iter().chain([lines.path().into()]).collect();
    let words = if command.is_empty() { &own[..] } else { command };
    let NoiseRuns { free: runs, kept, signal, touches } = measured(words, pairs)?;
    if signal.is_some() {
        message::warning(&format!(
            "interrupted: these are the figures of {}",
            format::counted(runs.len() / 2, "pair")
        ));
    }
    let pairs = if signal.is_some() { u32::try_from(runs.len() / 2)? } else { pairs };
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
        output::text(&touches.map(touch_costs).unwrap_or_default())?;
    }
    Ok(signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(InterruptedBy(signal).exit_status())))
}

/// A program that fails at once gives steady figures that are useless, so failures are reported.
fn warn_of_failures(words: &[OsString], runs: &[RunOutcome]) {
    let failed: Vec<&RunOutcome> = runs.iter().filter(|run| run.exit != 0 || run.timed_out).collect();
    let Some(last) = failed.last() else { return };
    let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let how = match last.signal {
        _ if last.timed_out => "for taking too long".to_owned(),
        Some(signal) => format!("with signal {signal}"),
        None => format!("with exit {}", last.exit),
    };
    let printed = last.stderr_tail.lines().rev().find(|line| !line.trim().is_empty());
    let printed = printed.map_or_else(String::new, |printed| format!(": {}", printed.trim()));
    message::warning(&format!(
        "{program}: {} of {} runs failed, the last {how}{printed}",
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
        // Park and Miller's generator, so that the work is the same on every machine.
        state = state * 16_807 % 2_147_483_647;
        text.push_str(&format!("{line} {state}\n"));
    }
    file.write_all(text.as_bytes()).context("a file of lines to sort")?;
    Ok(file)
}

/// All measures of the runs on all CPUs, and the CPU time of the runs on one CPU.
fn rows(runs: &[RunOutcome], kept: &[RunOutcome]) -> Vec<(String, Option<Steadiness>)> {
    let plain = runs.iter().map(CPU.1);
    let of = |(name, of): &Measure| ((*name).to_owned(), of_pairs(runs.iter().map(of)));
    vec![
        (format!("normalised {CPU_SECONDS}, on one CPU"), of_pairs(even(kept))),
        (format!("{CPU_SECONDS}, on one CPU"), of_pairs(kept.iter().map(CPU.1))),
        (format!("normalised {CPU_SECONDS}"), of_pairs(even(runs))),
        (format!("{CPU_SECONDS}, better of two"), of_better_of_two(plain)),
    ]
    .into_iter()
    .chain(MEASURES.iter().map(of))
    .collect()
}

/// Normalised CPU time.
fn even(runs: &[RunOutcome]) -> impl Iterator<Item = f64> {
    let runs: Vec<Paced> = runs.iter().map(|run| (CPU.1(run), run.pace)).collect();
    let even = PaceCorrection::fit(std::slice::from_ref(&runs));
    runs.into_iter().map(move |run| even.cpu_s(run))
}

/// Steadiness of the better of two runs. Each of its pairs needs two pairs of runs.
fn of_better_of_two(figures: impl Iterator<Item = f64>) -> Option<Steadiness> {
    let of_fours = of_pairs(better_of_two(figures))?;
    Some(Steadiness { pairs_needed: 2 * of_fours.pairs_needed, ..of_fours })
}

/// Takes the minimum of every second run: of the first and third, and of the second and fourth. So the two
/// figures of a pair come from neighbouring runs.
fn better_of_two(figures: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let figures: Vec<f64> = figures.collect();
    let fours: Vec<[f64; 2]> =
        figures.chunks_exact(4).map(|four| [four[0].min(four[2]), four[1].min(four[3])]).collect();
    fours.into_iter().flatten()
}

/// Runs that could use every CPU, and runs on one CPU.
#[derive(Default)]
struct NoiseRuns {
    free: Vec<RunOutcome>,
    kept: Vec<RunOutcome>,
    /// The signal that ended the measurement early.
    signal: Option<i32>,
    touches: Option<Extremes>,
}

/// Alternates pairs of runs on all CPUs with pairs of runs on one. The command runs untouched.
fn measured(words: &[OsString], pairs: u32) -> Result<NoiseRuns> {
    let command = Command::resolve(words, std::env::var_os("PATH").as_deref())?;
    let interruption = Interruption::watch()?;
    let subject = Subject::new(&command.program.path.to_string_lossy(), Timeout::After(TIMEOUT));
    let rules = Rules { elimination: Elimination::Never, warmup_must_succeed: false };
    let mut runner = Runner::new(vec![SYSTEM.to_owned(); 2], vec![subject], rules, &interruption);
    let mut executor = NoiseExecutor { command, one: None };
    let mut runs = Pairs::default();
    let warm_up = [Step { subject: 0, candidate: FREE, kind: RoundKind::Warmup }];
    let mut ended = runner.run(warm_up, &mut executor, &mut runs)?;
    executor.one = runs.is_serial.then(steady_cpu).flatten();
    if ended == SessionEnd::Finished {
        let turn = if executor.one.is_some() { &[FREE, FREE, KEPT, KEPT][..] } else { &[FREE, FREE] };
        let step = |round, candidate| Step { subject: 0, candidate, kind: RoundKind::Measured { round } };
        let steps = (0..pairs).flat_map(|round| turn.iter().map(move |&at| step(round, at)));
        ended = runner.run(steps, &mut executor, &mut runs)?;
    }
    if let SessionEnd::Interrupted(signal) = ended {
        runs.runs.signal = Some(signal);
    } else {
        runner.subjects[0].prefault.look_after_a_while();
    }
    Ok(NoiseRuns { touches: runner.subjects[0].prefault.extremes(), ..runs.runs })
}

/// The two kinds of run. They take the place of candidates.
const FREE: usize = 0;
const KEPT: usize = 1;

struct NoiseExecutor {
    command: Command,
    /// The CPU for the runs on one CPU.
    one: Option<usize>,
}

impl Executor for NoiseExecutor {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        let variables = Variables::inherited();
        let run = RunRequest {
            file: &self.command.file,
            argv: &self.command.argv,
            folder: None,
            variables: &variables,
            input: None,
            show_output: false,
            timeout: limits.timeout,
            still: limits.still,
            most: None,
            cpu: self.one.filter(|_| step.candidate == KEPT),
            prefault_bytes: limits.prefault_bytes,
        };
        let outcome = run.measure()?;
        Ok(Execution { record: record(&outcome, None), outcome, ..Execution::default() })
    }
}

#[derive(Default)]
struct Pairs {
    runs: NoiseRuns,
    is_serial: bool,
}

impl Observer for Pairs {
    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        match step.candidate {
            _ if step.kind == RoundKind::Warmup => self.is_serial = run.outcome.is_serial(),
            FREE => self.runs.free.push(run.outcome),
            _ => self.runs.kept.push(run.outcome),
        }
        Ok(NextStep::Make)
    }
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
        imas_cli::table::plain(&head, rows.iter().map(row))
    )
}

/// The cost of the first touch of free memory, as a sentence.
fn touch_costs(touches: Extremes) -> String {
    let Extremes { least, most } = touches;
    let what = if touches.is_given_back() {
        "it returns to the host when it stays free for seconds; a program that takes it then waits, longest for huge pages"
    } else {
        "it stays here"
    };
    format!("free memory: touching a GiB of it takes {least:.2} to {most:.2} s: {what}\n")
}

/// The effect of the noise of CPU time on a comparison made now.
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
        assert_eq!(twice.paired, once.paired, "two equal runs have the same minimum");
        assert_eq!(twice.pairs_needed, 2 * once.pairs_needed);
    }
}
