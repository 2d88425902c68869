// SPDX-License-Identifier: Apache-2.0
//! The figures that the paper prints.

/// The nine statistics in the paper's order, under the names of the driver.
pub(crate) const STATISTICS: [&str; 9] =
    ["mallocs", "frees", "reuses", "grows", "splits", "coalesces", "blocks", "requested", "max_heap"];

/// One of the three printed runs, the same under all four policies.
pub(crate) struct PrintedRun {
    pub(crate) test: usize,
    pub(crate) what: &'static str,
    pub(crate) statistics: [u64; 9],
}

pub(crate) const RUNS: [PrintedRun; 3] = [
    PrintedRun {
        test: 1,
        what: "a simple malloc and free",
        statistics: [2, 1, 0, 2, 0, 0, 2, 66_559, 66_560],
    },
    PrintedRun {
        test: 2,
        what: "exercise malloc and free",
        statistics: [1027, 514, 1, 1026, 1, 2, 1025, 1_180_670, 1_115_136],
    },
    PrintedRun { test: 3, what: "coalesce", statistics: [4, 3, 1, 3, 1, 2, 2, 5472, 3424] },
];

/// Test 2, "real": the system 8 ms, next and worst fit 12 ms, first and best fit 13 ms.
pub(crate) const TEST2_SYSTEM_MS: f64 = 8.0;
/// The higher of the policies' two printed times.
pub(crate) const TEST2_SLOWER_MS: f64 = 13.0;
/// The lower one.
pub(crate) const TEST2_QUICKER_MS: f64 = 12.0;
