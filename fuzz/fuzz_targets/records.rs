// SPDX-License-Identifier: Apache-2.0
//! Records of ended threads from a coverage-guided enemy: no panic, no figure beyond what is believed (the same check as
//! in `crates/imas-linux/tests/hostile/`). The first byte is the number of the family.

#![no_main]

#[path = "../../crates/imas-linux/tests/hostile/records.rs"]
mod records;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((family, bytes)) = data.split_first() else { return };
    let _ = records::check(bytes, u16::from(*family));
});
