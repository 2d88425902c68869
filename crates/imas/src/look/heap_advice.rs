// SPDX-License-Identifier: Apache-2.0
//! Advice without a trial, for running processes whose glibc holds free pages, or that do not fit the limit of their control
//! group: the words are those of [`imas_engine::memory_look`].
//!
//! Contents of glibc's heaps at the last call of `imas advise`, stored in a file beside the store. Growing
//! memory is more important than memory that is merely large.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use imas_cli::format::counted;
use imas_core::SYSTEM;
use imas_engine::context::Context;
use imas_engine::memory_look::fit::{FitKind, MemoryFit};
use imas_engine::memory_look::parts::MemoryPart;
use imas_engine::memory_look::remedy::{self, LEAST_BYTES};
use imas_engine::memory_look::verdict::{MemoryVerdict, jvm_words, size};
use imas_engine::memory_look::{AboutProcess, MemoryAnswer, ProcessLook};
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::host::now_unix_s;
use imas_linux::index::ServiceUnit;
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::memory_parts::OwnedMemory;
use imas_linux::running::Running;
use imas_linux::running_runtime::{RunningRuntime, name_of_candidate};
use imas_linux::runtime::Runtime;
use imas_linux::serving::{On, RealCandidates};
use imas_linux::{control_group, process, process_trim};
use serde::{Deserialize, Serialize};

/// Looks at processes: one at each.
pub(crate) struct Looks<'c> {
    candidates: &'c RealCandidates,
    runtimes: RefCell<BTreeMap<u32, Option<Rc<RunningRuntime>>>>,
    looks: RefCell<BTreeMap<u32, Option<Rc<ProcessLook>>>>,
}

impl<'c> Looks<'c> {
    pub(crate) fn of(candidates: &'c RealCandidates) -> Self {
        Self { candidates, runtimes: RefCell::default(), looks: RefCell::default() }
    }

    fn runtime(&self, process: &Running) -> Option<Rc<RunningRuntime>> {
        let read = || RunningRuntime::of(process).map(Rc::new);
        self.runtimes.borrow_mut().entry(process.pid).or_insert_with(read).clone()
    }

    /// Heaps of a process, by the look at it where there was one.
    fn heaps(&self, pid: u32) -> Option<HeapFigures> {
        match self.looks.borrow().get(&pid) {
            Some(look) => look.as_ref()?.heaps.as_ref().ok().cloned(),
            None => process_trim::heaps_of(pid).ok(),
        }
    }

    /// The look at a process, with these heaps where they are read already.
    fn look(&self, process: &Running, heaps: Option<&HeapFigures>) -> Option<Rc<ProcessLook>> {
        match self.looks.borrow_mut().entry(process.pid) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(self.look_at(process, heaps).map(Rc::new)).clone(),
        }
    }

    fn look_at(&self, process: &Running, heaps: Option<&HeapFigures>) -> Option<ProcessLook> {
        let runtime = self.runtime(process);
        let of = || runtime.as_ref().map(|runtime| runtime.found.runtime);
        let candidate = name_of_candidate(process, self.candidates, of);
        let about = AboutProcess::of(process, runtime.as_deref(), candidate);
        match heaps {
            Some(heaps) => ProcessLook::with_heaps(about, Ok(heaps.clone())).ok(),
            None => ProcessLook::at(about).ok(),
        }
    }
}

/// One process that holds free pages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HeapRow {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    threads: u64,
    verdict: MemoryVerdict,
    /// The verdict in words.
    sentence: String,
    /// Its memory by owner.
    parts: Vec<MemoryPart>,
    /// Contents of its heaps.
    heaps: HeapFigures,
    /// Change of what they hold since the last look.
    growth: Option<Growth>,
    /// The candidate that is advised.
    candidate: Option<String>,
    /// Its price, as far as it is known.
    price: Option<String>,
    /// The advised command.
    how: String,
}

/// The processes that hold enough, those with the most first. Only untouched processes: for the others a candidate was
/// chosen already.
pub(crate) fn rows(context: &Context, running: &[Running], looks: &Looks<'_>) -> Vec<HeapRow> {
    let is_large =
        |process: &&Running| process::resident_bytes(process.pid).is_some_and(|bytes| bytes >= LEAST_BYTES);
    let untouched = running.iter().filter(|process| process.is_on(SYSTEM, looks.candidates) != On::No);
    let looked_at =
        untouched.filter(is_large).filter_map(|process| Some((process, looks.heaps(process.pid)?)));
    let mut look = LastLook::beside(&context.store_path);
    let mut rows: Vec<HeapRow> = worth_it(looked_at.collect())
        .into_iter()
        .filter_map(|(process, heaps)| row(process, heaps, looks, &mut look))
        .collect();
    look.keep();
    rows.sort_by_key(|row| std::cmp::Reverse(row.heaps.bytes.returnable));
    rows
}

