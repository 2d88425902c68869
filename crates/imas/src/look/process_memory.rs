// SPDX-License-Identifier: Apache-2.0
//! `imas explain PID`: one verdict on a running process (why does it hold this much, is it a leak, what helps), its
//! memory by its owners, and whether IMAS is active in it.
//!
//! The process is only read from outside: it is neither attached to nor signalled. What is live in its heap is read
//! where glibc's malloc serves it, and counted by the hook in a trial.
//!
//! Is IMAS active in this process? Which allocator serves it, and who set that, in words.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::{message, output, table};
use imas_engine::context::Context;
use imas_engine::live::memory_point;
use imas_engine::memory_look::remedy::TrimOutlook;
use imas_engine::memory_look::verdict::{MemoryVerdict, jvm_words};
use imas_engine::memory_look::{AboutProcess, MemoryAnswer, ProcessLook};
use imas_linux::catalogue::SYSTEM;
use imas_linux::environment::{GUARD, HOOK};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::index::ServiceUnit;
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::mapping_text::{CLibrary, former_path};
use imas_linux::object_heaps::ObjectHeap;
use imas_linux::other_heaps::OtherHeap;
use imas_linux::resident::ResidentMemory;
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::{RunningRuntime, name_of_candidate};
use imas_linux::runtime::FoundRuntime;
use imas_linux::serving::RealCandidates;
use imas_linux::serving::chooser::{Choice, Chooser};
use serde::Serialize;

use crate::command_line::cli::ExplainArgs;
use crate::look::growth::{self, Growth, LookedAt};

#[derive(Debug, Serialize)]
struct ProcessMemory {
    schema: u32,
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
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
    /// Contents of glibc's heaps.
    heaps: Option<HeapFigures>,
    /// The language runtime of its program.
    runtime: Option<ProcessRuntime>,
    /// Resident bytes under the names that the program gave its mappings, the largest first.
    named: Vec<(String, u64)>,
    /// Why that cannot be read.
    heaps_not_readable: Option<String>,
    /// Object heaps of its runtime.
    objects: Vec<ObjectHeap>,
    /// Allocators beside glibc's.
    allocators: Vec<OtherHeap>,
    /// The verdict, the parts and the limit.
    #[serde(flatten)]
    answer: MemoryAnswer,
    /// What has grown in a time; absent where nobody asked for one.
    growth: Option<Growth>,
}

/// Language runtime of a process.
#[derive(Debug, Serialize)]
struct ProcessRuntime {
    #[serde(flatten)]
    found: FoundRuntime,
    /// The heap of its JVM, by the JVM's own counters.
    jvm: Option<JvmHeap>,
}

impl ProcessRuntime {
    fn words(&self) -> String {
        let FoundRuntime { runtime, by, version, .. } = &self.found;
        let version = version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let heap = self.jvm.as_ref().map_or_else(String::new, |heap| format!("; {}", jvm_words(heap)));
        format!("runtime: {}{version} ({by}){heap}", runtime.name())
    }
}

