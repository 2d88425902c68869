// SPDX-License-Identifier: Apache-2.0
//! The figures of a server's run, beside the figures of every run ([`crate::run::RawRun`]).

pub mod work;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use work::DayFigures;

/// One run of a server. Candidates are compared by its `figures`:
///
/// | name | what |
/// | --- | --- |
/// | `ready` | seconds from the start until it is ready |
/// | `rate` | requests per second as counted by the load; without such a figure, cycles per second |
/// | `cycle` | seconds of one cycle, median |
/// | `cpu` | CPU seconds of the server for one cycle, mean: the scheduler's run time where there is a control group |
/// | `cpu_ticks` | the same by the ticks of its processes, which nothing is compared by |
/// | `p50` `p90` `p99` `p99.9` | latency, ms |
/// | `errors` | requests that failed |
/// | `memory` | resident anonymous memory under load, by work ([`work`]), bytes |
/// | `memory_ready`, `memory_peak`, `memory_idle` | when ready, at most, after the pause |
/// | `memory_day`, `memory_day_busy` ... | over a day and over its parts ([`work`]) |
/// | `open_p50` `open_p99` ... | latency at a fixed rate of requests, ms; `open_rate` is that rate |
/// | `memory_slope` | growth per cycle, bytes |
/// | `threads` | at most |
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ServerRun {
    /// The reason why the run is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The figures by name.
    pub figures: BTreeMap<String, Figure>,
    /// Cycle by cycle.
    pub cycles: Vec<CycleFigures>,
    /// The parts of the day, where the service has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub day: Vec<DayFigures>,
    /// The memory by its use, as a counted run shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveMemory>,
    /// Rate at which the open loop was asked to send, requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_rate: Option<f64>,
    /// Memory over time: seconds since the start, and bytes.
    pub curve: Vec<(f64, u64)>,
    /// Some lines of the load run for a fixed time: a faster server gets more work, so CPU time is not
    /// comparable.
    pub by_clock: bool,
    /// The kernel counted the server's CPU time in a control group. Otherwise the process tree was followed.
    pub control_group: bool,
    /// For a candidate with a library: number of the server's processes that have loaded it, and number of
    /// all its processes, at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<(usize, usize)>,
    /// Under `system`: what serves malloc in the server's processes, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub malloc_by: Vec<String>,
    /// Under `system`: file of the server's processes that looks for functions of jemalloc beside malloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_for_jemalloc: Option<String>,
    /// The key of an older IMAS, which named a library even where a C library was preloaded before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub malloc: Vec<String>,
    /// Under `system` and settings of glibc: the heaps of glibc in each process of the server, at the end of
    /// the last cycle. Empty in the journals of an older IMAS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heaps: Vec<ArenaHeaps>,
    /// Heaps of glibc in each process of the server after the pause, as in `heaps`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heaps_idle: Vec<ArenaHeaps>,
    /// The CPUs of server and load.
    pub cpus: CpuShare,
    /// Further remarks for the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ServerRun {
    /// A run with nothing but its figures.
    pub fn of(figures: impl IntoIterator<Item = Figure>) -> Self {
        let named = figures.into_iter().map(|figure| (figure.name.clone(), figure));
        Self { figures: named.collect(), ..Self::default() }
    }

    /// Adds a figure under its name.
    pub fn record(&mut self, figure: Figure) {
        self.figures.insert(figure.name.clone(), figure);
    }

    /// A figure's value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|figure| figure.value)
    }
}

/// Memory in live blocks beside all that is resident, bytes, as the hook counts it in a counted run.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct LiveMemory {
    /// Resident and live under load, by work.
    pub load: [f64; 2],
    /// Resident and live at the end of the pause.
    pub idle: [f64; 2],
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

/// Arenas of glibc's malloc in one process, heap by heap, with its other anonymous memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArenaHeaps {
    /// Name of the process, as `ps` prints it.
    pub process: String,
    /// Threads of the process.
    pub threads: u64,
    /// Resident anonymous bytes of the whole process.
    pub bytes: u64,
    /// Resident bytes in `[heap]`.
    pub main_bytes: u64,
    /// Resident bytes in each heap of the other arenas, in the order of their addresses.
    pub heap_bytes: Vec<u64>,
    /// Contents of the heaps, as far as they can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldMemory>,
}

impl ArenaHeaps {
    /// Resident bytes of all heaps.
    #[must_use]
    pub fn all_heap_bytes(&self) -> u64 {
        self.main_bytes + self.heap_bytes.iter().sum::<u64>()
    }
}

/// Resident memory of one process by its use, bytes, read from outside. What processes share since a fork counts in
/// parts, as in [`ArenaHeaps::bytes`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldMemory {
    /// Blocks of the program in heaps.
    pub live: u64,
    /// Freed blocks that threads keep for themselves.
    pub cached: u64,
    /// Free memory of heaps in whole resident pages.
    pub free_pages: u64,
    /// Stacks of the threads.
    pub stacks: u64,
    /// Some part was estimated: the heaps changed too fast, or reading them took too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_estimate: bool,
}