/// Processes whose service holds enough, or whose program if they are of no service: it is restarted as a whole.
fn worth_it(looked_at: Vec<(&Running, HeapFigures)>) -> Vec<(&Running, HeapFigures)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (process, heaps) in &looked_at {
        *sums.entry(whole(process)).or_default() += heaps.bytes.returnable;
    }
    let is_enough = |process: &Running| sums[&whole(process)] >= LEAST_BYTES;
    let holds = looked_at.into_iter().filter(|(_, heaps)| heaps.bytes.returnable > 0);
    holds.filter(|(process, _)| is_enough(process)).collect()
}

/// The service of a process, or its program.
fn whole(process: &Running) -> String {
    process.unit.as_ref().map_or_else(|| process.program.to_string(), ServiceUnit::to_string)
}

/// A row for a process whose heaps are looked at already; `None` where it has ended.
fn row(process: &Running, heaps: HeapFigures, looks: &Looks<'_>, last: &mut LastLook) -> Option<HeapRow> {
    let (look, candidates) = (looks.look(process, Some(&heaps))?, looks.candidates);
    let MemoryAnswer { verdict, sentence, parts, .. } = look.answer(candidates);
    let restart = remedy::restart(&look.about, &heaps, candidates);
    Some(HeapRow {
        pid: process.pid,
        program: process.program.to_string(),
        unit: process.unit.clone(),
        threads: look.about.threads,
        verdict,
        sentence,
        parts,
        growth: last.growth(process.pid, heaps.held),
        candidate: restart.as_ref().map(|restart| restart.candidate.to_owned()),
        price: restart.map(|restart| restart.price),
        how: remedy::remedy_words(&look, &heaps, candidates),
        heaps,
    })
}

/// One sentence for each row.
pub(crate) fn page(rows: &[HeapRow]) -> String {
    let line = |row: &HeapRow| {
        // A service is advised as a whole: one of its processes may hold too little for its own verdict to say so.
        let how = if row.sentence.contains(&row.how) { String::new() } else { format!("; {}", row.how) };
        format!(
            "{} (pid {}, {}){}: {}{how}\n",
            row.unit.as_ref().map_or_else(|| row.program.clone(), ServiceUnit::to_string),
            row.pid,
            counted(row.threads, "thread"),
            row.growth.map_or_else(String::new, grown),
            row.sentence
        )
    };
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    let sum = size(rows.iter().map(|row| row.heaps.bytes.returnable).sum());
    format!("\nby their heaps, without any trial: {sum} in free pages that 'imas trim' may return\n{lines}")
}

/// One process in a control group with a limit that does not fit, or could be lower.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LimitRow {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    verdict: MemoryVerdict,
    limit: MemoryFit,
}

impl LimitRow {
    /// Whether something is to be done.
    pub(crate) fn is_proven(&self) -> bool {
        self.limit.fit == FitKind::TooLarge
    }
}

/// A row for the largest process of each group with a limit: those that will be killed first.
pub(crate) fn limit_rows(running: &[Running], looks: &Looks<'_>) -> Vec<LimitRow> {
    let mut largest: BTreeMap<PathBuf, (u64, &Running)> = BTreeMap::new();
    for process in running {
        let Some(group) = control_group::limited_group(process.pid) else { continue };
        let resident = process::resident_bytes(process.pid).unwrap_or(0);
        let place = largest.entry(group).or_insert((resident, process));
        if place.0 < resident {
            *place = (resident, process);
        }
    }
    let row = |(_, process): (u64, &Running)| {
        let answer = looks.look(process, None)?.answer(looks.candidates);
        let limit = answer.limit.filter(|limit| limit.fit != FitKind::Fits)?;
        let (pid, program) = (process.pid, process.program.to_string());
        Some(LimitRow { pid, program, unit: process.unit.clone(), verdict: answer.verdict, limit })
    };
    let mut rows: Vec<LimitRow> = largest.into_values().filter_map(row).collect();
    rows.sort_by_key(|row| (row.limit.fit, std::cmp::Reverse(row.limit.group.used)));
    rows
}

