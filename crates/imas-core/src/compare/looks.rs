// SPDX-License-Identifier: Apache-2.0
//! Looks at the runs while they are made.

use crate::stats::look_share;

/// A look after each round, from the first that may end the runs to the last that is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    /// Fewest rounds.
    pub first: u32,
    /// Most rounds.
    pub most: u32,
}

impl Looks {
    /// Looks of `imas bench -n auto`.
    pub const AUTO: Self = Self { first: 5, most: 30 };
    /// Looks of `imas bench -n auto` of a server, whose runs take minutes. Three rounds are the fewest of a proof.
    pub const SERVER: Self = Self { first: 3, most: 8 };

    /// Share of the allowed error that the test after this number of rounds may spend.
    pub fn share(self, rounds: usize) -> f64 {
        look_share(u32::try_from(rounds).unwrap_or(u32::MAX), self.first, self.most)
    }
}
