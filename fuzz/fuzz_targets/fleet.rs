// SPDX-License-Identifier: Apache-2.0
//! Any bytes as an aggregate and as statistics of a fleet.
#![no_main]

use imas_exchange::{Aggregate, FleetStatistics, prior};
use imas_fleet::fold;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Aggregate::read(bytes);
    let Ok(statistics) = FleetStatistics::read(bytes) else { return };
    let _ = prior(&statistics);
    let (after, _) = fold(&statistics, &[(u64::MAX, bytes.to_vec())]);
    assert!(FleetStatistics::read(&after.to_bytes()).is_ok());
});
