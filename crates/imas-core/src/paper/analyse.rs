// SPDX-License-Identifier: Apache-2.0
//! Algorithm 9: from summaries to the three picks.

use serde::{Deserialize, Serialize};

use super::{Pick, TrialSummary};

/// The three picks, as indices into the list of candidates.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picks {
    /// Least time per operation.
    pub fastest: usize,
    /// Least fragmentation.
    pub leanest: usize,
    /// Highest sum of both ranks.
    pub balanced: usize,
}

impl Picks {
    /// The index of one pick.
    pub fn get(&self, pick: Pick) -> usize {
        match pick {
            Pick::Fastest => self.fastest,
            Pick::Leanest => self.leanest,
            Pick::Balanced => self.balanced,
        }
    }
}

/// Picks among the candidates that have data and are `eligible` (same length as `summaries`); None when there
/// is none.
///
/// Candidates are sorted by time and by fragmentation, worst first; the place is the rank, the last is the
/// pick. Balanced is the highest sum of ranks, going through the candidates in order; of equal sums the one
/// of higher memory rank.
///
/// The paper is silent on two points. Equal values: the sort is stable in the reverse order of the
/// candidates, so the one that stands first in the catalogue (`system`) ranks best among equals and is not
/// displaced by its like. Candidates without data: they do not take part (the paper's zeros would make an
/// untested candidate the fastest).
pub fn analyse(summaries: &[TrialSummary], eligible: &[bool]) -> Option<Picks> {
    let is_eligible = |i: &usize| eligible.get(*i).copied().unwrap_or(false);
    let known: Vec<usize> =
        (0..summaries.len()).filter(is_eligible).filter(|&i| summaries[i].has_data()).collect();
    let by_time = worst_first(&known, |i| summaries[i].ns_per_op);
    let by_frag = worst_first(&known, |i| summaries[i].frag);
    let rank = |sorted: &[usize], i: usize| sorted.iter().position(|&j| j == i);
    let balanced = known.iter().copied().reduce(|best, i| {
        let key = |i| {
            let (time, frag) = (rank(&by_time, i), rank(&by_frag, i));
            (time.zip(frag).map(|(time, frag)| time + frag), frag)
        };
        if key(i) > key(best) { i } else { best }
    })?;
    Some(Picks { fastest: *by_time.last()?, leanest: *by_frag.last()?, balanced })
}

/// Indices by descending value; of equal values the earlier candidate stands later, that is better.
fn worst_first(known: &[usize], value: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut sorted: Vec<usize> = known.iter().rev().copied().collect();
    sorted.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
    sorted
}
