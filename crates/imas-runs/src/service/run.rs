// SPDX-License-Identifier: Apache-2.0
//! The record of one run of a service under one candidate: a line of JSON in a journal.

use std::collections::BTreeMap;

use crate::executor::Execution;
use imas_core::pace::Pace;
use imas_core::run::RawRun;
use imas_linux::arenas::ArenaHeaps;
use imas_linux::measure::RunOutcome;
use serde::{Deserialize, Serialize};

use crate::service::cpus::CpuShare;
use crate::service::figure::Figure;

/// One run. Candidates are compared by its `figures`:
///
/// | name | what |
/// | --- | --- |
/// | `ready` | seconds from the start until it is ready |
/// | `rate` | requests per second as counted by the load; without such a figure, cycles per second |
/// | `cycle` | seconds of one cycle, median |
/// | `cpu` | CPU seconds of the server for one cycle, mean |
/// | `p50` `p90` `p99` `p99.9` | latency, ms |
/// | `errors` | requests that failed |
/// | `memory` | resident anonymous memory, mean under load, bytes |
/// | `memory_ready`, `memory_peak`, `memory_idle` | when ready, at most, after the pause |
/// | `memory_slope` | growth per cycle, bytes |
/// | `threads` | at most |
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ServiceRun {
    /// The service.
    pub service: String,
    /// The candidate.
    pub candidate: String,
    /// Round, from 0.
    pub round: u32,
    /// When the run began, Unix time in seconds.
    pub at_s: f64,
    /// Seconds of the whole run, with its helpers and the cleaning up.
    pub took_s: f64,
    /// The reason why the run is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The figures by name.
    pub figures: BTreeMap<String, Figure>,
    /// Cycle by cycle.
    pub cycles: Vec<CycleFigures>,
    /// Memory over time: seconds since the start, and bytes.
    pub curve: Vec<(f64, u64)>,
    /// CPU seconds of the cycles in user mode and in the kernel.
    pub cpu_s: (f64, f64),
    /// Speed of the CPUs during the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Some lines of the load run for a fixed time: a faster server gets more work, so CPU time is not
    /// comparable.
    pub by_clock: bool,
    /// The kernel counted the server's CPU time in a control group. Otherwise the process tree was followed.
    pub control_group: bool,
    /// For a candidate with a library: number of the server's processes that have loaded it, and number of
    /// all its processes, at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<(usize, usize)>,
    /// Under `system` and settings of glibc: the heaps of glibc in each process of the server, at the end of
    /// the last cycle. Empty in the journals of an older IMAS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heaps: Vec<ArenaHeaps>,
    /// Heaps of glibc in each process of the server after the pause, as in `heaps`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heaps_idle: Vec<ArenaHeaps>,
    /// The CPUs of server and load.
    pub cpus: CpuShare,
    /// Load average of the machine before the run, one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Further remarks for the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ServiceRun {
    /// Whether the run is valid.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.failure.is_none()
    }

    /// Adds a figure under its name.
    pub fn record(&mut self, figure: Figure) {
        self.figures.insert(figure.name.clone(), figure);
    }

    /// What every run has.
    #[must_use]
    pub fn raw(&self) -> RawRun {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let bytes = |name| self.value(name).map_or(0, |bytes| bytes as u64);
        let (why, message) =
            self.failure.as_ref().map(|failure| (failure.why().to_owned(), failure.what.clone())).unzip();
        RawRun {
            program: self.service.clone(),
            candidate: self.candidate.clone(),
            round: self.round,
            at_s: self.at_s,
            ok: self.is_ok(),
            why,
            message,
            user_s: self.cpu_s.0,
            system_s: self.cpu_s.1,
            wall_s: self.took_s,
            mean_bytes: bytes("memory"),
            peak_bytes: bytes("memory_peak"),
            pace: self.pace,
            load1: self.load1,
            ..RawRun::default()
        }
    }

    /// This run as an execution for the runner, which measures services as it measures commands.
    #[must_use]
    pub fn execution(self) -> Execution<Self> {
        let signal = self.failure.as_ref().and_then(|failure| failure.signal);
        let outcome = RunOutcome { signal, ..RunOutcome::default() };
        Execution { record: self.raw(), outcome, detail: self, ..Execution::default() }
    }

    /// A figure's value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|figure| figure.value)
    }
}

/// One cycle of load.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct CycleFigures {
    /// Elapsed seconds.
    pub wall_s: f64,
    /// CPU seconds of the server.
    pub cpu_s: f64,
    /// Resident anonymous memory at the end of the cycle, bytes.
    pub end_bytes: u64,
    /// The lines of the load.
    pub phases: Vec<PhaseFigures>,
}

/// One line of the load.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct PhaseFigures {
    /// Elapsed seconds.
    pub wall_s: f64,
    /// Figures from the output of the line.
    pub figures: Vec<Figure>,
}

/// The stage in which a run failed.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The run failed before the server was started.
    Prepare,
    /// The port or socket of the service was in use.
    Taken,
    /// The server was not ready in time, or ended before.
    Ready,
    /// The server ended under load.
    Died,
    /// The load failed.
    Load,
    /// The server ended in the pause.
    Idle,
    /// The server crashed when it was asked to end.
    Stop,
    /// The run took longer than its time limit.
    Timeout,
}

impl Stage {
    /// Whether the server failed. Under a candidate, that is a failure of the candidate.
    #[must_use]
    pub fn is_of_the_server(self) -> bool {
        !matches!(self, Self::Prepare | Self::Taken)
    }
}

/// The reason why a run is not valid.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The stage.
    pub stage: Stage,
    /// Description in a sentence.
    pub what: String,
    /// The signal that ended the server, unless it was sent by the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The last lines that the server printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
}

impl Failure {
    /// [`RawRun::why`] of the run.
    fn why(&self) -> &'static str {
        match self.stage {
            _ if self.signal.is_some() => "crash",
            Stage::Prepare | Stage::Taken | Stage::Ready => "ready",
            Stage::Load => "load",
            Stage::Died | Stage::Idle | Stage::Stop => "exit",
            Stage::Timeout => "timeout",
        }
    }

    /// A failure that is not explained by a signal or by the server's output.
    pub(crate) fn new(stage: Stage, what: String) -> Self {
        Self { stage, what, signal: None, server: String::new() }
    }
}
