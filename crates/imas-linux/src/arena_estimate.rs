// SPDX-License-Identifier: Apache-2.0
//! What fewer arenas of glibc would save a running process: an estimate that needs no trial.

use crate::arenas::Arenas;

/// Number of arenas under the advised setting, the first one in `[heap]` included.
pub const KEPT: usize = 2;
/// The advised setting.
pub const CANDIDATE: &str = "glibc:arena2";
/// Estimated share of the memory in the other arenas that is saved: free blocks that threads would reuse in a
/// common arena. From measured services (docs/services.md).
const SHARE_SAVED: f64 = 0.5;
/// A smaller saving, bytes, does not justify a restart.
pub const LEAST_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Bytes that one process would save.
#[must_use]
pub fn saving(arenas: &Arenas) -> f64 {
    let beyond = arenas.others.saturating_sub(KEPT - 1);
    if beyond == 0 {
        return 0.0;
    }
    arenas.heap_bytes as f64 * beyond as f64 / arenas.others as f64 * SHARE_SAVED
}

/// Bytes saved by a process that is alone; None if the saving is too small to report.
#[must_use]
pub fn estimate(arenas: &Arenas) -> Option<f64> {
    Some(saving(arenas)).filter(|bytes| *bytes >= LEAST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_arenas_with_much_memory_are_reported() {
        let of = |others, mib: u64| {
            estimate(&Arenas { others, heap_bytes: mib << 20, main_bytes: 0, threads: 16 })
        };
        assert_eq!((of(1, 4000), of(0, 0), of(16, 10)), (None, None, None));
        let many = of(40, 1200).unwrap() / f64::from(1 << 20);
        assert!((many - 1200.0 * 39.0 / 40.0 * SHARE_SAVED).abs() < 1.0, "{many}");
    }
}
