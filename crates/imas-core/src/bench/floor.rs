// SPDX-License-Identifier: Apache-2.0
//! How much CPU time and memory a program must use for a comparison of candidates.

/// The least that `system` must use. Below it, a ratio depends more on the start of a process than on the
/// allocator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Floor {
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Mean of resident anonymous memory, bytes.
    pub memory_bytes: u64,
}

impl Floor {
    /// Floor with which everything is compared that was measured: for summaries of many programs, which judge
    /// by all of them.
    pub const NONE: Self = Self { cpu_s: 0.0, memory_bytes: 1 };

    /// Floor for the verdict on one program: starting a process takes milliseconds and varies by as much, and
    /// a run with less memory ended before anybody could look.
    pub const BENCH: Self = Self { cpu_s: 0.005, memory_bytes: 64 << 10 };
}