/// One sentence for each row.
pub(crate) fn limit_page(rows: &[LimitRow]) -> String {
    let line = |row: &LimitRow| {
        let warning = row.limit.warning.as_ref().map_or_else(String::new, |warning| format!("{warning}; "));
        let what = row.unit.as_ref().map_or_else(|| row.program.clone(), ServiceUnit::to_string);
        format!("{what} (pid {}): {warning}{}\n", row.pid, row.limit.sentence)
    };
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nby the limits of their control groups:\n{lines}") }
}

/// Empty if the memory hardly changed.
fn grown(growth: Growth) -> String {
    let mib = growth.bytes as f64 / f64::from(1 << 20);
    let since = imas_cli::format::span(growth.seconds);
    if mib.abs() < 1.0 { String::new() } else { format!(", {mib:+.0} MiB in the last {since}") }
}

/// Memory of one process. Pid and start time identify it, because the kernel reuses pids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeenProcess {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) at_unix_s: f64,
    /// Bytes that its heaps hold.
    pub(crate) bytes: u64,
}

/// Change of a process's memory since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) bytes: i64,
    pub(crate) seconds: f64,
}

/// The last look.
#[derive(Debug, Default)]
pub(crate) struct LastLook {
    file: PathBuf,
    seen: Vec<SeenProcess>,
    now: Vec<SeenProcess>,
}

impl LastLook {
    /// Reads the file beside this store. Without a file, the last look is empty.
    pub(crate) fn beside(store: &Path) -> Self {
        let file = store.with_extension("advise.json");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Self { seen: serde_json::from_str(&text).unwrap_or_default(), file, now: Vec::new() }
    }

    /// Records the present memory of the process. Returns the change since the last look.
    pub(crate) fn growth(&mut self, pid: u32, bytes: u64) -> Option<Growth> {
        let start_ticks = imas_linux::process::start_ticks(pid).ok()?;
        let now = SeenProcess { pid, start_ticks, at_unix_s: now_unix_s(), bytes };
        let before = self.seen.iter().find(|seen| seen.pid == pid && seen.start_ticks == start_ticks);
        let growth = before.map(|before| Growth {
            bytes: bytes.cast_signed() - before.bytes.cast_signed(),
            seconds: (now.at_unix_s - before.at_unix_s).max(0.0),
        });
        self.now.push(now);
        growth
    }

    /// Writes the file for the next look. If that fails, the next look shows no growth.
    pub(crate) fn keep(&self) {
        if let Ok(text) = serde_json::to_string(&self.now) {
            let _ = imas_engine::drop_in::write(&self.file, &text);
        }
    }
}

/// A smaller process does not justify a restart, bytes.
const LEAST_RESIDENT: u64 = 64 << 20;
/// A runtime whose heap is a smaller part of the process has no setting that matters.
const LEAST_PART: u64 = 4;
/// The name that V8 gives its memory.
const V8: &str = "v8";

/// A process with a runtime whose settings may be worth a trial.
#[derive(Debug, Serialize)]
pub(crate) struct RuntimeRow {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    runtime: Runtime,
    version: Option<String>,
    resident_bytes: u64,
    /// The heap of its JVM, where that is mostly free.
    jvm: Option<JvmHeap>,
    /// Candidates that the process could be started under; the first is the advised one.
    candidates: Vec<String>,
    /// The advised command.
    how: String,
}

impl RuntimeRow {
    /// Whether what was read shows a waste, and not only that something could be tried.
    pub(crate) fn is_proven(&self) -> bool {
        self.jvm.is_some()
    }
}

/// A row for each service or program, for its largest process; what holds too much first. Only untouched processes,
/// and none whose user has set something himself.
pub(crate) fn runtime_rows(context: &Context, running: &[Running], looks: &Looks<'_>) -> Vec<RuntimeRow> {
    let mut largest: BTreeMap<String, (u64, &Running)> = BTreeMap::new();
    for process in running {
        let resident = process::resident_bytes(process.pid).unwrap_or(0);
        if resident < LEAST_RESIDENT || process.is_on(SYSTEM, looks.candidates) == On::No {
            continue;
        }
        let whole = process.unit.as_ref().map_or_else(|| process.program.to_string(), ServiceUnit::to_string);
        let place = largest.entry(whole).or_insert((resident, process));
        if place.0 < resident {
            *place = (resident, process);
        }
    }
    let all = largest.into_values();
    let mut rows: Vec<_> =
        all.filter_map(|(bytes, one)| runtime_row(&context.catalogue, one, (bytes, looks))).collect();
    rows.sort_by_key(|row| (!row.is_proven(), std::cmp::Reverse(row.resident_bytes)));
    rows
}