/// Shows a process.
pub(crate) fn run(pid: u32, args: &ExplainArgs, context: &Context) -> Result<ExitCode> {
    let gone = || {
        message::not_seen(pid, "another user's processes can be looked into by root: sudo imas explain PID")
    };
    let running = running::one(pid).ok_or_else(gone)?;
    let seen = memory(context, &running, args.leaks).ok_or_else(gone)?;
    let watched = growth::watch(running.pid, (args.leaks, args.time));
    // All that is shown is of the same moment, where the process has not ended meanwhile.
    let now = watched.as_ref().and_then(|_| memory(context, &running, args.leaks));
    let (memory, look) = now.unwrap_or(seen);
    let memory = ProcessMemory { growth: watched.map(|watched| Growth::of(watched, &look)), ..memory };
    if args.json.json {
        output::json(&memory)?;
    } else {
        output::text(&text(&memory)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the process, for its page and for the answer about its growth; `None` where it has ended or is not ours to look
/// at.
fn memory(context: &Context, running: &Running, is_searched: bool) -> Option<(ProcessMemory, LookedAt)> {
    let candidates = RealCandidates::of(context.catalogue.all());
    let runtime = RunningRuntime::of(running);
    let of = runtime.as_ref().map(|runtime| runtime.found.runtime);
    let candidate = name_of_candidate(running, &candidates, || of);
    let about = AboutProcess::of(running, runtime.as_ref(), candidate);
    let live_bytes = memory_point::live_bytes(running);
    let look = ProcessLook::at(AboutProcess { live_bytes, is_searched, ..about }).ok()?;
    let trim = TrimOutlook::of(&look).words(&running.pid.to_string(), "what whole pages hold");
    let looked_at = LookedAt { pid: running.pid, verdict: look.heap_verdict(), trim, runtime: of };
    let answer = look.answer(&candidates);
    let resident = look.memory.resident;
    let memory = ProcessMemory {
        schema: 1,
        pid: running.pid,
        program: running.program.to_string(),
        unit: running.unit.clone(),
        active: Active::of(running, &candidates),
        candidate: candidate.map(str::to_owned),
        threads: look.about.threads,
        resident,
        resident_bytes: resident.total(),
        live_bytes: look.about.live_bytes,
        answer,
        growth: None,
        objects: look.objects,
        allocators: look.others,
        runtime: runtime.map(|runtime| ProcessRuntime { found: runtime.found, jvm: look.jvm }),
        named: look.memory.named,
        heaps_not_readable: look.heaps.as_ref().err().map(ToString::to_string),
        heaps: look.heaps.ok(),
    };
    Some((memory, looked_at))
}

fn text(memory: &ProcessMemory) -> Result<String> {
    let answer = &memory.answer;
    let mut text = memory.growth.as_ref().map_or_else(String::new, growth::page);
    write!(text, "{}\n{} (pid {}", answer.sentence, memory.program, memory.pid)?;
    if let Some(unit) = &memory.unit {
        write!(text, ", {unit}")?;
    }
    let on = memory.candidate.as_deref().unwrap_or("an allocator that cannot be identified");
    writeln!(text, ") on {on}, {}", counted(memory.threads, "thread"))?;
    writeln!(text, "{}", memory.active.sentence)?;
    if let Some(why) = memory.heaps_not_readable.as_ref().filter(|_| answer.verdict != MemoryVerdict::Unknown)
    {
        writeln!(text, "what is live in its heap cannot be read: {why}")?;
    }
    for heap in &memory.allocators {
        if let Some(why) = &heap.unknown {
            writeln!(text, "what is live in {} is not known: {why}", heap.words())?;
        }
    }
    if let Some(runtime) = &memory.runtime {
        writeln!(text, "{}", runtime.words())?;
    }
    if let Some(limit) = &answer.limit {
        writeln!(text, "{}", limit.sentence)?;
    }
    text.push('\n');
    let swapped = memory.resident.swapped;
    let columns = match swapped {
        0 => vec!["MiB", "resident memory", "what can be done"],
        _ => vec!["MiB", "swapped", "resident memory", "what can be done"],
    };
    let rows = rows(memory).into_iter().map(|[mib, swap, what, remedy]| match swapped {
        0 => vec![mib, what, remedy],
        _ => vec![mib, swap, what, remedy],
    });
    text.push_str(&table::plain(&columns, rows));
    Ok(text)
}

/// The sum, its parts, and what lies within parts and is counted there.
fn rows(memory: &ProcessMemory) -> Vec<[String; 4]> {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let resident = &memory.resident;
    let all = [mib(memory.resident_bytes), mib(resident.swapped), "in all".to_owned(), String::new()];
    let parts = memory.answer.parts.iter().map(|part| {
        let what = match part.is_named {
            true => part.what.clone(),
            false => format!("not known: {}", part.what),
        };
        [mib(part.resident_bytes), mib(part.swapped_bytes), what, part.remedy.clone()]
    });
    let arenas = format!("included above: {} heaps of further arenas", resident.arena_heaps);
    let of_these = [
        (resident.arenas, arenas.as_str()),
        (memory.live_bytes.unwrap_or(0), "included above: live blocks, by this trial's estimate"),
        (resident.huge, "included above: huge pages, which the program may not have touched whole"),
        (resident.given_back, "included above: given back, until the kernel needs it"),
    ];
    let of_these = of_these.into_iter().filter(|(bytes, _)| *bytes > 0);
    let of_these = of_these.map(|(bytes, what)| [mib(bytes), String::new(), what.to_owned(), String::new()]);
    std::iter::once(all).chain(parts).chain(of_these).collect()
}

/// The answer for one process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Active {
    is_active: bool,
    by: Chooser,
    /// The candidate or file that serves; absent where neither is visible.
    allocator: Option<String>,
    /// The answer as one line.
    pub(crate) sentence: String,
}

impl Active {
    pub(crate) fn of(running: &Running, candidates: &RealCandidates) -> Self {
        let candidate = running.name_of_candidate(candidates);
        let choice = Choice::of(running);
        let mut active = match (choice.by, &choice.file) {
            (by @ (Chooser::Trial | Chooser::Guard), _) => Self::ours(by, candidate),
            (Chooser::Unknown, _) => Self::unknown(),
            (by, Some(file)) => Self::of_a_file(running, (by, file), choice.preloader),
            (_, None) => Self::of_the_c_library(running, candidate),
        };
        if running.files().has_replaced_library() {
            active.sentence +=
                "; libraries of it were replaced since, and it keeps the former ones until it starts again";
        }
        active
    }

    fn ours(by: Chooser, candidate: Option<&str>) -> Self {
        let serves = candidate.unwrap_or("glibc's malloc, as 'system' or with settings,");
        let how = match by {
            Chooser::Trial => format!("in a trial ({HOOK} counts its calls)"),
            _ => format!("set by IMAS for production ({GUARD})"),
        };
        let sentence = format!("is IMAS active here: yes, {serves} serves, {how}");
        Self { is_active: true, by, allocator: candidate.map(str::to_owned), sentence }
    }

    fn unknown() -> Self {
        let sentence =
            "is IMAS active here: no, and what serves is not known: a file of the process does not answer"
                .to_owned();
        Self { is_active: false, by: Chooser::Unknown, allocator: None, sentence }
    }

    fn of_a_file(running: &Running, (by, file): (Chooser, &Path), preloader: Option<&str>) -> Self {
        let how = match preloader {
            Some(preloader) => format!("preloaded by {preloader} and not by IMAS"),
            None if file == former_path(&running.program.path) => "the program's own allocator".to_owned(),
            None => "which the program has loaded itself".to_owned(),
        };
        let sentence = format!("is IMAS active here: no, {} serves, {how}", file.display());
        Self { is_active: false, by, allocator: Some(file.display().to_string()), sentence }
    }

    fn of_the_c_library(running: &Running, candidate: Option<&str>) -> Self {
        let has_glibc = running.files().c_library() == Some(CLibrary::Glibc);
        let serves = match candidate {
            _ if !has_glibc => {
                "the program is static, or its C library is not glibc: nothing is preloaded".into()
            }
            None | Some(SYSTEM) => "glibc's malloc serves, and nothing was set".to_owned(),
            Some(settings) => {
                format!("glibc's malloc serves, with settings of its environment as {settings} has")
            }
        };
        let sentence = format!("is IMAS active here: no, {serves}");
        let allocator = candidate.filter(|_| has_glibc).map(str::to_owned);
        Self { is_active: false, by: Chooser::CLibrary, allocator, sentence }
    }
}
