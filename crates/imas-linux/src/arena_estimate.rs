// SPDX-License-Identifier: Apache-2.0
//! What fewer arenas of glibc would save a running process: an estimate that needs no trial.

use crate::arenas::Arenas;

/// Number of arenas under the advised setting.
pub const KEPT: usize = 2;
/// The advised setting.
pub const CANDIDATE: &str = "glibc:arena2";
/// Estimated share of the memory in the other arenas that is saved: free blocks that threads would reuse in a
/// common arena.
const SHARE_SAVED: f64 = 0.3;
/// A smaller saving does not justify a restart.
const LEAST_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Bytes saved; None if the saving is too small to report.
#[must_use]
pub fn estimate(arenas: &Arenas) -> Option<f64> {
    let beyond = arenas.heaps.checked_sub(KEPT).filter(|beyond| *beyond > 0)?;
    let bytes = arenas.heap_bytes as f64 * beyond as f64 / arenas.heaps as f64 * SHARE_SAVED;
    (bytes >= LEAST_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_arenas_with_much_memory_are_reported() {
        let of =
            |heaps, mib: u64| estimate(&Arenas { heaps, heap_bytes: mib << 20, main_bytes: 0, threads: 16 });
        assert_eq!((of(2, 4000), of(0, 0), of(16, 10)), (None, None, None));
        let many = of(40, 1200).unwrap() / f64::from(1 << 20);
        assert!((many - 1200.0 * 38.0 / 40.0 * 0.3).abs() < 1.0, "{many}");
    }
}
