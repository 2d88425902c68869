// SPDX-License-Identifier: Apache-2.0
//! One trial, as the policy sees it.

use super::Point;

/// A trial: of which candidate, and its figures; None when it yielded none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// Index of the candidate.
    pub candidate: usize,
    /// Its figures.
    pub point: Option<Point>,
}
