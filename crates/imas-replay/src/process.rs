// SPDX-License-Identifier: Apache-2.0
//! The process of a trace whose replay stands for the whole program.

use crate::trace::file::{TraceHeader, TraceProcess};
use crate::trace::raw::Stop;

/// A process that used less of the run's CPU time than this says too little of the program.
const LEAST_SHARE: f64 = 0.5;

/// Why no process of a trace stands for the program.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum NoProcess {
    #[error("the trace reached its limit")]
    Limit,
    #[error("the recording ended before the program")]
    Time,
    #[error("the trace could not be written: the disk is full, or files may not grow so large")]
    File,
    /// Some processes left no raw file.
    #[error("the trace could not be written: its limit was reached, or the disk is full")]
    LeftOut,
    #[error("the program entered a sandbox that the recorder cannot write from")]
    Sandbox,
    /// The calls of the program do not reach the recorder.
    #[error("the program has an allocator of its own")]
    Unfit,
    #[error("no call of malloc was recorded: the program is static, or drops LD_PRELOAD")]
    Nothing,
    #[error(
        "the process with the most recorded calls ({calls}), with its repetitions, used {:.0} % of the CPU time; \
         the rest is in other processes, or in static ones, which cannot be recorded",
        share * 100.0
    )]
    Minor {
        calls: u64,
        /// [`cpu_share`].
        share: f64,
    },
    #[error(
        "its calls are spread over {processes} processes; those with the most made {:.0} % of them",
        share * 100.0
    )]
    Spread {
        processes: usize,
        /// Part of all calls that the busiest ones made, from 0 to 1.
        share: f64,
    },
}

impl NoProcess {
    /// The reason why the recording of a process says too little; None for one that was recorded to its end.
    #[must_use]
    pub fn of(stop: Stop) -> Option<Self> {
        match stop {
            Stop::None => None,
            Stop::Limit => Some(Self::Limit),
            Stop::Time => Some(Self::Time),
            Stop::File => Some(Self::File),
            Stop::Sandbox => Some(Self::Sandbox),
            Stop::Unfit => Some(Self::Unfit),
        }
    }

    /// The reason why a trace has no call.
    #[must_use]
    pub fn nothing_recorded(header: &TraceHeader) -> Self {
        let stopped = header.processes.iter().find_map(|process| Self::of(process.stop));
        let left_out = (header.left_out > 0).then_some(Self::LeftOut);
        stopped.or(left_out).unwrap_or(Self::Nothing)
    }
}

/// The process with the most calls.
#[must_use]
pub fn busiest(processes: &[TraceProcess]) -> Option<&TraceProcess> {
    processes.iter().max_by_key(|process| process.counts.calls)
}

/// The part of the run's CPU time that the process and its repetitions used, from 0 to 1. A script that starts a
/// program several times has several processes of the same work: those with as many calls, to a hundredth.
#[must_use]
pub fn cpu_share(process: &TraceProcess, header: &TraceHeader) -> f64 {
    let calls = process.counts.calls;
    let repeats = |other: &&TraceProcess| other.counts.calls.abs_diff(calls) <= calls / 100;
    // In a hostile header the sum of whole numbers would overflow.
    let cpu_ns: f64 = header.processes.iter().filter(repeats).map(|other| other.counts.cpu_ns as f64).sum();
    cpu_ns / 1e9 / header.cpu_s.max(f64::MIN_POSITIVE)
}

/// The process with the most calls.
///
/// # Errors
/// When its replay would say nothing of the program.
pub fn representative(header: &TraceHeader) -> Result<TraceProcess, NoProcess> {
    let process = busiest(&header.processes).filter(|process| process.counts.calls > 0);
    let Some(process) = process else {
        return Err(NoProcess::nothing_recorded(header));
    };
    if let Some(why) = NoProcess::of(process.stop) {
        return Err(why);
    }
    let share = cpu_share(process, header);
    if share < LEAST_SHARE {
        return Err(NoProcess::Minor { calls: process.counts.calls, share });
    }
    Ok(process.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(processes: &[(u64, u64, Stop)], left_out: u32) -> TraceHeader {
        let process = |&(calls, cpu_ns, stop): &(u64, u64, Stop)| {
            let mut process = TraceProcess { stop, ..TraceProcess::default() };
            (process.counts.calls, process.counts.cpu_ns) = (calls, cpu_ns);
            process
        };
        let processes = processes.iter().map(process).collect();
        TraceHeader { cpu_s: 1.0, left_out, processes, ..TraceHeader::default() }
    }

    fn chosen(processes: &[(u64, u64, Stop)], left_out: u32) -> Result<u64, NoProcess> {
        representative(&header(processes, left_out)).map(|process| process.counts.calls)
    }

    #[test]
    fn the_process_with_the_most_calls_stands_for_the_program() {
        let some = (10, 100_000_000, Stop::None);
        assert_eq!(chosen(&[some, (500, 600_000_000, Stop::None)], 0), Ok(500));
        let minor = Err(NoProcess::Minor { calls: 500, share: 0.4 });
        assert_eq!(chosen(&[some, (500, 400_000_000, Stop::None)], 0), minor);
    }

    #[test]
    fn a_program_that_is_started_several_times_is_one_program() {
        let sixth = |calls| (calls, 160_000_000, Stop::None);
        assert_eq!(chosen(&[1000, 1001, 999, 1000, 998, 995].map(sixth), 0), Ok(1001));
        assert!(chosen(&[1000, 800, 600, 400, 200, 100].map(sixth), 0).is_err());
        assert_eq!(chosen(&[(9, u64::MAX, Stop::None); 3], 0), Ok(9));
    }

    #[test]
    fn each_reason_against_a_recording_is_named() {
        assert_eq!(chosen(&[], 0), Err(NoProcess::Nothing));
        assert_eq!(chosen(&[(0, 0, Stop::Sandbox)], 0), Err(NoProcess::Sandbox));
        assert_eq!(chosen(&[(0, 0, Stop::None)], 3), Err(NoProcess::LeftOut));
        assert_eq!(chosen(&[(9, 900_000_000, Stop::Limit)], 0), Err(NoProcess::Limit));
    }
}
