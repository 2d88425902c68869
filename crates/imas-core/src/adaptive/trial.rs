// SPDX-License-Identifier: Apache-2.0
//! One trial as the policy sees it.

use super::Point;

/// A trial of one candidate; without figures where it yielded none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JudgedTrial {
    /// Index of the candidate.
    pub candidate: usize,
    /// Figures of the trial.
    pub point: Option<Point>,
}
