// SPDX-License-Identifier: Apache-2.0
//! A program in a session: its limits, what its runs showed so far, and how much free memory is touched before each of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use imas_core::bench::OutputCheck;
use imas_core::candidate::SYSTEM;
use imas_core::hang::{self, hang_threshold_s};
use imas_core::raw_runs::OTHER_OUTPUT;
use imas_core::run::RawRun;
use imas_linux::pace::{Touch, enough_for, prefault_after_a_while};
use imas_linux::standstill::Most;

use crate::executor::{Execution, RunLimits};

/// How long a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// Each run may take this long.
    After(Duration),
    /// Twenty times as long as the first run, a minute at least; that one a day.
    ByFirstRun,
    /// The first run so long; later ones twenty times as long as the first, and at least as long as this, or
    /// as a minute where this is longer.
    FirstWithin(Duration),
}

/// A run may take at least this long whatever the first one took.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How many times as long as the first run.
const TIMEOUT_FACTOR: u32 = 20;
/// The first run's limit.
const FIRST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A program in a session.
#[derive(Debug)]
pub struct Subject {
    /// Name of the program in the records.
    pub name: String,
    /// How long a run may take.
    pub timeout: Timeout,
    /// Whether a run is ended that uses no CPU time for far longer than any under `system` took, or takes many
    /// times what any took.
    pub watches_standstill: bool,
    /// Outputs of the program under `system`.
    pub outputs: OutputCheck,
    /// Most memory of the program's runs, and the times of touching free memory.
    pub prefault: Prefault,
    /// Why runs of the program do not count, by candidate.
    pub failures: BTreeMap<String, Vec<String>>,
    /// Whether the program is left out: nothing more is done with it.
    pub(crate) left_out: bool,
    first_wall_s: Option<f64>,
    /// Wall time of the slowest run under `system`, in seconds.
    slowest_s: Option<f64>,
    /// The most that a run under system took.
    most: Option<Most>,
}

impl Subject {
    /// A program that was not run yet.
    #[must_use]
    pub fn new(name: &str, timeout: Timeout) -> Self {
        Self {
            name: name.to_owned(),
            timeout,
            watches_standstill: false,
            outputs: OutputCheck::default(),
            prefault: Prefault::default(),
            failures: BTreeMap::new(),
            left_out: false,
            first_wall_s: None,
            slowest_s: None,
            most: None,
        }
    }

    /// Whether nothing more is done with the program.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// The limits of the next run under that candidate.
    pub(crate) fn limits(&self, candidate: &str) -> RunLimits {
        let (first, shortest) = match self.timeout {
            Timeout::After(timeout) => (timeout, None),
            Timeout::ByFirstRun => (FIRST_TIMEOUT, Some(SHORTEST_TIMEOUT)),
            Timeout::FirstWithin(first) => (first, Some(first.min(SHORTEST_TIMEOUT))),
        };
        let by_first = |(shortest, wall_s)| {
            let times: Duration = Duration::from_secs_f64(wall_s) * TIMEOUT_FACTOR;
            times.max(shortest)
        };
        let timeout = shortest.zip(self.first_wall_s).map_or(first, by_first);
        // How long the program takes is known from system alone, and so is how long it is idle by
        // itself.
        let still = self.slowest_s.filter(|_| self.watches_standstill && candidate != SYSTEM);
        let still = still.map(|slowest_s| Duration::from_secs_f64(hang_threshold_s(slowest_s)));
        let most = self
            .most
            .filter(|_| still.is_some())
            .map(|most| Most { cpu_s: hang::cpu_limit_s(most.cpu_s), bytes: hang::bytes_limit(most.bytes) });
        RunLimits { timeout, still, most, prefault_bytes: self.prefault.bytes() }
    }

    /// Learns from a run that was made what the next runs may take.
    pub(crate) fn saw(&mut self, candidate: &str, run: &Execution) {
        let wall_s = run.record.wall_s;
        self.first_wall_s.get_or_insert(wall_s);
        if candidate == SYSTEM {
            self.slowest_s = Some(self.slowest_s.unwrap_or(0.0).max(wall_s));
            self.most = Some(larger(self.most.unwrap_or_default(), run));
        }
        self.prefault.saw(run.record.peak_bytes, run.outcome.prefaulted);
    }

