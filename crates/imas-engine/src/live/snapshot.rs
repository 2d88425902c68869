// SPDX-License-Identifier: Apache-2.0
//! Findings of one look at the machine. Plain data, serialisable. Names are not escaped: code that prints one
//! escapes it ([`imas_core::printable`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use imas_cli::format::when;
use imas_core::adaptive::Weight;
use imas_core::printable::{self, counted};
use imas_core::stats::Interval;
use imas_linux::index::ServiceUnit;
use imas_linux::serving::Injected;
use serde::{Serialize, Serializer};

use crate::memory_look::MemoryAnswer;

/// The machine and its processes at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveSnapshot {
    /// Version of this format.
    pub schema: u32,
    /// When the look was made, Unix time in seconds.
    pub at_unix_s: f64,
    /// Time since the first look of this observer, seconds.
    pub observed_s: f64,
    /// The processes that this user may look into, by pid.
    pub processes: Vec<LiveProcess>,
    /// Number of processes that belong to other users and may not be looked into.
    pub hidden: usize,
    /// Number of processes that were not looked at, or not to the end: looks at processes of the same owner,
    /// pod or container took too long, or a process has too much to be looked at.
    pub unseen: usize,
    /// The machine.
    pub machine: MachineState,
    /// Whether imasd runs.
    pub daemon: bool,
    /// Sources that could not be read, for people: a store that is damaged, a trial page.
    pub problems: Vec<String>,
}

/// One running process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveProcess {
    /// Id of the process.
    pub pid: u32,
    /// Id of the parent process.
    pub parent: u32,
    /// Clock ticks from boot to its start: with the pid, its identity.
    pub start_ticks: u64,
    /// Effective uid of the process.
    pub uid: u32,
    /// The program as IMAS names it: the executable, and for an interpreter what it runs.
    pub program: String,
    /// Path of the executable.
    pub path: String,
    /// Target of an interpreter, or the service; empty for most programs.
    pub detail: String,
    /// Number of the program in the store; None where the store does not know it.
    pub number: Option<i64>,
    /// The store that knows the program.
    pub store: Option<StoreKind>,
    /// The service of the process, of the system or of a user.
    pub unit: Option<ServiceUnit>,
    /// The allocator that is really mapped: its name in the catalogue, else the library's file name.
    pub allocator: String,
    /// The candidate, as far as mappings and environment show it.
    pub candidate: Option<String>,
    /// Settings of allocators in the environment that it was started with; None if that may not be read.
    pub settings: Option<BTreeMap<String, String>>,
    /// Part of IMAS that is in the process.
    pub injected: Injected,
    /// Number of threads.
    pub threads: u64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Bytes in live blocks, by the hook's estimate; None outside of a trial.
    pub live_bytes: Option<u64>,
    /// Free pages in glibc's heaps that `malloc_trim(0)` would return, bytes; None where that was not read.
    pub returnable_bytes: Option<u64>,
    /// Verdict on its memory, with its parts; None where nobody has looked yet.
    #[serde(serialize_with = "shared")]
    pub memory: Option<Arc<MemoryAnswer>>,
    /// Change of the resident memory per hour since the observer first saw the process, bytes; None before
    /// it has been seen for some seconds.
    pub growth_bytes_per_hour: Option<f64>,
    /// CPU time since the last look, as a share of one CPU; None at the first look.
    pub cpu_share: Option<f64>,
    /// State of its program under IMAS.
    pub state: ProcessState,
    /// Candidates that are quarantined for its program.
    pub quarantined: Vec<String>,
    /// Gain of a restart; None where that is not known, or nothing.
    pub gain: Option<LiveGain>,
}

fn shared<S: Serializer>(answer: &Option<Arc<MemoryAnswer>>, to: S) -> Result<S::Ok, S::Error> {
    answer.as_deref().serialize(to)
}

/// The store that knows a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// The user's own, kept by `imas run`.
    Own,
    /// The machine's, kept by imasd.
    System,
}

/// State under IMAS of the program of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum ProcessState {
    /// This process is a trial.
    Trial {
        /// The candidate on trial.
        candidate: String,
        /// The number of this trial of the candidate, from 1 on.
        number: u32,
        /// The most trials of a candidate; fewer may do.
        of: u32,
    },
    /// The candidate that it was started with, or that its service was given, does not serve.
    Lost {
        /// The candidate, or its library.
        candidate: String,
    },
    /// The tests are done.
    Settled {
        /// The candidate of the next starts.
        candidate: String,
        /// When the candidate was settled, Unix time in seconds, as far as the decisions are kept.
        since_unix_s: Option<f64>,
    },
    /// Further trials are due at later starts.
    Testing {
        /// Trials stored so far.
        trials: usize,
        /// The candidate of the next start.
        next: String,
    },
    /// The user chose.
    Pinned {
        /// The candidate.
        candidate: String,
    },
    /// The user excluded the program.
    Excluded,
    /// The candidate that would be used crashed the program or made it hang.
    Quarantined {
        /// The candidate in quarantine.
        candidate: String,
        /// The candidate of the next starts in its place.
        instead: String,
    },
    /// IMAS cannot or must not serve the program.
    LeftAlone {
        /// The reason, for people.
        why: String,
    },
    /// Nothing is known of the program.
    Unknown,
}

