// SPDX-License-Identifier: Apache-2.0
//! From the runs of `imas bench` to ratios, words, picks and warnings.
//!
//! Every candidate is compared with `system`, run by run of the same round. A word is given only where the 95 %
//! interval of the ratio excludes 1 and the ratio differs from 1 by more than the margin: a winner is never declared inside
//! the noise.

mod comparison;
mod eligibility;
mod options;
mod pairs;
mod picks;
mod prepare;
mod run;
mod verdict;
mod warning;

pub use comparison::{CandidateResult, Comparison, CountedExits, MoreRuns, Ratios, compare, compare_counted};
pub use eligibility::Ineligible;
pub use options::Options;
pub use picks::BenchPicks;
pub use prepare::prepare;
pub use run::{CandidateRuns, MedianRun, Run};
pub use verdict::{Verdict, Word};
pub use warning::Warning;
