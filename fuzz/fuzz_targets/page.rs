// SPDX-License-Identifier: Apache-2.0
//! Trial pages from a coverage-guided enemy: no panic, and every page that is accepted keeps its promises
//! (the same check as in `crates/imas-linux/tests/ingest/trees.rs`).
//!
//! Only two sizes can be pages, so the mutator keeps to them: whatever has another size is thrown away for an
//! honest page.

#![no_main]

#[path = "../../crates/imas-linux/tests/ingest/common/mod.rs"]
mod common;

use imas_abi::TRIAL_PAGE_BYTES;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| {
    common::invariants::check(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let honest = if seed % 8 == 0 || max_size < TRIAL_PAGE_BYTES {
        common::bytes(&common::flight())
    } else {
        common::bytes(&common::trial())
    };
    let is_page = [4096, TRIAL_PAGE_BYTES].contains(&size);
    let size = if is_page { size } else { honest.len().min(max_size) };
    if !is_page {
        data[..size].copy_from_slice(&honest[..size]);
    }
    // A limit of the present size lets it overwrite and rearrange, not grow; what it cut off comes back.
    let kept = data[..size].to_vec();
    let mutated = fuzzer_mutate(data, size, size);
    data[mutated..size].copy_from_slice(&kept[mutated..]);
    size
});
