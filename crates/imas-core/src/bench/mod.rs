// SPDX-License-Identifier: Apache-2.0
//! From the runs of `imas bench` to ratios, words, picks and warnings.
//!
//! Every candidate is compared with `system`, run by run of the same round. A word is given only where the 95
//! % interval of the ratio excludes 1 and the ratio differs from 1 by more than the margin: a winner is never
//! declared inside the noise.

mod above_floor;
mod baseline;
mod comparison;
mod eligibility;
mod floor;
mod look_outcome;
mod observed;
mod options;
mod outlook;
mod pairs;
mod picks;
mod prepare;
mod run;
mod verdict;
mod warning;

pub use crate::compare::Looks;
pub use baseline::{BaselineCheck, BaselineFigure, CheckStatus, FailRule, check_against};
pub use comparison::{
    CandidateResult, Comparison, CountedExits, MoreRuns, Ratios, compare, compare_counted, look,
};
pub use eligibility::IneligibleCandidate;
pub use floor::Floor;
pub use look_outcome::LookOutcome;
pub use observed::Observed;
pub use options::Options;
pub use outlook::Outlook;
pub use picks::{BenchPicks, PassedOver, WhyPassedOver};
pub use prepare::prepare;
pub use run::{CandidateRuns, MedianRun};
pub use verdict::{Verdict, Word};
pub use warning::Warning;
