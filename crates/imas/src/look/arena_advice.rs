// SPDX-License-Identifier: Apache-2.0
//! Advice without a trial, for running processes with many threads whose glibc keeps much memory in many
//! arenas.
//!
//! The counts are read from outside the process. The saving by a setting is an estimate, and is called one.

use std::collections::BTreeMap;

use imas_cli::format::counted;
use imas_core::SYSTEM;
use imas_linux::arena_estimate::{CANDIDATE, KEPT, LEAST_BYTES, saving};
use imas_linux::arenas::Arenas;
use imas_linux::running::Running;
use imas_linux::serving::candidate::{On, RealCandidates};
use serde::{Deserialize, Serialize};

use crate::look::last_look::{Growth, LastLook};
use imas_engine::context::Context;

/// One process with many arenas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArenaRow {
    pid: u32,
    program: String,
    unit: Option<String>,
    /// Number of arenas beside the first.
    arenas: usize,
    threads: u64,
    /// Resident memory in the arenas, bytes.
    arena_bytes: u64,
    /// Resident memory in `[heap]`, bytes.
    heap_bytes: u64,
    /// Change of this memory since the last look.
    growth: Option<Growth>,
    /// Bytes that `glibc:arena2` may save: an estimate, not measured.
    estimate_bytes: f64,
    /// The advised command.
    how: String,
}

/// The processes that should be restarted, the largest estimate first. Only untouched processes: for the
/// others a candidate was chosen already. What is resident is read of few: that is what takes time.
pub(crate) fn rows(context: &Context, running: &[Running], candidates: &RealCandidates) -> Vec<ArenaRow> {
    let with_arenas = running.iter().filter(|process| process.other_arenas >= KEPT);
    let untouched =
        with_arenas.filter(|process| process.is_on(SYSTEM, candidates) != On::No && !is_limited(process));
    let seen = untouched.filter_map(|process| Some((process, Arenas::of(process.pid)?))).collect();
    let mut look = LastLook::beside(&context.store_path);
    let mut rows: Vec<ArenaRow> =
        worth_it(seen).iter().map(|(process, arenas)| row(process, arenas, &mut look)).collect();
    look.keep();
    rows.sort_by(|a, b| b.estimate_bytes.total_cmp(&a.estimate_bytes));
    rows
}

/// Whether the number of the process's arenas was set already.
fn is_limited(process: &Running) -> bool {
    let set = process.variables(|name| name == "MALLOC_ARENA_MAX" || name == "GLIBC_TUNABLES");
    set.iter().any(|(name, value)| name == "MALLOC_ARENA_MAX" || value.contains("arena_max"))
}

/// Processes whose service saves enough, or whose program if they are of no service: it is restarted as a
/// whole.
fn worth_it(seen: Vec<(&Running, Arenas)>) -> Vec<(&Running, Arenas)> {
    let whole = |process: &Running| process.unit.clone().unwrap_or_else(|| process.program.to_string());
    let mut savings: BTreeMap<String, f64> = BTreeMap::new();
    for (process, arenas) in &seen {
        *savings.entry(whole(process)).or_default() += saving(arenas);
    }
    let is_enough = |process: &Running| savings[&whole(process)] >= LEAST_BYTES;
    seen.into_iter().filter(|(process, arenas)| is_enough(process) && saving(arenas) > 0.0).collect()
}

fn row(process: &Running, arenas: &Arenas, look: &mut LastLook) -> ArenaRow {
    let how = match &process.unit {
        Some(unit) => format!("imas apply {unit} --candidate {CANDIDATE}"),
        None => format!(
            "start it again with 'imas run --candidate {CANDIDATE} -- ...', or measure it first: docs/services.md"
        ),
    };
    ArenaRow {
        pid: process.pid,
        program: process.program.to_string(),
        unit: process.unit.clone(),
        arenas: arenas.others,
        threads: arenas.threads,
        arena_bytes: arenas.heap_bytes,
        heap_bytes: arenas.main_bytes,
        growth: look.growth(process.pid, arenas.heap_bytes + arenas.main_bytes),
        estimate_bytes: saving(arenas),
        how,
    }
}

/// One sentence for each row.
pub(crate) fn page(rows: &[ArenaRow]) -> String {
    let mib = |bytes: f64| format!("{:.0} MiB", bytes / f64::from(1 << 20));
    let line = |row: &ArenaRow| {
        format!(
            "{} (pid {}): {}, {} in them, {}{}; {CANDIDATE} may save about {}: {}\n",
            row.unit.as_deref().unwrap_or(&row.program),
            row.pid,
            counted(row.arenas, "arena"),
            mib(row.arena_bytes as f64),
            counted(row.threads, "thread"),
            row.growth.map_or_else(String::new, grown),
            mib(row.estimate_bytes),
            row.how
        )
    };
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\nby their arenas alone, without any trial (an estimate, not measured):\n{lines}")
    }
}

/// Empty if the memory hardly changed.
fn grown(growth: Growth) -> String {
    let mib = growth.bytes as f64 / f64::from(1 << 20);
    let since = imas_cli::when::span(growth.seconds);
    if mib.abs() < 1.0 { String::new() } else { format!(", {mib:+.0} MiB in the last {since}") }
}
