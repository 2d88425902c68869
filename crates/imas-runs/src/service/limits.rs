// SPDX-License-Identifier: Apache-2.0
//! Limits on runs, beside the definition of the service: a user's for all of a session, and on the memory of one.

use std::time::Duration;

/// Limits of each run. The default sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceLimits {
    /// Time limit from the start of the server to its end.
    pub timeout: Option<Duration>,
    /// A load that ends with an exit status other than 0, or whose requests fail, leaves the run valid.
    pub ignores_load_failure: bool,
    /// The server is kept on one CPU.
    pub one_cpu: bool,
}

/// Bound on the memory of the server in one run, by a control group that counts it, page cache included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryBound {
    /// Most bytes that the group may have, without swap; `None` counts alone.
    pub limit: Option<u64>,
    /// Variables that go with it, such as the limit of a heap.
    pub variables: Vec<(String, String)>,
    /// Most seconds of a line of load: one that takes longer ends the run.
    pub longest_line_s: Option<f64>,
}
