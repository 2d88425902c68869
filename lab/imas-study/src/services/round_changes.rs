// SPDX-License-Identifier: Apache-2.0
//! One service's figures under each candidate, as changes against `system` in the same round.

use std::collections::BTreeMap;

use imas_core::SYSTEM;
use imas_core::stats::{geometric_mean, median};

use imas_core::run::RawRun;
use imas_core::server_bench::{EvenCpu, compared, even_cpu, is_cpu};
use imas_core::server_run::{ArenaHeaps, Better};
use imas_linux::runtime::Runtime;

/// Outcome of a candidate in one round.
#[derive(Clone, PartialEq, Debug)]
enum RoundOutcome {
    Failed,
    /// Logarithms of the ratios to `system` by figure, turned so that above 0 is worse.
    Ran(BTreeMap<String, f64>),
}

/// The changes of one service. Rounds without a valid run under `system` are left out.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundChanges {
    /// The service.
    pub service: String,
    /// The candidates beside `system`, by name.
    pub candidates: Vec<String>,
    /// The rounds, in order.
    pub rounds: Vec<u32>,
    /// Memory under `system`, median over the rounds, bytes.
    pub memory_bytes: Option<f64>,
    /// Memory in glibc's heaps under `system` at the end of the load, median over the runs, bytes; None where nobody
    /// looked.
    pub heap_bytes: Option<f64>,
    /// Outcomes by index of the candidate and round; a run that was not made is missing.
    outcomes: BTreeMap<(usize, u32), RoundOutcome>,
    /// Changes of the runs under `system`, by round ([`Self::references`]).
    references: BTreeMap<u32, Vec<BTreeMap<String, f64>>>,
}

/// A figure of the runs under `system` of one round: their geometric mean.
fn mean_of(runs: &[&RawRun], figure: &str, even: &EvenCpu) -> Option<f64> {
    geometric_mean(&runs.iter().filter_map(|run| compared(run, figure, even)).collect::<Vec<_>>())
}

/// Bytes in glibc's heaps at the end of a run's load; None where they were not looked at.
fn heap_bytes(run: &RawRun) -> Option<f64> {
    let heaps = &run.of_server().heaps;
    (!heaps.is_empty()).then(|| heaps.iter().map(ArenaHeaps::all_heap_bytes).sum::<u64>() as f64)
}

fn references(runs: &[&RawRun], even: &EvenCpu) -> Vec<BTreeMap<String, f64>> {
    let of_run = |run: &&RawRun| {
        let change = |name: &String| {
            let log = (compared(run, name, even)? / mean_of(runs, name, even)?).ln();
            log.is_finite().then(|| (name.clone(), log))
        };
        run.of_server().figures.keys().filter_map(change).collect()
    };
    runs.iter().map(of_run).collect()
}

/// Names of the candidates that may be given to all of these services, each once. Settings of a language runtime are
/// for its own programs.
pub(crate) fn for_every_service<'a>(services: impl Iterator<Item = &'a RoundChanges>) -> Vec<&'a str> {
    let mut names: Vec<&str> = services.flat_map(|one| &one.candidates).map(String::as_str).collect();
    names.retain(|name| Runtime::of_candidate(name).is_none());
    names.sort_unstable();
    names.dedup();
    names
}

impl RoundChanges {
    /// Changes of one service, from its runs. CPU time is normalised over all of them; it has no change where
    /// a load runs for a fixed time.
    #[must_use]
    pub fn of(service: &str, runs: &[RawRun]) -> Self {
        let own: Vec<&RawRun> = runs.iter().filter(|run| run.program == service).collect();
        let mut system: BTreeMap<u32, Vec<&RawRun>> = BTreeMap::new();
        for run in own.iter().filter(|run| run.candidate == SYSTEM && run.ok) {
            system.entry(run.round).or_default().push(run);
        }
        let mut candidates: Vec<String> =
            own.iter().map(|run| run.candidate.clone()).filter(|name| name != SYSTEM).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let names: Vec<String> = candidates.iter().cloned().chain([SYSTEM.to_owned()]).collect();
        let even = even_cpu(&names, &own);
        let by_clock = own.iter().any(|run| run.of_server().by_clock);
        let of_run = |run: &RawRun| {
            let beside = system.get(&run.round)?;
            let change = |name: &str| {
                let ratio = compared(run, name, &even)? / mean_of(beside, name, &even)?;
                let worse = if run.of_server().figures.get(name)?.better == Better::Lower {
                    ratio
                } else {
                    1.0 / ratio
                };
                let is_by_clock = by_clock && is_cpu(name);
                Some(worse.ln()).filter(|log| log.is_finite() && !is_by_clock)
            };
            let changes =
                run.of_server().figures.keys().filter_map(|name| Some((name.clone(), change(name)?)));
            Some(match &run.of_server().failure {
                None => RoundOutcome::Ran(changes.collect()),
                Some(failure) if failure.stage.is_of_the_server() => RoundOutcome::Failed,
                Some(_) => return None,
            })
        };
        let outcomes = own.iter().filter_map(|run| {
            let candidate = candidates.iter().position(|name| *name == run.candidate)?;
            Some(((candidate, run.round), of_run(run)?))
        });
        let outcomes = outcomes.collect();
        let references = system.iter().map(|(round, runs)| (*round, references(runs, &even)));
        let references = references.collect();
        let middle = |of: fn(&RawRun) -> Option<f64>| {
            median(&system.values().flatten().filter_map(|run| of(run)).collect::<Vec<_>>())
        };
        Self {
            service: service.to_owned(),
            rounds: system.keys().copied().collect(),
            memory_bytes: middle(|run| run.value("memory")),
            heap_bytes: middle(heap_bytes),
            outcomes,
            references,
            candidates,
        }
    }

    /// Changes of each run under `system` of one round against their mean, as logarithms by figure; the
    /// changes of a single run are 0.
    pub fn references(&self, round: u32) -> &[BTreeMap<String, f64>] {
        self.references.get(&round).map_or(&[], Vec::as_slice)
    }

    /// The services of a journal, in the order in which they were measured first.
    #[must_use]
    pub fn of_all(runs: &[RawRun]) -> Vec<Self> {
        let mut names: Vec<&str> = Vec::new();
        for run in runs {
            if !names.contains(&run.program.as_str()) {
                names.push(&run.program);
            }
        }
        names.into_iter().map(|name| Self::of(name, runs)).collect()
    }

    /// Change of a figure in one round, as a logarithm; above 0 is worse.
    #[must_use]
    pub fn change(&self, candidate: usize, round: u32, figure: &str) -> Option<f64> {
        match self.outcomes.get(&(candidate, round))? {
            RoundOutcome::Failed => None,
            RoundOutcome::Ran(changes) => changes.get(figure).copied(),
        }
    }

    /// Whether a figure was compared under any candidate.
    #[must_use]
    pub fn is_measured(&self, figure: &str) -> bool {
        self.outcomes
            .values()
            .any(|one| matches!(one, RoundOutcome::Ran(changes) if changes.contains_key(figure)))
    }

    /// The changes in these rounds, as far as there are any.
    #[must_use]
    pub fn changes(&self, candidate: usize, rounds: &[u32], figure: &str) -> Vec<f64> {
        rounds.iter().filter_map(|&round| self.change(candidate, round, figure)).collect()
    }

    /// Whether the candidate failed in one of these rounds.
    #[must_use]
    pub fn has_failed(&self, candidate: usize, rounds: &[u32]) -> bool {
        let failed = |round: &u32| self.outcomes.get(&(candidate, *round)) == Some(&RoundOutcome::Failed);
        rounds.iter().any(failed)
    }
}
