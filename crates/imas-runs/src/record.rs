// SPDX-License-Identifier: Apache-2.0
//! The record of a run: figures from outside, and from inside where its calls were counted.

use imas_core::Sample;
use imas_core::run::{Latency, RawRun};
use imas_core::sample::is_crash_signal;
use imas_linux::measure::RunOutcome;

use crate::counted::CountedRun;

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
}
