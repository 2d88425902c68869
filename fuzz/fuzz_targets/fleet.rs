// SPDX-License-Identifier: Apache-2.0
//! Any bytes as an aggregate and as statistics of a fleet.
#![no_main]

use imas_exchange::{Aggregate, FleetStatistics, prior};
use imas_fleet::{StreamEntry, fold};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Aggregate::read(bytes);
    let Ok(statistics) = FleetStatistics::read(bytes) else { return };
    let _ = prior(&statistics);
    let entry = StreamEntry { sequence: u64::MAX, at_unix_s: 0, payload: bytes.to_vec() };
    let (after, _) = fold(&statistics, &[entry]);
    assert!(FleetStatistics::read(&after.to_bytes()).is_ok());
});
