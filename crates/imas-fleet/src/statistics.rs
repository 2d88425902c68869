// SPDX-License-Identifier: Apache-2.0
//! What a fleet knows of one program in one environment: the value of the bucket, and the fold that makes it.

use serde::{Deserialize, Serialize};

use crate::key::{Environment, ProgramKey};

/// Greatest size of the encoded statistics in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// A cache of the deterministic fold of all aggregates of the stream up to `upto_seq`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct FleetStatistics {
    /// Version of the format, [`crate::aggregate::VERSION`].
    pub v: u32,
    /// The program.
    pub program: ProgramKey,
    /// Where it ran.
    pub environment: Environment,
    /// Sequence number in the stream of the last aggregate that is contained.
    pub upto_seq: u64,
    // Robust sums by candidate and group of hosts follow (see the decision).
}
