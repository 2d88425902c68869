// SPDX-License-Identifier: Apache-2.0
//! `imas explain --pid`: whether IMAS is active in a running process, its memory by its use, and whether a large
//! heap is a leak or fragmentation.
//!
//! The process is only read from outside: it is neither attached to nor signalled. Live blocks of its heap
//! are known only in a trial, in which the hook counts them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::table;
use imas_linux::arena_estimate::{CANDIDATE, KEPT};
use imas_linux::process;
use imas_linux::resident::ResidentMemory;
use imas_linux::running::{self, Running};
use imas_linux::serving::candidate::RealCandidates;
use imas_view::trial_page;
use serde::Serialize;

use crate::command_line::cli::JsonArgs;
use crate::look::active::Active;
use imas_cli::message::Hinted;
use imas_cli::output;
use imas_engine::context::Context;

/// A heap with less free memory needs no advice, bytes.
const LITTLE: u64 = 32 << 20;
/// If a smaller share of the heap is live, the rest counts as fragmentation.
const MOSTLY_LIVE: f64 = 0.7;

#[derive(Debug, Serialize)]
struct ProcessMemory {
    schema: u32,
    pid: u32,
    program: String,
    unit: Option<String>,
    /// Whether IMAS is active in it, and who set its allocator.
    active: Active,
    /// The candidate that the process runs under, by its mappings and its environment; absent if these do not
    /// show it.
    candidate: Option<String>,
    threads: u64,
    resident: ResidentMemory,
    resident_bytes: u64,
    /// Bytes in live blocks, as estimated by the hook of a trial; absent without a trial.
    live_bytes: Option<u64>,
    verdict: Verdict,
    /// The verdict in words.
    sentence: String,
}

/// The kind of verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Much of the heap is free: another allocator, or another setting, may hold less.
    Fragmentation,
    /// Most of the heap is live: the program's data, or a leak.
    Live,
    /// Many arenas: fragmentation is likely, but the live part is unknown.
    ManyArenas,
    /// Most of the memory is not malloc's.
    NotTheHeap,
    /// The heap is small.
    Small,
    /// The live part is unknown.
    Unknown,
}

