// SPDX-License-Identifier: Apache-2.0
//! Why a heap was not read to its end.

/// Reason why a walk did not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// What was read cannot be a heap's: it was changed meanwhile, or is none.
    Torn,
    /// The page is not in memory.
    Absent,
    /// The time is over.
    Late,
    /// The kernel's answer.
    Unreadable(std::io::Error),
}
