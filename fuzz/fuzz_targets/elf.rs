// SPDX-License-Identifier: Apache-2.0
//! Executables from a coverage-guided enemy: no panic, no more read than the bound, no large memory (the same
//! check as in `crates/imas-linux/tests/hostile/`). The last byte says how long the file is: sparse files
//! cost their maker nothing.

#![no_main]

#[path = "../../crates/imas-linux/tests/hostile/file.rs"]
mod file;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((last, bytes)) = data.split_last() else { return };
    let _ = file::check(bytes, bytes.len() as u64 + (1 << (last % 48)) - 1);
});