pub(crate) fn run(pid: u32, json: JsonArgs, context: &Context) -> Result<ExitCode> {
    let gone = || {
        Hinted::error(
            format!("process {pid} does not exist, or belongs to another user"),
            "another user's processes can be looked into by root: sudo imas explain --pid PID",
        )
    };
    let running = running::one(pid).ok_or_else(gone)?;
    let resident = ResidentMemory::of(pid).ok_or_else(gone)?;
    let memory = memory(context, &running, resident);
    if json.json {
        output::json(&memory)?;
    } else {
        output::text(&text(&memory)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn memory(context: &Context, running: &Running, resident: ResidentMemory) -> ProcessMemory {
    let live_bytes = trial_page::live_bytes(running);
    let verdict = verdict(&resident, live_bytes);
    let candidates = RealCandidates::of(context.catalogue.candidates());
    ProcessMemory {
        schema: 1,
        pid: running.pid,
        program: running.program.to_string(),
        unit: running.unit.clone(),
        active: Active::of(running, &candidates),
        candidate: running.name_of_candidate(&candidates).map(str::to_owned),
        threads: process::threads(running.pid).unwrap_or(0),
        resident,
        resident_bytes: resident.total(),
        live_bytes,
        verdict,
        sentence: sentence(verdict, &resident, live_bytes),
    }
}

fn verdict(resident: &ResidentMemory, live: Option<u64>) -> Verdict {
    let heap = resident.heap_bytes();
    let many = resident.arena_heaps > KEPT as u64 && resident.arenas > LITTLE;
    match live {
        _ if heap < LITTLE => Verdict::Small,
        _ if heap * 2 < resident.total() => Verdict::NotTheHeap,
        Some(live) if heap.saturating_sub(live) > LITTLE && (live as f64) < heap as f64 * MOSTLY_LIVE => {
            Verdict::Fragmentation
        }
        Some(_) => Verdict::Live,
        None if many => Verdict::ManyArenas,
        None => Verdict::Unknown,
    }
}

fn sentence(verdict: Verdict, resident: &ResidentMemory, live: Option<u64>) -> String {
    let (heap, live) = (size(resident.heap_bytes()), size(live.unwrap_or(0)));
    match verdict {
        Verdict::Fragmentation => format!(
            "{heap} of heap are resident, {live} of it in live blocks{}: fragmentation, not a leak; {} may hold less",
            in_arenas(resident),
            remedy(resident)
        ),
        Verdict::Live => format!(
            "{heap} of heap are resident, {live} of it in live blocks: the program holds them, as data or as a leak; \
             an allocator changes little"
        ),
        Verdict::ManyArenas => format!(
            "{heap} of heap are resident{}: often fragmentation; {} may hold less; what is live is known only in a trial",
            in_arenas(resident),
            remedy(resident)
        ),
        Verdict::NotTheHeap => {
            format!("only {heap} of {} are heap: an allocator changes little", size(resident.total()))
        }
        Verdict::Small => format!("the heap is small ({heap}): there is nothing to gain"),
        Verdict::Unknown => format!(
            "{heap} of heap are resident; whether they are live is known only in a trial: start it with 'imas run -- ...'"
        ),
    }
}

fn in_arenas(resident: &ResidentMemory) -> String {
    match resident.arena_heaps {
        0 => String::new(),
        heaps => format!(", {} of it in {heaps} arenas beside the first", size(resident.arenas)),
    }
}

fn remedy(resident: &ResidentMemory) -> String {
    match resident.arena_heaps > KEPT as u64 {
        true => format!("{CANDIDATE} or jemalloc"),
        false => "another allocator".to_owned(),
    }
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

fn text(memory: &ProcessMemory) -> Result<String> {
    let mut text = format!("{}\n{} (pid {}", memory.active.sentence, memory.program, memory.pid);
    if let Some(unit) = &memory.unit {
        write!(text, ", {unit}")?;
    }
    let on = memory.candidate.as_deref().unwrap_or("an allocator that cannot be identified");
    writeln!(text, ") on {on}, {}\n{}\n", counted(memory.threads, "thread"), memory.sentence)?;
    text.push_str(&table::plain(&["MiB", "resident memory"], rows(memory).into_iter()));
    Ok(text)
}

fn rows(memory: &ProcessMemory) -> Vec<Vec<String>> {
    let resident = &memory.resident;
    let arenas = format!("in {} heaps of further arenas", resident.arena_heaps);
    let rows = [
        (memory.resident_bytes, "in all"),
        (resident.heap, "[heap]: the first arena of glibc's malloc"),
        (resident.arenas, arenas.as_str()),
        (
            resident.anonymous,
            "other anonymous memory: large blocks, or the heap of another allocator or runtime",
        ),
        (memory.live_bytes.unwrap_or(0), "of these three, in live blocks (this trial's estimate)"),
        (resident.stacks, "stacks of the threads"),
        (resident.files, "files: code and data"),
        (resident.shared, "shared memory"),
        (resident.hook, "tables of IMAS's hook"),
        (resident.other, "pages of the kernel"),
        (resident.huge, "part of the above: in huge pages"),
        (resident.given_back, "part of the above: given back, until the kernel needs it"),
        (resident.swapped, "not resident: swapped out"),
    ];
    let shown = rows.iter().filter(|(bytes, _)| *bytes > 0);
    shown
        .map(|(bytes, what)| vec![format!("{:.1}", *bytes as f64 / f64::from(1 << 20)), (*what).to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn free_memory_in_the_heap_is_fragmentation_and_live_memory_is_not() {
        let arenas = ResidentMemory {
            arenas: 1100 * MIB,
            arena_heaps: 38,
            heap: 100 * MIB,
            ..ResidentMemory::default()
        };
        assert_eq!(verdict(&arenas, Some(300 * MIB)), Verdict::Fragmentation);
        assert_eq!(
            sentence(Verdict::Fragmentation, &arenas, Some(300 * MIB)),
            "1.2 GiB of heap are resident, 300 MiB of it in live blocks, 1.1 GiB of it in 38 arenas beside the first: \
             fragmentation, not a leak; glibc:arena2 or jemalloc may hold less"
        );
        assert_eq!(verdict(&arenas, Some(1150 * MIB)), Verdict::Live);
        assert_eq!(verdict(&arenas, None), Verdict::ManyArenas);
    }

    #[test]
    fn without_a_trial_a_heap_of_one_arena_is_unknown() {
        let one = ResidentMemory { heap: 200 * MIB, ..ResidentMemory::default() };
        assert_eq!(verdict(&one, None), Verdict::Unknown);
        let files = ResidentMemory { heap: 40 * MIB, files: 100 * MIB, ..ResidentMemory::default() };
        assert_eq!(verdict(&files, None), Verdict::NotTheHeap);
        assert_eq!(verdict(&ResidentMemory::default(), None), Verdict::Small);
    }
}
