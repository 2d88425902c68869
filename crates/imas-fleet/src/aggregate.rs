// SPDX-License-Identifier: Apache-2.0
//! What a host publishes about a program: never command lines, paths, environment or names of users.

use std::collections::BTreeMap;

use imas_core::stats::Moments;
use serde::{Deserialize, Serialize};

use crate::key::{Environment, ProgramKey};

/// The version of the payload that this build writes.
pub const VERSION: u32 = 1;
/// Greatest size of an encoded aggregate in bytes.
pub const MAX_BYTES: usize = 8 << 10;

/// New evidence of one host about one program since its last aggregate: sums are added by whoever folds it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// [`VERSION`]; others are skipped by readers.
    pub v: u32,
    /// The host: 26 characters as [`ProgramKey`], of a random number that it made once. The bus checks that it
    /// is the one that the connection's certificate names.
    pub host: String,
    /// Number of the boot and of the aggregate within it: with the host, the message id.
    pub boot: String,
    /// Counts up from 0 in each boot.
    pub batch: u64,
    /// The program.
    pub program: ProgramKey,
    /// Where it ran.
    pub environment: Environment,
    /// By candidate name.
    pub candidates: BTreeMap<String, CandidateAggregate>,
    /// Squares of the residuals of the host's runs after the effects of candidate and round, as
    /// [`imas_core::adaptive::Residue`].
    pub residual: Moments,
    /// Degrees of freedom of `residual`.
    pub freedom: f64,
}

/// New evidence about one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateAggregate {
    /// Build or version of its allocator. Figures of another version are not pooled.
    pub version: String,
    /// Differences of ln CPU (x) and ln memory (y) to `system` of the same round on the same host.
    pub pairs: Moments,
    /// Trials without figures.
    pub void: u32,
    /// Crashes and hangs that count against the candidate.
    pub crashes: u32,
}
