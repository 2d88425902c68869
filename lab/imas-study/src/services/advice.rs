// SPDX-License-Identifier: Apache-2.0
//! What `imas advise` would have estimated for a measured service, beside what the advised setting really
//! saved.

use imas_core::SYSTEM;
use imas_core::server_run::ArenaHeaps;
use imas_core::stats::median;
use imas_linux::arena_estimate::{CANDIDATE, LEAST_BYTES, saving};
use imas_linux::arenas::Arenas;
use serde::Serialize;

use crate::services::round_changes::RoundChanges;
use imas_core::run::RawRun;
use imas_runs::service::margin;

/// Whether the advice was right. A saving counts from the margin of memory on; without advice also only
/// where it is large enough for advice.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum AdviceVerdict {
    /// Advice was given, and the setting saves memory.
    Right,
    /// Advice was given, and the setting saves nothing.
    Wrong,
    /// No advice was given, and the setting would save too little.
    RightlySilent,
    /// No advice was given, and the setting would save enough memory for advice.
    Missed,
}

/// The advice for one service, beside what was measured.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct AdvisedService {
    /// Name of the service.
    pub service: String,
    /// Number of runs under `system` with what `advise` looks at.
    pub runs: usize,
    /// Medians over those runs, of all processes together: heaps of arenas beside the first, ...
    pub heaps: f64,
    /// ... resident bytes in them, ...
    pub heap_bytes: f64,
    /// ... in `[heap]`, ...
    pub main_bytes: f64,
    /// ... and of all anonymous memory.
    pub bytes: f64,
    /// Share of the memory that the estimate saves; None where `advise` says nothing.
    pub estimated: Option<f64>,
    /// Share of the mean memory that the advised setting saved; below 0 it took more.
    pub measured: f64,
    /// The verdict.
    pub verdict: AdviceVerdict,
}

impl AdvisedService {
    /// Advice for a service and what its runs show. None without a run that has the figures, or without a run
    /// of the advised setting beside it.
    #[must_use]
    pub fn of(changes: &RoundChanges, runs: &[RawRun]) -> Option<Self> {
        let candidate = changes.candidates.iter().position(|name| name == CANDIDATE)?;
        let measured = median(&changes.changes(candidate, &changes.rounds, "memory"))?;
        let measured = -measured.exp_m1();
        let is_one = |run: &&RawRun| {
            run.program == changes.service
                && run.candidate == SYSTEM
                && run.ok
                && !run.of_server().heaps.is_empty()
        };
        let seen: Vec<&[ArenaHeaps]> =
            runs.iter().filter(is_one).map(|run| run.of_server().heaps.as_slice()).collect();
        let middle = |of: fn(&ArenaHeaps) -> f64| {
            median(&seen.iter().map(|heaps| heaps.iter().map(of).sum()).collect::<Vec<f64>>())
        };
        let shares: Vec<f64> = seen.iter().map(|heaps| estimated_share(heaps).unwrap_or(0.0)).collect();
        let estimated = median(&shares).filter(|share| *share > 0.0);
        let is_saving = measured >= margin("memory");
        let is_worth_it = is_saving && measured * changes.memory_bytes? >= LEAST_BYTES;
        let verdict = match estimated {
            Some(_) if is_saving => AdviceVerdict::Right,
            Some(_) => AdviceVerdict::Wrong,
            None if is_worth_it => AdviceVerdict::Missed,
            None => AdviceVerdict::RightlySilent,
        };
        Some(Self {
            service: changes.service.clone(),
            runs: seen.len(),
            heaps: middle(|one| one.heap_bytes.len() as f64)?,
            heap_bytes: middle(|one| one.heap_bytes.iter().sum::<u64>() as f64)?,
            main_bytes: middle(|one| one.main_bytes as f64)?,
            bytes: middle(|one| one.bytes as f64)?,
            estimated,
            measured,
            verdict,
        })
    }

    /// Estimated minus measured share; no advice estimates nothing saved.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.estimated.unwrap_or(0.0) - self.measured
    }
}

/// The estimated saving of all processes, as a share of their memory; None where it is too small for advice.
fn estimated_share(heaps: &[ArenaHeaps]) -> Option<f64> {
    let saved: f64 = heaps.iter().map(|one| saving(&Arenas::from(one))).sum();
    let bytes: u64 = heaps.iter().map(|one| one.bytes).sum();
    (saved >= LEAST_BYTES && bytes > 0).then(|| saved / bytes as f64)
}
