// SPDX-License-Identifier: Apache-2.0
//! Makers of runs: a command, a server under its load, a part of a study, a recording that is replayed. Then the record of a
//! run: figures from outside, and from inside where its calls were counted. Last, shell lines around runs: what a run needs
//! before it, and what it leaves.

use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;
use imas_core::Sample;
use imas_core::run::{Latency, RawRun};
use imas_core::sample::is_crash_signal;
use imas_linux::measure::RunOutcome;
use imas_linux::standstill::Most;

use crate::counted::CountedRun;
use crate::schedule::Step;

/// Limits of a run, and what the runner prepares for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// The run is ended after this time.
    pub timeout: Duration,
    /// The run is ended when it has used no CPU time for this long; None: never for this reason.
    pub still: Option<Duration>,
    /// The run is ended when it has taken more than this; None: it may take any amount.
    pub most: Option<Most>,
    /// Bytes of free memory that are touched before the run.
    pub prefault_bytes: u64,
}

/// A run that was made.
#[derive(Debug, Default)]
pub struct Execution {
    /// Figures of the run: the fields that every run has, and others by name. The runner fills in program,
    /// candidate and round.
    pub record: RawRun,
    /// How the process ended; of an executor without one, as it stands by default.
    pub outcome: RunOutcome,
    /// Results of a counted run.
    pub counted: Option<CountedRun>,
    /// Further notes, as sentences.
    pub notes: Vec<String>,
}

/// Makes runs, one at a time.
pub trait Executor {
    /// Makes the run that the step names. A program that fails is no error: its record has the failure.
    ///
    /// # Errors
    /// When the run could not be made.
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution>;
}

/// Why a run does not count: the word of the record, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// timeout, hang, excess, crash, exit, output, check, ready or load.
    pub why: &'static str,
    /// The message, with the last line of the program's standard error, where there is one.
    pub message: String,
}

impl Fault {
    /// How the run ended, where that is a failure.
    #[must_use]
    pub fn of(outcome: &RunOutcome) -> Option<Self> {
        let in_child = || u32::try_from(outcome.exit - 128).is_ok_and(is_crash_signal);
        let (why, how) = match outcome.signal {
            _ if outcome.hung => ("hang", "it used no CPU time and was ended".to_owned()),
            _ if outcome.excess => {
                ("excess", "it took many times what it takes under system and was ended".to_owned())
            }
            _ if outcome.timed_out => ("timeout", "it took too long and was ended".to_owned()),
            _ if outcome.out_of_memory => {
                ("crash", "the kernel killed it at the limit of its memory".to_owned())
            }
            Some(signal) => ("crash", format!("signal {signal}")),
            None if in_child() => ("crash", format!("signal {} in a child", outcome.exit - 128)),
            None if outcome.exit != 0 => ("exit", format!("exit {}", outcome.exit)),
            None => return None,
        };
        let last = last_line(&outcome.stderr_tail);
        Some(Self { why, message: last.map_or_else(|| how.clone(), |last| format!("{how}: {last}")) })
    }
}

/// The last line that is not empty.
#[must_use]
pub fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

/// The figures of a run. The runner fills in program, candidate and round.
#[must_use]
pub fn record(outcome: &RunOutcome, counted: Option<&CountedRun>) -> RawRun {
    let fault = Fault::of(outcome);
    let run = RawRun {
        exit: outcome.exit,
        output: Some(format!("{:016x}", outcome.output_hash)),
        user_s: outcome.user_s,
        system_s: outcome.system_s,
        wall_s: outcome.wall_s,
        minor_faults: outcome.minor_faults,
        major_faults: outcome.major_faults,
        mean_bytes: outcome.resident.mean_bytes,
        peak_bytes: outcome.resident.peak_bytes,
        voluntary_switches: outcome.voluntary_switches,
        involuntary_switches: outcome.involuntary_switches,
        instructions: outcome.counts.instructions,
        cycles: outcome.counts.cycles,
        dtlb_misses: outcome.counts.dtlb_misses,
        cache_misses: outcome.counts.cache_misses,
        pace: outcome.pace,
        ..counted.map(inside).unwrap_or_default()
    };
    with_fault(run, fault)
}

/// The record, which says why the run does not count, or that it does.
#[must_use]
pub fn with_fault(run: RawRun, fault: Option<Fault>) -> RawRun {
    let (why, message) = fault.map(|fault| (fault.why.to_owned(), fault.message)).unzip();
    RawRun { ok: why.is_none(), why, message, ..run }
}

