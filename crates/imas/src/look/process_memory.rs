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
use imas_engine::live::memory_point::{self, LEAST_BYTES};
use imas_linux::catalogue::SYSTEM;
use imas_linux::control_group::{self, GroupLimit};
use imas_linux::environment::{GUARD, HOOK};
use imas_linux::heap::figures::{HeapFigures, NotReadable};
use imas_linux::index::ServiceUnit;
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::mapping_text::{CLibrary, former_path};
use imas_linux::object_heaps::{self, ObjectHeap};
use imas_linux::resident::{self, ResidentMemory};
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::{RunningRuntime, name_of_candidate};
use imas_linux::runtime::FoundRuntime;
use imas_linux::serving::RealCandidates;
use imas_linux::serving::chooser::{Choice, Chooser};
use imas_linux::{memory_parts, process, process_trim};
use serde::Serialize;

use crate::command_line::cli::ExplainArgs;
use crate::look::growth::{self, Growth};
use crate::look::heap_advice::{self, size};
use crate::look::held_memory::{self, Held, Part};

/// A heap with less free memory needs no advice, bytes.
const LITTLE: u64 = 32 << 20;
/// If a smaller share of the heap is live, the rest counts as fragmentation.
const MOSTLY_LIVE: f64 = 0.7;

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
    /// Resident and swapped bytes by owner, the largest first, each with what can be done.
    parts: Vec<Part>,
    /// Share of both whose holder is known.
    named_share: f64,
    /// Object heaps of its runtime.
    objects: Vec<ObjectHeap>,
    /// The tightest limit on the memory of its control group.
    limit: Option<GroupLimit>,
    verdict: Verdict,
    /// The verdict in words.
    sentence: String,
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
    fn of(running: &Running) -> Option<Self> {
        RunningRuntime::of(running).map(|RunningRuntime { found, jvm, .. }| Self { found, jvm })
    }

    fn words(&self) -> String {
        let FoundRuntime { runtime, by, version, .. } = &self.found;
        let version = version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let heap = self.jvm.as_ref().map_or_else(String::new, |heap| {
            format!(
                "; its heap ({}) is not malloc's: {} committed, {} left after the last of {}",
                heap.collector,
                size(heap.committed),
                size(heap.after_collection),
                counted(heap.collections, "collection")
            )
        });
        format!("runtime: {}{version} ({by}){heap}", runtime.name())
    }
}

/// The kind of verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Much of the heap is free: another allocator, or another setting, may hold less.
    Fragmentation,
    /// Most of the heap is live: the program's data, or a leak.
    Live,
    /// Most of the memory is not malloc's.
    NotTheHeap,
    /// Most of the anonymous memory is in no arena of malloc: a pool of the program, the heap of its runtime.
    OwnPool,
    /// The heap is small.
    Small,
    /// The live part is unknown.
    Unknown,
}