/// Memory of all processes of a server at one moment by its use, bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MemoryByUse {
    /// All anonymous memory.
    pub resident: f64,
    /// Blocks of the program in heaps.
    pub live: f64,
    /// Freed blocks that threads keep for themselves.
    pub cached: f64,
    /// Free blocks that are no whole page, and what the heaps hold beside.
    pub free_blocks: f64,
    /// Free memory in whole pages.
    pub free_pages: f64,
    /// Stacks of threads.
    pub stacks: f64,
    /// Other anonymous memory: large blocks, which are live as a rule, and what is not malloc's.
    pub other: f64,
}

impl MemoryByUse {
    /// Memory of these processes; None without a process, and where one was not read.
    #[must_use]
    pub fn of(heaps: &[ArenaHeaps]) -> Option<Self> {
        let mut all = Self::default();
        for one in heaps {
            let held = one.held?;
            let in_heaps = one.all_heap_bytes();
            all.resident += one.bytes as f64;
            all.live += held.live as f64;
            all.cached += held.cached as f64;
            all.free_blocks += in_heaps.saturating_sub(held.live + held.cached + held.free_pages) as f64;
            all.free_pages += held.free_pages as f64;
            all.stacks += held.stacks as f64;
            all.other += one.bytes.saturating_sub(in_heaps + held.stacks) as f64;
        }
        (!heaps.is_empty()).then_some(all)
    }

    /// Most bytes that an allocator could save: all that is resident in heaps and not live.
    #[must_use]
    pub fn possible(&self) -> f64 {
        self.cached + self.free_blocks + self.free_pages
    }
}

/// Name of the C library's own malloc in [`ServerRun::malloc_by`].
pub const C_LIBRARY: &str = "the C library";
/// The name there of a program without a C library of its own in memory: linked statically, as programs in Go are.
pub const STATIC: &str = "linked statically";

/// The CPUs of server and load. Empty lists: both may use all.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuShare {
    /// CPUs of the server.
    pub server: Vec<usize>,
    /// CPUs of the load.
    pub load: Vec<usize>,
}

impl CpuShare {
    /// Whether the load has CPUs of its own.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        !self.load.is_empty()
    }
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
    /// A failure that is not explained by a signal or by the server's output.
    #[must_use]
    pub fn new(stage: Stage, what: String) -> Self {
        Self { stage, what, signal: None, server: String::new() }
    }

    /// [`crate::run::RawRun::why`] of the run.
    #[must_use]
    pub fn why(&self) -> &'static str {
        match self.stage {
            _ if self.signal.is_some() => "crash",
            Stage::Prepare | Stage::Taken | Stage::Ready => "ready",
            Stage::Load => "load",
            Stage::Died | Stage::Idle | Stage::Stop => "exit",
            Stage::Timeout => "timeout",
        }
    }
}

/// Whether a lower or a higher value is better.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    #[default]
    Lower,
    /// More is better.
    Higher,
}

/// A named figure.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Figure {
    /// One of the names in [`ServerRun::figures`].
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// `s`, `ms`, `B`, `1/s` or a unit that the load defines; empty for a count.
    pub unit: String,
    /// Direction.
    pub better: Better,
}

impl Figure {
    /// A figure that is better when it is less; `unit` is the unit of `value`.
    pub fn lower(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.to_owned(), value, unit: unit.to_owned(), better: Better::Lower }
    }

    /// A figure that is better when it is more; `unit` is the unit of `value`.
    pub fn higher(name: &str, value: f64, unit: &str) -> Self {
        Self { better: Better::Higher, ..Self::lower(name, value, unit) }
    }
}

/// Combines several values of one figure. Counts are added. All else is averaged geometrically, so that each
/// part has the same weight at any size.
pub fn together(figures: &[&Figure]) -> Option<Figure> {
    let first = *figures.first()?;
    if figures.len() == 1 {
        return Some(first.clone());
    }
    let n = figures.len() as f64;
    let value = if first.unit.is_empty() {
        figures.iter().fold(0.0, |sum, one| sum + one.value)
    } else if figures.iter().all(|one| one.value > 0.0) {
        (figures.iter().map(|one| one.value.ln()).sum::<f64>() / n).exp()
    } else {
        figures.iter().map(|one| one.value).sum::<f64>() / n
    };
    Some(Figure { value, ..first.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_latencies_average() {
        let errors = [Figure::lower("errors", 1.0, ""), Figure::lower("errors", 2.0, "")];
        assert_eq!(together(&errors.iter().collect::<Vec<_>>()).unwrap().value, 3.0);
        let p99 = [Figure::lower("p99", 1.0, "ms"), Figure::lower("p99", 4.0, "ms")];
        assert!((together(&p99.iter().collect::<Vec<_>>()).unwrap().value - 2.0).abs() < 1e-12);
        assert_eq!(together(&[]), None);
    }
}