fn runtime_row(
    catalogue: &Catalogue,
    process: &Running,
    (resident_bytes, looks): (u64, &Looks<'_>),
) -> Option<RuntimeRow> {
    let runtime = looks.runtime(process)?;
    let of = runtime.found.runtime;
    // Of the others no look is needed: most have no settings that are named here.
    catalogue.of_runtime(of).any(|one| one.default).then_some(())?;
    let look = looks.look(process, None)?;
    let most = most_of_the_runtime(&look.memory, of);
    if most.is_some_and(|most| !is_much(most, resident_bytes)) {
        return None;
    }
    // The settings of .NET that are tested by default are for some applications, whose files are not looked at here.
    let wanted = catalogue.of_runtime(of).filter(|one| one.default && of != Runtime::Dotnet);
    let mut fitting: Vec<&CatalogueCandidate> =
        wanted.filter(|candidate| runtime.fitted(candidate).is_ok()).collect();
    let jvm = look.jvm.clone().filter(|heap| is_worth_it(heap, resident_bytes));
    if let Some(heap) = &look.jvm {
        fitting.retain(|candidate| !is_there_already(candidate, heap));
        fitting.sort_by_key(|candidate| rank(candidate, heap, jvm.is_some()));
    }
    let names: Vec<String> = fitting.iter().map(|candidate| candidate.name.clone()).collect();
    Some(RuntimeRow {
        pid: process.pid,
        program: process.program.to_string(),
        unit: process.unit.clone(),
        runtime: of,
        version: runtime.found.version.clone(),
        resident_bytes,
        how: how(process, &names, jvm.is_some())?,
        jvm,
        candidates: names,
    })
}

/// The most that the heap of the runtime can be, resident bytes: memory that is in no heap of glibc's malloc, no stack and
/// no file. None where it cannot be read, and for a runtime that keeps objects in malloc's heaps.
fn most_of_the_runtime(memory: &OwnedMemory, runtime: Runtime) -> Option<u64> {
    if !matches!(runtime, Runtime::Jvm | Runtime::Go | Runtime::Node | Runtime::Dotnet) {
        return None;
    }
    let own: u64 = memory
        .named
        .iter()
        .filter(|(name, _)| runtime == Runtime::Node && name.contains(V8))
        .map(|(_, bytes)| bytes)
        .sum();
    Some(if own > 0 { own } else { memory.resident.anonymous })
}

/// Whether settings of a heap of this size, in bytes, can matter to a process of `resident_bytes`.
fn is_much(heap: u64, resident_bytes: u64) -> bool {
    heap >= LEAST_RESIDENT / 2 && heap >= resident_bytes / LEAST_PART
}

/// Much of what is committed and not needed may not be resident; the process is at least as large as what would go.
fn is_worth_it(heap: &JvmHeap, resident_bytes: u64) -> bool {
    heap.is_mostly_free()
        && heap.committed - heap.after_collection >= LEAST_RESIDENT
        && resident_bytes > heap.committed / 4
}

/// Collectors as the counters of a JVM name them, with the option that chooses each.
const COLLECTORS: [(&str, &str); 3] = [
    ("GarbageFirst", "-XX:+UseG1GC"),
    ("Copy:MSC", "-XX:+UseSerialGC"),
    ("ParScav:MSC", "-XX:+UseParallelGC"),
];

/// Whether the candidate is no more than the collector that the JVM has.
fn is_there_already(candidate: &CatalogueCandidate, heap: &JvmHeap) -> bool {
    let arguments = candidate.runtime.as_ref().map_or(&[][..], |settings| &settings.arguments);
    !arguments.is_empty() && arguments.iter().all(|one| is_its_collector(one, heap))
}

fn is_its_collector(argument: &str, heap: &JvmHeap) -> bool {
    COLLECTORS.iter().any(|(name, option)| *name == heap.collector && *option == argument)
}

/// Settings with the collector that the process has come first, and lean ones before all where its heap `is_wasteful`.
fn rank(candidate: &CatalogueCandidate, heap: &JvmHeap, is_wasteful: bool) -> (bool, bool) {
    let mut arguments = candidate.runtime.iter().flat_map(|settings| &settings.arguments);
    let is_lean = arguments.clone().any(|one| one.starts_with("-XX:MaxHeapFreeRatio="));
    (is_wasteful && !is_lean, !arguments.any(|one| is_its_collector(one, heap)))
}

fn how(process: &Running, names: &[String], is_proven: bool) -> Option<String> {
    let first = names.first()?;
    Some(match process.system_unit() {
        Some(unit) if is_proven || names.len() == 1 => format!("imas apply {unit} --candidate {first}"),
        Some(unit) => format!("imas apply {unit} --candidate {first} (or {})", names[1..].join(", ")),
        None if is_proven => format!("start it again with 'imas run --candidate {first} -- ...'"),
        None => format!(
            "imas bench --with {} --ready WHEN --load LINE -- COMMAND (docs/services.md; of a command that ends without \
             --ready and --load)",
            names.join(",")
        ),
    })
}

/// One sentence for each row.
pub(crate) fn runtime_page(rows: &[RuntimeRow]) -> String {
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    format!("\nby their language runtimes:\n{lines}")
}

fn line(row: &RuntimeRow) -> String {
    let what = row.unit.as_ref().map_or_else(|| row.program.clone(), ServiceUnit::to_string);
    let version = row.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
    let why = match &row.jvm {
        Some(heap) => jvm_words(heap),
        None => format!(
            "{} resident; nobody has tried settings of {}{version} for it",
            size(row.resident_bytes),
            row.runtime.name()
        ),
    };
    format!("{what} (pid {}): {why}; {}\n", row.pid, row.how)
}

#[cfg(test)]
mod tests {
    use imas_linux::runtime::RuntimeSettings;

    use super::*;

    #[test]
    fn growth_is_that_of_the_same_process_since_the_look_before() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("imas.db");
        let own = std::process::id();
        let mut first = LastLook::beside(&store);
        assert_eq!(first.growth(own, 100), None);
        first.keep();
        let mut second = LastLook::beside(&store);
        assert_eq!(second.growth(own, 70).unwrap().bytes, -30);
        assert_eq!(second.growth(u32::MAX, 70), None);
        second.seen[0].start_ticks += 1;
        assert_eq!(second.growth(own, 70), None, "another process with the same pid");
    }

    fn heap(committed: u64, after_collection: u64) -> JvmHeap {
        JvmHeap {
            collector: "GarbageFirst".into(),
            collections: 1,
            committed,
            after_collection,
            classes: 0,
            limit: None,
        }
    }

    #[test]
    fn settings_are_those_of_the_collector_that_the_jvm_has() {
        let of = |name: &str, arguments: &[&str]| CatalogueCandidate {
            name: name.into(),
            runtime: Some(RuntimeSettings {
                arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
                ..RuntimeSettings::of(Runtime::Jvm)
            }),
            ..CatalogueCandidate::default()
        };
        let lean = "-XX:MaxHeapFreeRatio=20";
        let all = [
            of("g1-lean", &["-XX:+UseG1GC", lean]),
            of("parallel", &["-XX:+UseParallelGC"]),
            of("serial", &["-XX:+UseSerialGC"]),
            of("serial-lean", &["-XX:+UseSerialGC", lean]),
        ];
        let first = |collector: &str, is_wasteful| {
            let heap = JvmHeap { collector: collector.into(), ..heap(1, 0) };
            let mut left: Vec<_> = all.iter().filter(|one| !is_there_already(one, &heap)).collect();
            left.sort_by_key(|one| rank(one, &heap, is_wasteful));
            (left[0].name.clone(), left.len())
        };
        assert_eq!(first("Copy:MSC", true), ("serial-lean".into(), 3), "serial itself is what it has");
        assert_eq!(first("Copy:MSC", false).0, "serial-lean");
        assert_eq!(first("GarbageFirst", true), ("g1-lean".into(), 4));
        assert_eq!(first("ParScav:MSC", true).1, 3);
    }

    #[test]
    fn settings_of_a_small_heap_in_a_large_process_are_not_named() {
        let mib = |number: u64| number << 20;
        assert!(!is_much(mib(6), mib(219)), "V8 held 6.5 of 219 MiB");
        assert!(!is_much(mib(40), mib(400)) && is_much(mib(120), mib(219)) && is_much(mib(40), mib(80)));
    }

    #[test]
    fn a_heap_is_too_large_where_three_quarters_are_free_and_resident() {
        let mib = |number: u64| number << 20;
        assert!(is_worth_it(&heap(mib(400), mib(50)), mib(300)));
        assert!(!is_worth_it(&heap(mib(400), mib(150)), mib(300)), "it needs it");
        assert!(!is_worth_it(&heap(mib(60), mib(1)), mib(100)), "too small");
        assert!(!is_worth_it(&heap(mib(4000), mib(50)), mib(300)), "most of it was never touched");
    }
}
