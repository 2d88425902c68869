// SPDX-License-Identifier: Apache-2.0
//! Advice without a trial, for running processes whose glibc holds free pages: what a trim would return is read from
//! outside, to the page.

use imas_linux::index::ServiceUnit;
use std::collections::BTreeMap;

use imas_cli::format::counted;
use imas_core::SYSTEM;
use imas_engine::live::memory_point::{self, LEAST_BYTES};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::running::Running;
use imas_linux::serving::candidate::{On, RealCandidates};
use imas_linux::{process, process_heaps};
use serde::Serialize;

use crate::look::heap_words::{self, size};
use crate::look::last_look::{Growth, LastLook};
use imas_engine::context::Context;

/// One process that holds free pages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HeapRow {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    threads: u64,
    /// What its heaps hold.
    heaps: HeapFigures,
    /// Change of what they hold since the last look.
    growth: Option<Growth>,
    /// The candidate that is advised.
    candidate: Option<String>,
    /// The advised command.
    how: String,
}

/// The processes that hold enough, those with the most first. Only untouched processes: for the others a candidate was
/// chosen already.
pub(crate) fn rows(context: &Context, running: &[Running], candidates: &RealCandidates) -> Vec<HeapRow> {
    let is_large =
        |process: &&Running| process::resident_bytes(process.pid).is_some_and(|bytes| bytes >= LEAST_BYTES);
    let untouched = running.iter().filter(|process| process.is_on(SYSTEM, candidates) != On::No);
    let looked_at = untouched
        .filter(is_large)
        .filter_map(|process| Some((process, process_heaps::of(process.pid).ok()?)));
    let mut look = LastLook::beside(&context.store_path);
    let advised = memory_point::advised_candidate(candidates);
    let mut rows: Vec<HeapRow> = worth_it(looked_at.collect())
        .into_iter()
        .map(|(process, heaps)| row(process, heaps, advised, &mut look))
        .collect();
    look.keep();
    rows.sort_by_key(|row| std::cmp::Reverse(row.heaps.bytes.returnable));
    rows
}

/// Processes whose service holds enough, or whose program if they are of no service: it is restarted as a whole.
fn worth_it(looked_at: Vec<(&Running, HeapFigures)>) -> Vec<(&Running, HeapFigures)> {
    let whole = |process: &Running| {
        process.unit.as_ref().map_or_else(|| process.program.to_string(), ServiceUnit::to_string)
    };
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (process, heaps) in &looked_at {
        *sums.entry(whole(process)).or_default() += heaps.bytes.returnable;
    }
    let is_enough = |process: &Running| sums[&whole(process)] >= LEAST_BYTES;
    let holds = looked_at.into_iter().filter(|(_, heaps)| heaps.bytes.returnable > 0);
    holds.filter(|(process, _)| is_enough(process)).collect()
}

fn row(process: &Running, heaps: HeapFigures, advised: Option<&str>, look: &mut LastLook) -> HeapRow {
    let pid = process.pid.to_string();
    let now = format!("'imas trim {}' returns them now", process.system_unit().unwrap_or(&pid));
    let how = match (process.system_unit(), advised) {
        (Some(unit), Some(candidate)) => format!(
            "{now}; 'imas apply {unit} --candidate {candidate}' keeps fewer from the next start on, and may cost CPU time: \
             measure first (docs/services.md)"
        ),
        (None, Some(candidate)) => format!(
            "{now}; 'imas run --candidate {candidate} -- ...' keeps fewer from the next start on, and may cost CPU time: \
             measure first (docs/services.md)"
        ),
        (_, None) => now,
    };
    HeapRow {
        pid: process.pid,
        program: process.program.to_string(),
        unit: process.unit.clone(),
        threads: process::threads(process.pid).unwrap_or(0),
        growth: look.growth(process.pid, heaps.held),
        candidate: advised.map(str::to_owned),
        heaps,
        how,
    }
}

/// One sentence for each row.
pub(crate) fn page(rows: &[HeapRow]) -> String {
    let line = |row: &HeapRow| {
        format!(
            "{} (pid {}, {}): {}{}; {}\n",
            row.unit.as_ref().map_or_else(|| row.program.clone(), ServiceUnit::to_string),
            row.pid,
            counted(row.threads, "thread"),
            heap_words::held(&row.heaps),
            row.growth.map_or_else(String::new, grown),
            row.how
        )
    };
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    let sum = size(rows.iter().map(|row| row.heaps.bytes.returnable).sum());
    format!(
        "\nby their heaps, without any trial: {sum} in free pages that 'imas trim' would return now\n{lines}"
    )
}

/// Empty if the memory hardly changed.
fn grown(growth: Growth) -> String {
    let mib = growth.bytes as f64 / f64::from(1 << 20);
    let since = imas_cli::when::span(growth.seconds);
    if mib.abs() < 1.0 { String::new() } else { format!(", {mib:+.0} MiB in the last {since}") }
}