impl ProcessState {
    /// The state in a word or two: what stands before the colon of [`Self::words`].
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Trial { .. } => "trial",
            Self::Lost { .. } => "lost",
            Self::Settled { .. } => "settled",
            Self::Testing { .. } => "testing",
            Self::Pinned { .. } => "pinned",
            Self::Excluded => "excluded",
            Self::Quarantined { .. } => "quarantined",
            Self::LeftAlone { .. } => "left alone",
            Self::Unknown => "nothing known",
        }
    }

    /// The state as `imas top`, `imas explain` and the pages have it. Names are escaped.
    #[must_use]
    pub fn words(&self) -> String {
        let more = match self {
            Self::Trial { candidate, number, of } => format!("{candidate}, {number} of at most {of}"),
            Self::Lost { candidate } | Self::Pinned { candidate } => candidate.clone(),
            Self::Settled { candidate, since_unix_s: None } => candidate.clone(),
            Self::Settled { candidate, since_unix_s: Some(since) } => {
                let day: String = when(*since).chars().take(10).collect();
                format!("{candidate} since {day}")
            }
            Self::Testing { trials, next } => format!("{}, next {next}", counted(*trials, "trial")),
            Self::Quarantined { candidate, instead } => format!("{candidate}, {instead} instead"),
            Self::LeftAlone { why } => why.clone(),
            Self::Excluded | Self::Unknown => return self.word().to_owned(),
        };
        printable::name(&format!("{}: {more}", self.word())).into_owned()
    }
}

/// How certain a gain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The policy takes the gain for proven, by the program's trials.
    Proven,
    /// The change has trials, and the policy does not take it for proven.
    NotProven,
    /// The state of this process alone gives the figure; no trial was made.
    Estimate,
}

/// Gain of a restart of a process under another candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveGain {
    /// The candidate after the restart.
    pub candidate: String,
    /// Bytes of resident memory saved, with the 95 % interval; negative: more.
    pub memory_bytes: Option<Interval>,
    /// CPU time saved, per cent, with the 95 % interval; negative: more.
    pub cpu_percent: Option<Interval>,
    /// How certain the gain is.
    pub certainty: Certainty,
    /// Trials of the present candidate and of the other candidate.
    pub trials: [usize; 2],
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineState {
    /// CPUs online.
    pub cpus: u32,
    /// Load average over five minutes.
    pub load5: f64,
    /// All memory, bytes.
    pub memory_bytes: u64,
    /// Memory that programs can have without swapping, bytes.
    pub available_bytes: u64,
    /// Time lost by waiting (PSI).
    pub pressure: PressureStalls,
    /// Consequences for the policy: how short CPU and memory are, and the weight of CPU in the score.
    pub weight: Weight,
    /// The weight of CPU as a word.
    pub preference: Preference,
}

/// Shares of the last minute in which tasks waited, per cent; None where the kernel does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PressureStalls {
    /// Some task waited for a CPU.
    pub cpu_some: Option<f64>,
    /// Some task waited for memory.
    pub memory_some: Option<f64>,
    /// All tasks waited for memory.
    pub memory_full: Option<f64>,
    /// Some task waited for a disk.
    pub io_some: Option<f64>,
    /// All tasks waited for a disk.
    pub io_full: Option<f64>,
}

/// Preference of the policy at the present pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// CPU is short: the fastest candidate.
    Fastest,
    /// CPU and memory matter alike.
    Balanced,
    /// Memory is short: the leanest candidate.
    Leanest,
}

impl Preference {
    /// The preference that a weight of CPU, 0 to 1, stands for. The limits are the same as in the reasons of
    /// a decision.
    #[must_use]
    pub fn of_weight(weight: f64) -> Self {
        match weight {
            w if w > 0.75 => Self::Fastest,
            w if w < 0.25 => Self::Leanest,
            _ => Self::Balanced,
        }
    }

    /// The preference in words, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Fastest => "CPU is short: the fastest candidate",
            Self::Balanced => "CPU and memory alike",
            Self::Leanest => "memory is short: the leanest candidate",
        }
    }
}
