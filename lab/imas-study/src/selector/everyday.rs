// SPDX-License-Identifier: Apache-2.0
//! The programs without the ones of the allocator literature.
//!
//! The programs of the literature do little but allocate, so their gains are many times the gains of others.
//! A mean over both describes neither.

use std::collections::BTreeMap;

use super::Judged;
use super::judge::Outcomes;

/// Title of the tables without the programs of the allocator literature.
pub(crate) const TITLE: &str = "The same without the programs of the allocator literature";
/// Prefix of these programs' names in `workloads/suite.toml`.
const LITERATURE: &str = "lit-";

/// Outcomes without the programs of the literature. None if there are no such programs, or no others.
pub(crate) fn outcomes(judged: &Judged) -> Option<Outcomes> {
    let is_everyday = |program: usize| !judged.source.programs[program].name.starts_with(LITERATURE);
    let all = judged.source.programs.len();
    let everyday = (0..all).filter(|&program| is_everyday(program)).count();
    let of = |of: &BTreeMap<usize, _>| {
        of.clone().into_iter().filter(|(program, _)| is_everyday(*program)).collect()
    };
    (0 < everyday && everyday < all).then(|| {
        judged.outcomes.iter().map(|(strategy, outcomes)| (strategy.clone(), of(outcomes))).collect()
    })
}