    /// Takes over runs of earlier sessions: their peak memory, what they wrote under `system` and why they
    /// failed.
    pub fn resume<'a>(&mut self, runs: impl Iterator<Item = &'a RawRun>) {
        let name = self.name.clone();
        for run in runs.filter(|run| run.program == name) {
            self.prefault.saw(run.peak_bytes, None);
            if run.is_nobodys_failure() {
                continue;
            }
            if !run.ok {
                self.failed(&run.candidate, run.why.as_deref().unwrap_or_default());
            } else if let Some(output) = run.output.as_deref().filter(|_| run.candidate == SYSTEM) {
                self.outputs.see(output);
            }
        }
    }

    pub(crate) fn failed(&mut self, candidate: &str, why: &str) {
        self.failures.entry(candidate.to_owned()).or_default().push(why.to_owned());
    }

    /// The output turned out to vary: no candidate is rejected for a different output.
    pub(crate) fn accept_outputs(&mut self) {
        self.failures.values_mut().for_each(|whys| whys.retain(|why| why != OTHER_OUTPUT));
    }

    pub(crate) fn failures_of(&self, candidate: &str) -> usize {
        self.failures.get(candidate).map_or(0, Vec::len)
    }
}

/// The most that a run took: `most`, or what this run took where that is more.
fn larger(most: Most, run: &Execution) -> Most {
    let RawRun { user_s, system_s, peak_bytes, .. } = run.record;
    #[expect(clippy::cast_precision_loss, reason = "a limit of many times as much")]
    let bytes = peak_bytes as f64;
    Most { cpu_s: most.cpu_s.max(user_s + system_s), bytes: most.bytes.max(bytes) }
}

/// Touching that takes this multiple of its shortest time waits for the host ...
const TIMES: f64 = 5.0;
/// ... if it takes a second a GiB at least: small pages cleared by the kernel take half of that.
const S_PER_GIB: f64 = 1.0;

/// Most memory of the runs so far, and the times of touching free memory.
#[derive(Debug, Default)]
pub struct Prefault {
    most_bytes: Cell<u64>,
    touches: RefCell<Vec<Touch>>,
}

impl Prefault {
    /// How much to touch before the next run, in bytes.
    pub fn bytes(&self) -> u64 {
        enough_for(self.most_bytes.get())
    }

    /// A run was made that took that number of bytes; None where no memory was touched before it.
    pub fn saw(&self, peak_bytes: u64, touch: Option<Touch>) {
        self.most_bytes.set(self.most_bytes.get().max(peak_bytes));
        self.touches.borrow_mut().extend(touch);
    }

    /// Note for readers on a machine that gives free memory back to its host.
    pub fn note(&self) -> Option<String> {
        self.extremes().and_then(Extremes::note)
    }

    /// Gives free memory the time to go, and looks again.
    pub fn look_after_a_while(&self) {
        self.touches.borrow_mut().extend(prefault_after_a_while());
    }

    /// The quickest and the slowest touch of free memory; None before anything was touched.
    pub fn extremes(&self) -> Option<Extremes> {
        let costs: Vec<f64> = self.touches.borrow().iter().map(Touch::s_per_gib).collect();
        Extremes::of(&costs)
    }
}

/// Time of touching free memory, in seconds a GiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extremes {
    /// Seconds a GiB at its quickest.
    pub least: f64,
    /// Seconds a GiB at its slowest.
    pub most: f64,
}

impl Extremes {
    fn of(costs: &[f64]) -> Option<Self> {
        let least = costs.iter().copied().min_by(f64::total_cmp)?;
        let most = costs.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { least, most })
    }

    /// Free memory was away now and then.
    pub fn is_given_back(self) -> bool {
        self.most >= S_PER_GIB && self.most >= TIMES * self.least
    }

    fn note(self) -> Option<String> {
        let Self { least, most } = self;
        self.is_given_back().then(|| {
            format!(
                "free memory is not always there on this machine, which seems to give it back to a host: touching it took {most:.1} s of CPU a GiB at worst, {least:.2} s at best; it is touched before each run, so that none of \
                 this is in the figures. A program that starts when nothing was freed for seconds pays it, most with candidates that use huge pages"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_only_for_a_machine_whose_free_memory_is_sometimes_away() {
        let note = |costs: &[f64]| Extremes::of(costs).and_then(Extremes::note);
        assert!(note(&[]).is_none());
        assert!(note(&[0.05, 0.06, 0.4]).is_none(), "large ratio, little time");
        assert!(note(&[1.2, 1.1, 1.4]).is_none(), "a slow machine");
        let note_text = note(&[0.07, 2.52, 0.08]).unwrap();
        assert!(note_text.contains("2.5 s of CPU a GiB") && note_text.contains("0.07 s"), "{note_text}");
    }
}
