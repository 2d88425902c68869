// SPDX-License-Identifier: Apache-2.0
//! From the runs of `imas bench` to ratios, a judgement and warnings.
//!
//! Every candidate is compared with `system`, run by run of the same round ([`Observed::compare`]). The answers, picks
//! and ending are one value, [`crate::judgement::BenchJudgement`].

mod baseline;
mod claims;
mod comparison;
mod eligibility;
mod warning;

pub use crate::compare::Looks;
pub use baseline::{BaselineCheck, BaselineFigure, CheckStatus, FailRule, check_against};
pub use claims::{Floor, Options};
pub use comparison::{CandidateResult, Comparison, CountedExits, Observed, Ratios, compare};
pub use eligibility::{CandidateRuns, IneligibleCandidate, MedianRun, OutputCheck, OutputJudgement, prepare};
pub use warning::Warning;