/// Shows a process.
pub(crate) fn run(pid: u32, args: &ExplainArgs, context: &Context) -> Result<ExitCode> {
    let gone = || {
        message::not_seen(pid, "another user's processes can be looked into by root: sudo imas explain PID")
    };
    let running = running::one(pid).ok_or_else(gone)?;
    let resident = ResidentMemory::of(pid).ok_or_else(gone)?;
    let growth = growth::watch(&running, (args.leaks, args.time));
    // All that is shown is of the same moment, where the process has not ended meanwhile.
    let resident = growth.as_ref().and_then(|_| ResidentMemory::of(pid)).unwrap_or(resident);
    let memory = ProcessMemory { growth, ..memory(context, &running, resident) };
    if args.json.json {
        output::json(&memory)?;
    } else {
        output::text(&text(&memory)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn memory(context: &Context, running: &Running, resident: ResidentMemory) -> ProcessMemory {
    let pid = running.pid;
    let live_bytes = memory_point::live_bytes(running);
    let heaps = process_trim::heaps_of(pid);
    let candidates = RealCandidates::of(context.catalogue.all());
    let candidate = name_of_candidate(running, &candidates);
    let runtime = ProcessRuntime::of(running);
    let kind = (candidate, runtime.as_ref().map(|runtime| runtime.found.runtime));
    let remedy = heaps.as_ref().ok().and_then(|heaps| heap_advice::remedy(heaps, kind, &candidates));
    let jvm = runtime.as_ref().and_then(|runtime| runtime.jvm.as_ref());
    let (objects, threads) = (object_heaps::of(pid), process::threads(pid).unwrap_or(0));
    let owned = memory_parts::of(pid).unwrap_or_default();
    let parts = held_memory::parts(&Held {
        pid,
        owned: &owned,
        threads,
        heaps: heaps.as_ref().ok(),
        objects: &objects,
        runtime: runtime.as_ref().map(|runtime| runtime.found.runtime),
        jvm,
        allocators: &held_memory::allocators(running.mapped()),
    });
    let verdict = verdict(&resident, live_bytes, heaps.as_ref().ok());
    let sentence = sentence(verdict, &resident, live_bytes, &heaps, remedy);
    ProcessMemory {
        schema: 1,
        pid,
        program: running.program.to_string(),
        unit: running.unit.clone(),
        active: Active::of(running, &candidates),
        candidate: candidate.map(str::to_owned),
        threads,
        resident,
        resident_bytes: resident.total(),
        live_bytes,
        verdict,
        sentence,
        growth: None,
        named_share: held_memory::named_share(&parts),
        parts,
        objects,
        limit: control_group::limit_of(pid),
        runtime,
        named: resident::named_memory(pid),
        heaps_not_readable: heaps.as_ref().err().map(ToString::to_string),
        heaps: heaps.ok(),
    }
}

/// Verdict by the share of the heap that a trim would return, and by the hook's count where the process is a trial.
fn verdict(resident: &ResidentMemory, live: Option<u64>, heaps: Option<&HeapFigures>) -> Verdict {
    let heap = resident.heap_bytes();
    let is_mostly_free =
        |live: u64| heap.saturating_sub(live) > LITTLE && (live as f64) < heap as f64 * MOSTLY_LIVE;
    let is_mostly_returnable = |heaps: &HeapFigures| {
        let returnable = heaps.bytes.returnable;
        returnable >= LEAST_BYTES && (heap.saturating_sub(returnable) as f64) < heap as f64 * MOSTLY_LIVE
    };
    match (live, heaps) {
        _ if heap < LITTLE => Verdict::Small,
        (_, Some(heaps)) if is_mostly_returnable(heaps) => Verdict::Fragmentation,
        _ if heap * 2 < resident.total() => Verdict::NotTheHeap,
        (None, Some(heaps)) if heaps.unread == 0 && is_elsewhere(resident) => Verdict::OwnPool,
        (Some(live), _) if is_mostly_free(live) => Verdict::Fragmentation,
        (None, None) => Verdict::Unknown,
        (None, Some(heaps)) if heaps.unread > heaps.held / 2 => Verdict::Unknown,
        _ => Verdict::Live,
    }
}

/// Whether most of what may be a heap is in none of malloc's arenas.
fn is_elsewhere(resident: &ResidentMemory) -> bool {
    resident.anonymous > resident.heap.saturating_add(resident.arenas)
}

fn sentence(
    verdict: Verdict,
    resident: &ResidentMemory,
    live: Option<u64>,
    heaps: &Result<HeapFigures, NotReadable>,
    remedy: Option<String>,
) -> String {
    let heap = size(resident.heap_bytes());
    let live = live.map_or_else(String::new, |live| format!(", {} of it in live blocks", size(live)));
    let held = heaps
        .as_ref()
        .map_or_else(|_| String::new(), |heaps| format!("; {}", heap_advice::held_words(heaps)));
    match verdict {
        Verdict::Fragmentation => format!(
            "{heap} of heap are resident{live}{held}: fragmentation, not a leak; {}",
            remedy.unwrap_or_else(|| "another allocator may hold less".to_owned())
        ),
        Verdict::Live => format!(
            "{heap} of heap are resident{live}{held}: the program holds most of them, as data or as a leak; {}",
            remedy.unwrap_or_else(|| "an allocator changes little".to_owned())
        ),
        Verdict::NotTheHeap => {
            format!("only {heap} of {} are heap{held}: an allocator changes little", size(resident.total()))
        }
        Verdict::OwnPool => format!(
            "{} of {} are in none of malloc's arenas: a pool of the program, the heap of its runtime, or single large \
             blocks{held}; {}",
            size(resident.anonymous),
            size(resident.total()),
            remedy.unwrap_or_else(|| "settings of malloc change little".to_owned())
        ),
        Verdict::Small => format!("the heap is small ({heap}): there is nothing to gain"),
        Verdict::Unknown => {
            format!(
                "{heap} of heap are resident; what of it is live cannot be read: {}; a trial counts it: 'imas run -- ...'",
                heaps.as_ref().err().map_or(
                    "reading most of glibc's heaps took too long, or they changed too fast",
                    |reason| reason.0.as_str()
                )
            )
        }
    }
}

fn text(memory: &ProcessMemory) -> Result<String> {
    let mut text = memory.growth.as_ref().map_or_else(String::new, growth::page);
    write!(text, "{}\n{} (pid {}", memory.sentence, memory.program, memory.pid)?;
    if let Some(unit) = &memory.unit {
        write!(text, ", {unit}")?;
    }
    let on = memory.candidate.as_deref().unwrap_or("an allocator that cannot be identified");
    writeln!(text, ") on {on}, {}", counted(memory.threads, "thread"))?;
    writeln!(text, "{}", memory.active.sentence)?;
    if let Some(why) = memory.heaps_not_readable.as_ref().filter(|_| memory.verdict != Verdict::Unknown) {
        writeln!(text, "what is live in its heap cannot be read: {why}")?;
    }
    if let Some(runtime) = &memory.runtime {
        writeln!(text, "{}", runtime.words())?;
    }
    if let Some(limit) = &memory.limit {
        let jvm = memory.runtime.as_ref().and_then(|runtime| runtime.jvm.as_ref());
        writeln!(text, "{}", held_memory::limit_words(limit, memory.resident_bytes, jvm))?;
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

/// The parts, what they add up to, and what is a part of them.
fn rows(memory: &ProcessMemory) -> Vec<[String; 4]> {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let resident = &memory.resident;
    let all = [mib(memory.resident_bytes), mib(resident.swapped), "in all".to_owned(), String::new()];
    let parts = memory.parts.iter().map(|part| {
        let what = match part.is_named {
            true => part.what.clone(),
            false => format!("not known: {}", part.what),
        };
        [mib(part.resident_bytes), mib(part.swapped_bytes), what, part.remedy.clone()]
    });
    let arenas = format!("of glibc's heaps: in {} heaps of further arenas", resident.arena_heaps);
    let of_these = [
        (resident.arenas, arenas.as_str()),
        (memory.live_bytes.unwrap_or(0), "of the heaps: in live blocks (this trial's estimate)"),
        (resident.huge, "part of the above: in huge pages, of which the program may have touched less"),
        (resident.given_back, "part of the above: given back, until the kernel needs it"),
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

#[cfg(test)]
mod tests {
    use imas_linux::catalogue::CatalogueCandidate;
    use imas_linux::heap::figures::HeapBytes;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn heaps(returnable: u64) -> HeapFigures {
        let bytes = HeapBytes { live: 88 * MIB, free: 65 * MIB, returnable, ..HeapBytes::default() };
        HeapFigures { held: 153 * MIB, read: 153 * MIB, arenas: 9, bytes, ..HeapFigures::default() }
    }

    fn without_a_catalogue(heaps: &HeapFigures) -> Option<String> {
        heap_advice::remedy(heaps, (None, None), &RealCandidates::default())
    }

    #[test]
    fn a_restart_is_advised_for_a_process_that_is_untouched() {
        let one_arena = CatalogueCandidate {
            name: "glibc:arena1".into(),
            allocator: "glibc".into(),
            environment: [("GLIBC_TUNABLES".to_owned(), "glibc.malloc.arena_max=1".to_owned())].into(),
            ..CatalogueCandidate::default()
        };
        let all = RealCandidates::of([&one_arena]);
        let says = |present| heap_advice::remedy(&heaps(57 * MIB), (present, None), &all).unwrap();
        assert_eq!(says(Some("glibc:arena1")), "'imas trim' returns the free pages now");
        let later = says(Some("system"));
        assert!(later.contains("a restart under glibc:arena1 keeps fewer of them; none of "), "{later}");
        assert!(later.ends_with("took more CPU time"), "a restart has its price: {later}");
    }

    #[test]
    fn free_pages_are_fragmentation_and_live_memory_is_not() {
        let resident =
            ResidentMemory { arenas: 143 * MIB, heap: 10 * MIB, arena_heaps: 8, ..ResidentMemory::default() };
        let heaps = heaps(57 * MIB);
        let remedy = without_a_catalogue(&heaps);
        assert_eq!(verdict(&resident, None, Some(&heaps)), Verdict::Fragmentation);
        assert_eq!(
            sentence(Verdict::Fragmentation, &resident, None, &Ok(heaps), remedy),
            "153 MiB of heap are resident; glibc holds 153 MiB in 9 arenas: 88 MiB live, 65 MiB free, of which 57 MiB \
             in whole resident pages: fragmentation, not a leak; 'imas trim' returns the free pages now"
        );
        assert_eq!(verdict(&resident, None, Some(&self::heaps(MIB))), Verdict::Live);
        assert_eq!(verdict(&resident, Some(30 * MIB), None), Verdict::Fragmentation, "by the hook's count");
        assert_eq!(verdict(&resident, Some(130 * MIB), None), Verdict::Live);
    }

    #[test]
    fn a_few_free_pages_in_a_large_heap_are_named_and_no_verdict() {
        let resident = ResidentMemory { heap: 10 << 30, ..ResidentMemory::default() };
        let heaps = heaps(9 * MIB);
        assert_eq!(verdict(&resident, None, Some(&heaps)), Verdict::Live);
        let remedy = without_a_catalogue(&heaps);
        let says = sentence(Verdict::Live, &resident, None, &Ok(heaps), remedy);
        assert!(
            says.contains("of which 9 MiB in whole resident pages")
                && says.ends_with("as data or as a leak; 'imas trim' returns the free pages now"),
            "{says}"
        );
    }

    #[test]
    fn a_heap_of_which_most_was_not_read_is_unknown() {
        let resident = ResidentMemory { heap: 10 << 30, ..ResidentMemory::default() };
        let heaps = HeapFigures { held: 10 << 30, unread: 9 << 30, ..heaps(9 * MIB) };
        assert_eq!(verdict(&resident, None, Some(&heaps)), Verdict::Unknown);
        assert!(heap_advice::held_words(&heaps).ends_with("; what is in the other 9.0 GiB is not known"));
    }

    /// The buffer pool of a database, the heap of Go.
    #[test]
    fn memory_in_no_arena_is_not_blamed_on_malloc() {
        let one = ResidentMemory { heap: MIB, anonymous: 300 * MIB, ..ResidentMemory::default() };
        let little = HeapFigures { held: MIB, read: MIB, arenas: 1, ..HeapFigures::default() };
        assert_eq!(verdict(&one, None, Some(&little)), Verdict::OwnPool);
        let says = sentence(Verdict::OwnPool, &one, None, &Ok(little), None);
        assert!(says.starts_with("300 MiB of 301 MiB are in none of malloc's arenas: a pool"), "{says}");
        assert!(!says.contains("leak"), "{says}");
    }

    #[test]
    fn without_a_trial_and_without_a_look_a_heap_is_unknown() {
        let one = ResidentMemory { heap: 200 * MIB, ..ResidentMemory::default() };
        assert_eq!(verdict(&one, None, None), Verdict::Unknown);
        let files = ResidentMemory { heap: 40 * MIB, files: 100 * MIB, ..ResidentMemory::default() };
        assert_eq!(verdict(&files, None, None), Verdict::NotTheHeap);
        assert_eq!(verdict(&ResidentMemory::default(), None, None), Verdict::Small);
        let reason = NotReadable("its C library is musl".into());
        let says = sentence(Verdict::Unknown, &one, None, &Err(reason), None);
        assert!(says.contains("cannot be read: its C library is musl;"), "{says}");
    }
}
