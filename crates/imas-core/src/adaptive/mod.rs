// SPDX-License-Identifier: Apache-2.0
//! The default policy: as few trials as the answer needs, and never a change that is not proven.
//!
//! ```text
//! trials in order of time -> Board (rounds, paired with system) -> judge(weight) -> Judgement: next trial, or the pick
//! ```
//!
//! Trials are made in rounds: `system` and every candidate that is not eliminated, once each, in a seeded
//! random order. A candidate is compared with `system` of the same round, by the difference of logarithms, so
//! that what slows the machine for a while cancels out. Outlying runs are limited ([`mod@round`]).
//!
//! A candidate is eliminated when its expected remaining gain is below the cost of another trial ([`board::Belief`]).
//! In this, memory is trusted after one or two rounds, CPU later.
//!
//! To replace the incumbent, a candidate must meet three conditions:
//! - its measured lead is at least the margin;
//! - it differs for the better with 95 % confidence over all candidates and all looks. The spread comes from
//!   the program's own trials, a variance moderated towards the common one (G. K. Smyth, "Linear models and
//!   empirical Bayes methods", SAGMB 3, 2004);
//! - its posterior lead is positive with the same confidence ([`mod@judge`]'s `proof`).
//!
//! The measurements of other hosts ([`crate::fleet_prior`]) join the beliefs with a limited weight, and may
//! prove a candidate by a robust figure of their own.
//!
//! The prior from other programs decides which candidates are eliminated. It is never used to prove a
//! difference.
//!
//! A candidate that joins later gets as many rounds as the first ones had. One that has left the set
//! ([`Role::Kept`]) gets no further trials, but stays the pick until another one is proven better.

pub mod adaptive_state;
pub mod board;
pub mod evidence;
pub mod judge;
mod lives;
pub mod round;
pub mod settings;

pub use crate::compare::Residue;
pub use adaptive_state::{AdaptiveState, Due, Expired};
pub use board::{Board, HostTurn};
pub use evidence::{ExpectedGain, HostEvidence, Shown, TrialEvidence, expected, host_evidence};
pub use judge::{CandidateChange, Judgement, Proof, Role, Standing, Status, judge};
pub use lives::Untouched;
pub use round::Point;
pub use settings::{Objective, Overrides, Settings, Weight, weight};
