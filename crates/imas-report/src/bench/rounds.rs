// SPDX-License-Identifier: Apache-2.0
//! How many rounds a benchmark made, and why no more.

use imas_core::printable::counted;
use serde::{Deserialize, Serialize};

/// Why the rounds ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundsEnd {
    /// All rounds were made.
    AllMade,
    /// More rounds would not change the answer.
    Settled,
    /// The rounds that were left would have been far too few to settle it.
    Hopeless,
    /// The time was up.
    MaxTime,
    /// A signal ended the benchmark.
    Interrupted,
}

/// The rounds of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundsMade {
    /// Rounds that were made.
    pub made: u32,
    /// Rounds that might have been made.
    pub most: u32,
    /// Why no more rounds were made.
    pub ended: RoundsEnd,
}

impl RoundsMade {
    /// A sentence where fewer rounds were made than might have been.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let Self { made, most, ended } = *self;
        let why = match ended {
            RoundsEnd::AllMade => return None,
            RoundsEnd::Settled => "more would not change the answer",
            RoundsEnd::Hopeless => "all of them would not settle what is open",
            RoundsEnd::MaxTime => "the time was up",
            RoundsEnd::Interrupted => "interrupted",
        };
        let were = if made == 1 { "was" } else { "were" };
        Some(format!("{made} of at most {} {were} made: {why}", counted(most, "round")))
    }
}
