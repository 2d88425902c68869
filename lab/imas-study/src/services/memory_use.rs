// SPDX-License-Identifier: Apache-2.0
//! Memory of a service under `system`, how much of it an allocator could save at most, and how much the
//! pick saves.
//!
//! Live blocks are the program's: no allocator saves them. Free blocks, free pages and what threads keep could be saved
//! at most. Glibc's heaps are read from outside at the end of each run's load and of its pause; where another malloc
//! serves, the hook of a counted run says what is live, and no more.

use imas_core::SYSTEM;
use imas_core::run::RawRun;
use imas_core::server_run::{LiveMemory, MemoryByUse};
use imas_core::stats::median;
use imas_report::service::MeasuredService;
use serde::Serialize;

/// When the memory is looked at.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The end of the load.
    Load,
    /// The end of the pause.
    Pause,
}

/// Resident memory under `system` by its use, bytes: medians over the runs.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct MemoryUse {
    /// The service.
    pub service: String,
    /// When.
    pub moment: Moment,
    /// All anonymous memory.
    pub resident: f64,
    /// Blocks of the program.
    pub live: f64,
    /// The parts of glibc's heaps; None where another malloc serves.
    pub parts: Option<HeapParts>,
    /// Most bytes that an allocator could save: all that is resident in heaps and not live.
    pub possible: f64,
    /// Bytes that the pick saves.
    pub reached: f64,
    /// The pick. Settings of a runtime may save more than an allocator could: memory of the runtime's own heap.
    pub pick: String,
}

/// Resident memory of processes on glibc's malloc beside the live blocks in heaps, bytes.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct HeapParts {
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

impl MemoryUse {
    /// The memory of a service at the end of load and pause. Empty where no run says what is live.
    #[must_use]
    pub fn of(service: &MeasuredService<'_>, counted: &[RawRun]) -> Vec<Self> {
        [Moment::Load, Moment::Pause]
            .into_iter()
            .filter_map(|moment| Self::at(moment, service, counted))
            .collect()
    }

    fn at(moment: Moment, service: &MeasuredService<'_>, counted: &[RawRun]) -> Option<Self> {
        let figure = match moment {
            Moment::Load => "memory",
            Moment::Pause => "memory_idle",
        };
        let saved = |name: &str| {
            let ratio = service.comparison.named(name)?.figures.get(figure)?.ratio?;
            Some(service.comparison.named(SYSTEM)?.figures.get(figure)?.median * (1.0 - ratio.mid))
        };
        let reached = match service.comparison.pick() {
            SYSTEM => 0.0,
            pick => saved(pick).unwrap_or(0.0),
        };
        let counted = || {
            let own = counted.iter().filter(|run| run.program == service.name);
            let LiveMemory { load, idle } = own.filter_map(|run| run.of_server().live).next()?;
            let [resident, live] = if moment == Moment::Load { load } else { idle };
            Some((resident, live, None))
        };
        let (resident, live, parts) = read(moment, &service.runs).or_else(counted)?;
        let possible = match parts {
            Some(HeapParts { cached, free_blocks, free_pages, .. }) => cached + free_blocks + free_pages,
            None => (resident - live).max(0.0),
        };
        let (service, pick) = (service.name.to_owned(), service.comparison.pick().to_owned());
        Some(Self { service, moment, resident, live, parts, possible, reached, pick })
    }
}

/// Resident and live memory and its other parts, as read from the heaps of the runs under `system`.
fn read(moment: Moment, runs: &[&RawRun]) -> Option<(f64, f64, Option<HeapParts>)> {
    let system = runs.iter().filter(|run| run.candidate == SYSTEM && run.ok);
    let all: Vec<MemoryByUse> = system
        .filter_map(|run| match moment {
            Moment::Load => MemoryByUse::of(&run.of_server().heaps),
            Moment::Pause => MemoryByUse::of(&run.of_server().heaps_idle),
        })
        .collect();
    let middle = |of: fn(&MemoryByUse) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
    let parts = HeapParts {
        cached: middle(|one| one.cached)?,
        free_blocks: middle(|one| one.free_blocks)?,
        free_pages: middle(|one| one.free_pages)?,
        stacks: middle(|one| one.stacks)?,
        other: middle(|one| one.other)?,
    };
    Some((middle(|one| one.resident)?, middle(|one| one.live)?, Some(parts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::run::RunKind;
    use imas_core::server_bench::{ServiceOptions, compare_services};
    use imas_core::server_run::{ArenaHeaps, Figure, HeldMemory, ServerRun};

    fn run(candidate: &str, round: u32, memory: f64, held: Option<HeldMemory>) -> RawRun {
        let heaps = vec![ArenaHeaps { bytes: 100, main_bytes: 80, held, ..ArenaHeaps::default() }];
        let figures = ["memory", "memory_idle"].map(|name| Figure::lower(name, memory, "B"));
        let server = ServerRun { heaps: heaps.clone(), heaps_idle: heaps, ..ServerRun::of(figures) };
        let at_s = f64::from(round);
        RawRun { program: "s".into(), candidate: candidate.into(), round, at_s, ..RawRun::default() }
            .with_server(server)
    }

    fn found(held: Option<HeldMemory>, counted: &[RawRun]) -> Vec<MemoryUse> {
        let both = |round| [run(SYSTEM, round, 100.0, held), run("a", round, 70.0, None)];
        let runs: Vec<RawRun> = (0..6).flat_map(both).collect();
        let names = [SYSTEM, "a"].map(str::to_owned);
        let comparison =
            compare_services(&names, &runs, &ServiceOptions { seed: 1, ..ServiceOptions::default() });
        let service = MeasuredService { name: "s", comparison: &comparison, runs: runs.iter().collect() };
        MemoryUse::of(&service, counted)
    }

    #[test]
    fn what_is_free_is_possible_and_what_the_pick_saves_is_reached() {
        let held = HeldMemory { live: 30, cached: 5, free_pages: 20, stacks: 8, is_estimate: false };
        let [load, pause] = &found(Some(held), &[])[..] else { panic!() };
        assert_eq!((load.moment, pause.moment), (Moment::Load, Moment::Pause));
        let wanted = HeapParts { cached: 5.0, free_blocks: 25.0, free_pages: 20.0, stacks: 8.0, other: 12.0 };
        assert_eq!((load.resident, load.live, load.parts), (100.0, 30.0, Some(wanted)));
        assert!((load.possible - 50.0).abs() < 1e-9 && (load.reached - 30.0).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn where_the_heaps_cannot_be_read_the_counted_run_says_what_is_live() {
        assert_eq!(found(None, &[]), []);
        let live = Some(LiveMemory { load: [100.0, 90.0], idle: [80.0, 20.0] });
        let server = ServerRun { live, ..ServerRun::default() };
        let counted =
            RawRun { program: "s".into(), kind: RunKind::Counted, ..RawRun::default() }.with_server(server);
        let found = found(None, &[counted]);
        let of = |one: &MemoryUse| (one.resident, one.live, one.possible, one.parts);
        assert_eq!([of(&found[0]), of(&found[1])], [(100.0, 90.0, 10.0, None), (80.0, 20.0, 60.0, None)]);
    }
}
