// SPDX-License-Identifier: Apache-2.0
//! One look at the memory of a running process, and its answer: a verdict in words, the parts of the memory, and whether
//! they fit the limit of its control group.
//!
//! `imas explain PID`, `advise`, `top`, `serve`, `/metrics` and `imas kube node` show this answer, and have no words of
//! their own. The process is only read from outside: it is neither attached to nor signalled.

pub mod fit;
pub mod parts;
pub mod remedy;
pub mod verdict;

use std::io;

use imas_linux::control_group::GroupLimit;
use imas_linux::heap::figures::{HeapFigures, NotReadable};
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::memory_parts::{self, OwnedMemory};
use imas_linux::object_heaps::{self, ObjectHeap};
use imas_linux::other_heaps::{self, OtherHeap};
use imas_linux::running::Running;
use imas_linux::running_runtime::{HeapLimit, RunningRuntime, jvm_heap};
use imas_linux::runtime::Runtime;
use imas_linux::serving::RealCandidates;
use imas_linux::{control_group, process, process_trim};
use serde::Serialize;

use fit::MemoryFit;
use parts::MemoryPart;
use verdict::MemoryVerdict;

/// Facts about a process beside its memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AboutProcess {
    /// Id of the process.
    pub pid: u32,
    /// The system's service that it is of: commands name it.
    pub unit: Option<String>,
    /// The candidate that it is on.
    pub candidate: Option<String>,
    /// Its runtime, and the most that the heap may take by its command line and environment.
    pub runtime: Option<(Runtime, Option<HeapLimit>)>,
    /// Number of its threads.
    pub threads: u64,
    /// Bytes in live blocks, by the hook of a trial.
    pub live_bytes: Option<u64>,
    /// The tightest limit on the memory of its control group.
    pub limit: Option<GroupLimit>,
    /// Whether its heaps were searched for leaks: no hint to that search is needed.
    pub is_searched: bool,
}

impl AboutProcess {
    /// Facts about a running process with this runtime, on this candidate.
    #[must_use]
    pub fn of(running: &Running, runtime: Option<&RunningRuntime>, candidate: Option<&str>) -> Self {
        Self {
            pid: running.pid,
            unit: running.system_unit().map(str::to_owned),
            candidate: candidate.map(str::to_owned),
            runtime: runtime.map(|runtime| (runtime.found.runtime, runtime.heap_limit())),
            threads: process::threads(running.pid).unwrap_or(0),
            live_bytes: None,
            limit: control_group::limit_of(running.pid),
            is_searched: false,
        }
    }

    fn runtime(&self) -> Option<Runtime> {
        self.runtime.as_ref().map(|(runtime, _)| *runtime)
    }

    /// The name by which commands call it.
    fn name(&self) -> String {
        self.unit.clone().unwrap_or_else(|| self.pid.to_string())
    }
}

/// Findings of one look.
#[derive(Debug, Clone)]
pub struct ProcessLook {
    /// The process.
    pub about: AboutProcess,
    /// Its memory by its mappings.
    pub memory: OwnedMemory,
    /// Contents of glibc's heaps, or why they cannot be read.
    pub heaps: Result<HeapFigures, NotReadable>,
    /// Object heaps of its runtime.
    pub objects: Vec<ObjectHeap>,
    /// Heap of its JVM.
    pub jvm: Option<JvmHeap>,
    /// Allocators beside glibc's.
    pub others: Vec<OtherHeap>,
    /// Reason why it may refuse a trim, as far as the kernel shows one.
    pub trim_doubt: Option<&'static str>,
}

impl Default for ProcessLook {
    fn default() -> Self {
        Self {
            about: AboutProcess::default(),
            memory: OwnedMemory::default(),
            heaps: Err(NotReadable("nobody has looked".to_owned())),
            objects: vec![],
            jvm: None,
            others: vec![],
            trim_doubt: None,
        }
    }
}

/// Answer of a look.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryAnswer {
    /// Kind of verdict.
    pub verdict: MemoryVerdict,
    /// The verdict in words.
    pub sentence: String,
    /// Resident and swapped bytes by owner, the largest first, each with what can be done.
    pub parts: Vec<MemoryPart>,
    /// Share of both whose holder is known.
    pub named_share: f64,
    /// Whether its memory fits the tightest limit of its control groups; absent without one.
    pub limit: Option<MemoryFit>,
}

impl ProcessLook {
    /// Looks at a process.
    ///
    /// # Errors
    /// When it has ended, or is not ours to look at.
    pub fn at(about: AboutProcess) -> io::Result<Self> {
        let heaps = process_trim::heaps_of(about.pid);
        Self::with_heaps(about, heaps)
    }

    /// Looks at a process whose heaps are looked at already.
    ///
    /// # Errors
    /// When it has ended, or is not ours to look at.
    pub fn with_heaps(about: AboutProcess, heaps: Result<HeapFigures, NotReadable>) -> io::Result<Self> {
        let pid = about.pid;
        let memory = memory_parts::of(pid)?;
        Ok(Self {
            heaps,
            objects: if memory.has_objects { object_heaps::of(pid) } else { vec![] },
            jvm: memory.has_jvm_counters.then(|| jvm_heap(pid)).flatten(),
            others: other_heaps::of(pid),
            trim_doubt: process_trim::doubt(pid),
            about,
            memory,
        })
    }

    /// Bytes in live blocks, by the hook of a trial or by the counters of the allocators that serve in glibc's place.
    fn live_bytes(&self) -> Option<u64> {
        let sum = |of: fn(&OtherHeap) -> Option<u64>| {
            self.others.iter().filter_map(of).fold(0, u64::saturating_add)
        };
        let (live, free) = (sum(|heap| heap.live), sum(|heap| heap.free));
        // Where their blocks, live and free, are less of it, the rest is somebody else's: a runtime's, or mapped.
        let heap = self.memory.resident.heap_bytes() as f64;
        let are_most = live > 0 && live.saturating_add(free) as f64 >= heap * verdict::MOSTLY_LIVE;
        self.about.live_bytes.or_else(|| (self.heaps.is_err() && are_most).then_some(live))
    }

    /// Resident bytes of free blocks in pages with live ones, which no trim returns.
    fn pinned_bytes(&self) -> u64 {
        let Ok(heaps) = &self.heaps else { return 0 };
        let (resident, bytes) = (&self.memory.resident, &heaps.bytes);
        let in_whole_pages = [bytes.returnable, bytes.shared, bytes.top_resident];
        let without =
            |from: u64, others: &[u64]| others.iter().fold(from, |left, one| left.saturating_sub(*one));
        let rest = without(resident.heap.saturating_add(resident.arenas), &in_whole_pages);
        // What was given back is free as well, and not resident.
        without(rest, &[bytes.live, bytes.cached, heaps.unread])
            .min(without(bytes.all_free(), &in_whole_pages))
    }

    /// Verdict on the heap, whatever the limit.
    #[must_use]
    pub fn heap_verdict(&self) -> MemoryVerdict {
        verdict::of_heaps(self)
    }

    /// The answer; `candidates` are what a restart could be under.
    #[must_use]
    pub fn answer(&self, candidates: &RealCandidates) -> MemoryAnswer {
        let parts = parts::parts(self);
        let limit = MemoryFit::of(self);
        let (verdict, sentence) = verdict::of(self, limit.as_ref(), candidates);
        MemoryAnswer { verdict, sentence, named_share: parts::named_share(&parts), parts, limit }
    }
}
