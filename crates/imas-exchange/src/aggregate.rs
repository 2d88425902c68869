// SPDX-License-Identifier: Apache-2.0
//! Figures that a host publishes about a program: never command lines, paths, environment or names of users.
//!
//! Hostile bytes as JSON of this version: what aggregates and statistics have in common.

use std::collections::BTreeMap;

use imas_core::stats::Moments;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::key::{Environment, ProgramKey};

/// Greatest size of an encoded aggregate in bytes.
pub const MAX_BYTES: usize = 8 << 10;

/// Most candidates of one aggregate.
pub const MAX_CANDIDATES: usize = 32;
/// Most rounds, trials or crashes that a host can have had since its last aggregate.
const MAX_COUNT: u32 = 10_000;
/// No candidate differs by more from another, as a difference of logarithms: e^10 is 22,000 times as much.
const MAX_DIFFERENCE: f64 = 10.0;

/// New evidence of one host about one program since its last aggregate: the merger that folds it adds the
/// sums.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// [`VERSION`]; others are skipped by readers.
    pub v: u32,
    /// The host: 26 characters as [`ProgramKey`], of a random number that it made once. The bus checks that
    /// it is the one that the connection's certificate names.
    pub host: String,
    /// Number of the boot and of the aggregate within it: with the host, the message id.
    pub boot: String,
    /// Counts up from 0 in each boot.
    pub batch: u64,
    /// The program.
    pub program: ProgramKey,
    /// The environment in which the program ran.
    pub environment: Environment,
    /// Evidence of each candidate, by the candidate's name.
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

/// Why bytes are no aggregate.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BadAggregate {
    /// Too large, of another version, or no JSON of the expected form.
    #[error(transparent)]
    Payload(#[from] BadPayload),
    /// A value that no host measures.
    #[error("out of range: {0}")]
    OutOfRange(&'static str),
}

impl Aggregate {
    /// Reads an aggregate from hostile bytes.
    ///
    /// # Errors
    /// When no host of this version would send it.
    pub fn read(bytes: &[u8]) -> Result<Self, BadAggregate> {
        let read: Self = read_payload(bytes, MAX_BYTES)?;
        read.check()?;
        Ok(read)
    }

    /// The message id: a repetition has the same one.
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.host, self.boot, self.batch)
    }

    fn check(&self) -> Result<(), BadAggregate> {
        let host = ProgramKey::try_from(self.host.clone());
        let is_boot = (1..=64).contains(&self.boot.len())
            && self.boot.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        let is_freedom = (0.0..=f64::from(MAX_COUNT)).contains(&self.freedom);
        let checks = [
            ("host", host.is_ok()),
            ("boot", is_boot),
            ("environment", self.environment.is_plausible()),
            ("candidates", self.candidates.len() <= MAX_CANDIDATES),
            ("names", self.candidates.keys().all(|name| is_name(name))),
            ("versions", self.candidates.values().all(|one| is_version(&one.version))),
            ("differences", self.candidates.values().all(CandidateAggregate::is_measured)),
            ("residual", is_freedom && is_spread(&self.residual, self.freedom)),
        ];
        match checks.into_iter().find(|(_, is_fine)| !is_fine) {
            Some((what, _)) => Err(BadAggregate::OutOfRange(what)),
            None => Ok(()),
        }
    }
}

impl CandidateAggregate {
    fn is_measured(&self) -> bool {
        let Moments { count, mean_x, mean_y, .. } = self.pairs;
        let is_difference = |mean: f64| mean.abs() <= MAX_DIFFERENCE;
        [count, self.void, self.crashes].iter().all(|&count| count <= MAX_COUNT)
            && is_difference(mean_x)
            && is_difference(mean_y)
            && is_spread(&self.pairs, f64::from(count))
    }
}

/// Whether sums of squares are possible for `count` differences. A comparison with what is not a number fails.
fn is_spread(sums: &Moments, count: f64) -> bool {
    let Moments { xx, yy, xy, .. } = *sums;
    let is_sum = |sum: f64| (0.0..=count * MAX_DIFFERENCE * MAX_DIFFERENCE).contains(&sum);
    is_sum(xx) && is_sum(yy) && xy.abs() <= (xx * yy).sqrt() * (1.0 + 1e-6) + 1e-9
}

/// Whether a text can be a candidate's name: 1 to 64 printable ASCII characters without blanks, quotes and
/// backslashes.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic() && !b"\"'\\<>".contains(&c))
}

/// Whether a text can be the version of an allocator: a name as in [`is_name`], or empty for unknown.
pub fn is_version(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// The version of the payload that this build writes.
pub const VERSION: u32 = 1;
/// Why bytes are no payload of this version.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BadPayload {
    /// More than the largest payload of its kind.
    #[error("{0} bytes are too many")]
    TooLarge(usize),
    /// Written by another IMAS. It is skipped: the writer is not to blame.
    #[error("version {0} is unknown")]
    UnknownVersion(u32),
    /// No JSON of the expected form.
    #[error("not readable: {0}")]
    Unreadable(String),
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// Reads at most `most` bytes. Values are not checked.
pub(super) fn read_payload<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, BadPayload> {
    if bytes.len() > most {
        return Err(BadPayload::TooLarge(bytes.len()));
    }
    let unreadable = |error: serde_json::Error| BadPayload::Unreadable(error.to_string());
    let Versioned { v } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if v != VERSION {
        return Err(BadPayload::UnknownVersion(v));
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}
