// SPDX-License-Identifier: Apache-2.0
//! Advice without a trial, for running processes of a language runtime: a JVM that holds far more than its objects
//! need, and programs whose settings nobody has tried.

use imas_linux::index::ServiceUnit;
use std::collections::BTreeMap;

use imas_core::SYSTEM;
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::process;
use imas_linux::running::Running;
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::runtime::Runtime;
use imas_linux::serving::candidate::{On, RealCandidates};
use serde::Serialize;

use crate::look::heap_words::size;
use imas_engine::context::Context;

/// A smaller process does not justify a restart, bytes.
const LEAST_RESIDENT: u64 = 64 << 20;
/// Name of G1, as the JVM's counters have it.
const G1: &str = "GarbageFirst";

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
pub(crate) fn rows(context: &Context, running: &[Running], candidates: &RealCandidates) -> Vec<RuntimeRow> {
    let mut largest: BTreeMap<String, (u64, &Running)> = BTreeMap::new();
    for process in running {
        let resident = process::resident_bytes(process.pid).unwrap_or(0);
        if resident < LEAST_RESIDENT || process.is_on(SYSTEM, candidates) == On::No {
            continue;
        }
        let whole = process.unit.as_ref().map_or_else(|| process.program.to_string(), ServiceUnit::to_string);
        let place = largest.entry(whole).or_insert((resident, process));
        if place.0 < resident {
            *place = (resident, process);
        }
    }
    let all = largest.into_values();
    let mut rows: Vec<_> = all.filter_map(|(bytes, one)| row(&context.catalogue, one, bytes)).collect();
    rows.sort_by_key(|row| (!row.is_proven(), std::cmp::Reverse(row.resident_bytes)));
    rows
}

fn row(catalogue: &Catalogue, process: &Running, resident_bytes: u64) -> Option<RuntimeRow> {
    let runtime = RunningRuntime::of(process)?;
    let jvm = runtime.jvm.clone().filter(|heap| is_worth_it(heap, resident_bytes));
    let of = runtime.found.runtime;
    // The settings of .NET that are tested by default are for some applications, whose files are not looked at here.
    let wanted = catalogue.of_runtime(of).filter(|one| one.default && of != Runtime::Dotnet);
    let mut fitting: Vec<&CatalogueCandidate> =
        wanted.filter(|candidate| runtime.fitted(candidate).is_ok()).collect();
    if let Some(heap) = &jvm {
        fitting.sort_by_key(|candidate| rank(candidate, heap));
    }
    let names: Vec<String> = fitting.iter().map(|candidate| candidate.name.clone()).collect();
    Some(RuntimeRow {
        pid: process.pid,
        program: process.program.to_string(),
        unit: process.unit.clone(),
        runtime: runtime.found.runtime,
        version: runtime.found.version,
        resident_bytes,
        how: how(process, &names, jvm.is_some())?,
        jvm,
        candidates: names,
    })
}

/// Much of what is committed and not needed may not be resident; the process is at least as large as what would go.
fn is_worth_it(heap: &JvmHeap, resident_bytes: u64) -> bool {
    heap.is_mostly_free()
        && heap.committed - heap.after_collection >= LEAST_RESIDENT
        && resident_bytes > heap.committed / 4
}

/// Lean settings of the collector that the process has come first.
fn rank(candidate: &CatalogueCandidate, heap: &JvmHeap) -> (bool, bool) {
    let arguments = candidate.runtime.iter().flat_map(|settings| &settings.arguments);
    let is_lean = arguments.clone().any(|one| one.starts_with("-XX:MaxHeapFreeRatio="));
    let is_g1 = arguments.clone().any(|one| one == "-XX:+UseG1GC");
    (!is_lean, is_g1 != (heap.collector == G1))
}

fn how(process: &Running, names: &[String], is_proven: bool) -> Option<String> {
    let first = names.first()?;
    Some(match process.system_unit() {
        Some(unit) if is_proven || names.len() == 1 => format!("imas apply {unit} --candidate {first}"),
        Some(unit) => format!("imas apply {unit} --candidate {first} (or {})", names[1..].join(", ")),
        None if is_proven => format!("start it again with 'imas run --candidate {first} -- ...'"),
        None => format!("imas bench --with {} -- COMMAND", names.join(",")),
    })
}

/// One sentence for each row.
pub(crate) fn page(rows: &[RuntimeRow]) -> String {
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
        Some(heap) => format!(
            "its JVM ({}) holds {} for its heap, and {} were left after the last collection",
            heap.collector,
            size(heap.committed),
            size(heap.after_collection)
        ),
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
    use super::*;

    fn heap(committed: u64, after_collection: u64) -> JvmHeap {
        JvmHeap { collector: G1.into(), collections: 1, committed, after_collection, classes: 0 }
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
