// SPDX-License-Identifier: Apache-2.0
//! Heaps of a process from a coverage-guided enemy: no panic, no endless walk, no figure beyond what is mapped (the
//! same check as in `crates/imas-linux/tests/heaps/`). The first bytes lay out chunks, the rest overwrites words.

#![no_main]

#[path = "../../crates/imas-linux/tests/heaps/hostile.rs"]
mod hostile;
#[path = "../../crates/imas-linux/tests/heaps/made_memory.rs"]
mod made_memory;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let (layout, changes) = rest.split_at(rest.len().min(usize::from(*first) * 2));
    let _ = hostile::check(layout, changes);
});
