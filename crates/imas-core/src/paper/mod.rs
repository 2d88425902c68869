// SPDX-License-Identifier: Apache-2.0
//! The paper's policy to the letter, as pure functions: Algorithms 1, 8, 9, 10 and Eq. 2 of "The intelligent
//! memory allocator selector" (Ülgen and Avci, 2015). Where the paper is silent the rule is in the docs
//! of the function.

mod analyse;
mod average;
mod choose;
mod fold;
mod limits;
mod next_test;
#[cfg(test)]
mod tests;

pub use analyse::{Picks, analyse};
pub use average::average;
pub use choose::{Pick, choose, cpu_load_pct};
pub use fold::{TrialSummary, add, fold};
pub use limits::Limits;
pub use next_test::next_test;
