// SPDX-License-Identifier: Apache-2.0
//! Algorithm 1: which pick suits the machine's state.

use serde::{Deserialize, Serialize};

/// Load from which on CPU counts as short, per cent.
const SHORT_CPU_PCT: f64 = 75.0;

/// One of the three picks.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Least time per operation.
    Fastest,
    /// Least fragmentation.
    Leanest,
    /// Highest sum of both ranks.
    Balanced,
}

/// Five-minute load average per CPU, per cent. 0 CPUs count as 1.
pub fn cpu_load_pct(load5: f64, cpus: u32) -> f64 {
    load5 / f64::from(cpus.max(1)) * 100.0
}

/// Lines 16 to 22 of Algorithm 1. `fastest_heap_bytes` and `leanest_heap_bytes` are the average heaps of the
/// program under these two picks (`avg_mem[0]` and `avg_mem[1]`).
pub fn choose(
    cpu_load_pct: f64,
    free_ram_bytes: f64,
    fastest_heap_bytes: f64,
    leanest_heap_bytes: f64,
) -> Pick {
    if cpu_load_pct >= SHORT_CPU_PCT && free_ram_bytes >= fastest_heap_bytes {
        Pick::Fastest
    } else if cpu_load_pct < SHORT_CPU_PCT && free_ram_bytes < leanest_heap_bytes {
        Pick::Leanest
    } else {
        Pick::Balanced
    }
}

#[cfg(test)]
mod tests {
    use super::{Pick, choose, cpu_load_pct};

    #[test]
    fn each_pressure_has_its_pick() {
        let table = [
            (75.0, 100.0, 100.0, 50.0, Pick::Fastest),
            (74.9, 100.0, 100.0, 50.0, Pick::Balanced),
            (75.0, 99.0, 100.0, 50.0, Pick::Balanced),
            (75.0, 10.0, 100.0, 50.0, Pick::Balanced),
            (10.0, 49.0, 100.0, 50.0, Pick::Leanest),
            (10.0, 50.0, 100.0, 50.0, Pick::Balanced),
            (800.0, 100.0, 0.0, 0.0, Pick::Fastest),
        ];
        for (load, free, fastest, leanest, expected) in table {
            assert_eq!(choose(load, free, fastest, leanest), expected, "{load} {free} {fastest} {leanest}");
        }
    }

    #[test]
    fn load_is_per_cpu() {
        assert_eq!(cpu_load_pct(3.0, 4), 75.0);
        assert_eq!(cpu_load_pct(0.5, 0), 50.0);
    }
}
