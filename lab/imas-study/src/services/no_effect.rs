// SPDX-License-Identifier: Apache-2.0
//! Candidates that cannot act on a service: runs under them beside those under `system` show the noise.

use imas_core::SYSTEM;
use imas_core::run::RawRun;
use imas_core::server_run::ArenaHeaps;
use imas_core::stats::median;
use imas_linux::runtime::Runtime;

/// Memory in glibc's heaps below this share of all: no setting of theirs can be seen.
const LEAST_SHARE: f64 = 0.01;

/// Why a candidate cannot act on a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoEffect {
    /// No process of the server ever loaded its library.
    NotLoaded,
    /// The server has nothing in the heaps of glibc, whose settings it changes.
    NoHeap,
    /// The server has one heap, and the candidate changes their number.
    OneHeap,
}

impl NoEffect {
    /// Why this candidate cannot act on a service, by the service's runs; None where it may act. Settings of a runtime
    /// act on its own heap.
    #[must_use]
    pub fn of(candidate: &str, runs: &[&RawRun]) -> Option<Self> {
        let own: Vec<&&RawRun> = runs.iter().filter(|run| run.candidate == candidate && run.ok).collect();
        let mut loaded = own.iter().filter_map(|run| run.of_server().loaded).peekable();
        if candidate == SYSTEM || own.is_empty() || Runtime::of_candidate(candidate).is_some() {
            return None;
        }
        if loaded.peek().is_some() {
            return loaded.all(|(with, _)| with == 0).then_some(Self::NotLoaded);
        }
        let beside_first = |one: &ArenaHeaps| one.heap_bytes.iter().sum::<u64>();
        if share_of_glibc(runs)? < LEAST_SHARE {
            return Some(Self::NoHeap);
        }
        let is_number = candidate.starts_with("glibc:arena");
        (is_number && share(runs, beside_first)? < LEAST_SHARE).then_some(Self::OneHeap)
    }
}

/// Share of the memory under `system` that lies in glibc's heaps; None where they were not looked at.
pub(super) fn share_of_glibc(runs: &[&RawRun]) -> Option<f64> {
    share(runs, ArenaHeaps::all_heap_bytes)
}

/// Share of the memory under `system` that this part takes, middle of all runs.
fn share(runs: &[&RawRun], part: impl Fn(&ArenaHeaps) -> u64) -> Option<f64> {
    let system = runs.iter().filter(|run| run.candidate == SYSTEM && run.ok);
    let heaps = system.map(|run| &run.of_server().heaps).filter(|heaps| !heaps.is_empty());
    let share = |heaps: &Vec<ArenaHeaps>| {
        let all: u64 = heaps.iter().map(|one| one.bytes).sum();
        heaps.iter().map(&part).sum::<u64>() as f64 / all.max(1) as f64
    };
    median(&heaps.map(share).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::ServerRun;

    fn run(candidate: &str, loaded: Option<(usize, usize)>, heaps: &[(u64, u64)]) -> RawRun {
        let one = |(main_bytes, others): &(u64, u64)| ArenaHeaps {
            bytes: 1000,
            main_bytes: *main_bytes,
            heap_bytes: vec![*others],
            ..ArenaHeaps::default()
        };
        let server = ServerRun { loaded, heaps: heaps.iter().map(one).collect(), ..ServerRun::default() };
        RawRun { candidate: candidate.into(), ..RawRun::default() }.with_server(server)
    }

    #[test]
    fn what_cannot_act_is_seen_from_its_runs() {
        let of = |candidate: &str, loaded, system: (u64, u64)| {
            let runs = [run(SYSTEM, None, &[system]), run(candidate, loaded, &[])];
            NoEffect::of(candidate, &runs.iter().collect::<Vec<_>>())
        };
        assert_eq!(of("jemalloc", Some((0, 2)), (900, 0)), Some(NoEffect::NotLoaded));
        assert_eq!(of("jemalloc", Some((1, 2)), (0, 0)), None);
        assert_eq!(of("glibc:lean", None, (4, 5)), Some(NoEffect::NoHeap));
        assert_eq!(of("glibc:lean", None, (900, 0)), None, "its trim threshold acts on one heap too");
        assert_eq!(of("glibc:arena1", None, (900, 0)), Some(NoEffect::OneHeap));
        assert_eq!(of("glibc:arena1", None, (900, 20)), None);
        assert_eq!(of(SYSTEM, None, (900, 0)), None);
        assert_eq!(of("go:gogc50", None, (4, 5)), None, "its heap is no heap of glibc");
    }
}
