// SPDX-License-Identifier: Apache-2.0
//! Services that hold much free memory in glibc's heaps, as `imas apply --auto` finds them without any trial: a trim would
//! return it now. What a candidate that gives back costs shows under the watch, which takes it back where it is worse.

use imas_core::SYSTEM;
use imas_engine::context::Context;
use imas_engine::live::memory_point;
use imas_linux::running::{self, Running};
use imas_linux::serving::candidate::{On, RealCandidates};
use imas_linux::{process, process_heaps};

use super::unit::Unit;

use imas_cli::format::mib;
use imas_cli::message;

/// Least free memory of a service, and least share of its resident memory: a restart is worth no less.
const LEAST: u64 = 32 << 20;
const LEAST_SHARE: f64 = 0.1;
/// Processes of a service whose heaps are read, the largest first.
const MOST: usize = 16;

/// The candidate for a running service that was left untouched and holds much free memory.
pub(super) fn candidate(context: &Context, unit: &Unit) -> Option<String> {
    let candidates = RealCandidates::of(context.catalogue.all());
    let careful = memory_point::careful_candidate(&candidates)?.to_owned();
    let of_unit = |process: &Running| process.system_unit() == Some(unit.name.as_str()) && unit.has(process);
    let untouched = |process: &Running| process.is_on(SYSTEM, &candidates) != On::No;
    let own: Vec<Running> = running::all().into_iter().filter(of_unit).collect();
    if own.is_empty() || !own.iter().all(untouched) {
        return None;
    }
    let mut sized: Vec<(u64, u32)> =
        own.iter().filter_map(|one| Some((process::resident_bytes(one.pid)?, one.pid))).collect();
    sized.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let resident: u64 = sized.iter().map(|(bytes, _)| bytes).sum();
    let heaps = sized.iter().take(MOST).filter_map(|(_, pid)| process_heaps::of(*pid).ok());
    let free = heaps.map(|heaps| heaps.bytes.returnable).fold(0, u64::saturating_add);
    if !is_much(free, resident) {
        return None;
    }
    message::say(&format!(
        "imas: {}: {} of {} MiB are free pages that a trim returns; nothing is measured yet, so {careful} is tried",
        unit.name,
        mib(free as f64),
        mib(resident as f64)
    ));
    Some(careful)
}

fn is_much(free: u64, resident: u64) -> bool {
    free >= LEAST && free as f64 >= resident as f64 * LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_free_memory_is_no_reason_for_a_restart() {
        let mib = |number: u64| number << 20;
        assert!(is_much(mib(40), mib(150)));
        assert!(!is_much(mib(31), mib(60)), "too little");
        assert!(!is_much(mib(40), mib(900)), "too small a share");
    }
}