/// The figures of the paper.
pub(crate) fn inside(counted: &CountedRun) -> RawRun {
    let sample = &counted.sample;
    RawRun {
        ns_per_op: sample.ns_per_op(),
        frag: sample.frag_virtual(),
        heap_bytes: Some(sample.memory.heap_mean),
        live_bytes: Some(sample.memory.live_mean),
        resident_bytes: Some(sample.memory.resident_mean),
        ops: Some(calls(sample)),
        latency: Latency::of(sample),
        split: sample.memory.split,
        curve: counted.curve.clone(),
        ..RawRun::default()
    }
}

fn calls(sample: &Sample) -> u64 {
    sample.classes().iter().map(|class| class.calls).sum()
}

/// A line for `sh -c`, and the option that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellLine {
    /// Named in errors.
    pub option: &'static str,
    /// Line that the shell runs.
    pub line: String,
}

impl ShellLine {
    /// Runs it to its end, without input; what it prints is dropped.
    ///
    /// # Errors
    /// When it cannot be started or does not succeed.
    pub fn run(&self) -> Result<()> {
        let option = self.option;
        // A file, not a pipe: a process that the line leaves running could hold a pipe open without end.
        let mut errors = tempfile::tempfile()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&self.line).stdin(Stdio::null()).stdout(Stdio::null());
        let status = shell.stderr(errors.try_clone()?).status();
        let status = status.with_context(|| format!("{option}: sh cannot be started"))?;
        if status.success() {
            return Ok(());
        }
        let mut bytes = vec![];
        errors.rewind()?;
        errors.read_to_end(&mut bytes)?;
        let errors = String::from_utf8_lossy(&bytes);
        let message = last_line(&errors).map_or_else(String::new, |line| format!(": {line}"));
        Err(Hinted::error(
            format!("the line of {option} failed ({status}){message}"),
            "run it by hand with sh -c; every such line must succeed",
        ))
    }
}

/// Makes each run between two lines. They are not part of what is measured.
pub struct Around<'a> {
    /// Executor that makes the runs.
    pub inner: &'a mut dyn Executor,
    /// The line that is run before each run.
    pub before: Option<ShellLine>,
    /// The line that is run after each run.
    pub after: Option<ShellLine>,
}

impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Around")
            .field("before", &self.before)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Executor for Around<'_> {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        self.before.as_ref().map_or(Ok(()), ShellLine::run)?;
        let run = self.inner.execute(step, limits)?;
        self.after.as_ref().map_or(Ok(()), ShellLine::run)?;
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(outcome: RunOutcome) -> Option<&'static str> {
        Fault::of(&outcome).map(|fault| fault.why)
    }

    #[test]
    fn how_a_run_ended_is_one_word() {
        let plain = RunOutcome::default;
        assert_eq!(why(plain()), None);
        assert_eq!(why(RunOutcome { exit: 3, ..plain() }), Some("exit"));
        assert_eq!(why(RunOutcome { exit: 137, ..plain() }), Some("exit"), "no crash");
        assert_eq!(why(RunOutcome { exit: 139, ..plain() }), Some("crash"), "of a child");
        assert_eq!(why(RunOutcome { exit: 139, signal: Some(11), ..plain() }), Some("crash"));
        let killed = RunOutcome { exit: 137, signal: Some(9), ..plain() };
        assert_eq!(why(RunOutcome { timed_out: true, ..killed.clone() }), Some("timeout"));
        assert_eq!(why(RunOutcome { excess: true, ..killed.clone() }), Some("excess"));
        let starved = RunOutcome { out_of_memory: true, ..killed.clone() };
        assert_eq!(Fault::of(&starved).unwrap().message, "the kernel killed it at the limit of its memory");
        assert_eq!(why(RunOutcome { hung: true, ..killed }), Some("hang"));
    }

    #[test]
    fn the_message_ends_with_the_programs_last_line() {
        let outcome =
            RunOutcome { exit: 2, stderr_tail: "one\n no such file \n\n".into(), ..RunOutcome::default() };
        assert_eq!(Fault::of(&outcome).unwrap().message, "exit 2: no such file");
    }

    fn line(line: &str) -> ShellLine {
        ShellLine { option: "--prepare", line: line.to_owned() }
    }

    #[test]
    fn a_failing_line_is_reported_with_the_end_of_its_output() {
        assert!(line("cat >/dev/null; echo unseen").run().is_ok());
        let error = line("echo no such disk >&2; exit 3").run().unwrap_err().to_string();
        assert!(error.contains("--prepare failed") && error.ends_with(": no such disk"), "{error}");
    }

    #[test]
    fn a_process_that_a_line_leaves_running_is_not_waited_for() {
        let began = std::time::Instant::now();
        assert!(line("sleep 60 &").run().is_ok());
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }
}
