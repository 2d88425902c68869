// SPDX-License-Identifier: Apache-2.0
//! Algorithm 10: which candidate is tested next.

use super::{Limits, TrialSummary};

/// The next candidate to test: from the one after `last` (index of the last tested) onwards, cyclic, the
/// first that is `eligible`, has tests left and whose wait is over. None switches the test mode off.
///
/// Trials that yielded nothing take part in both rules, beyond the paper: they too start the wait, and as
/// many of them as tests are allowed end the candidate's tests ([`super::TrialSummary::void`]).
///
/// Without a last one, or where it has left the catalogue, the search starts with the first candidate.
pub fn next_test(
    summaries: &[TrialSummary],
    last: Option<usize>,
    eligible: &[bool],
    limits: &Limits,
    now_s: f64,
) -> Option<usize> {
    let len = summaries.len();
    let start = last.filter(|&last| last < len).map_or(0, |last| last + 1);
    (0..len).map(|i| (start + i) % len).find(|&i| {
        let summary = &summaries[i];
        eligible.get(i).copied().unwrap_or(false)
            && !summary.is_spent(limits)
            && limits.wait_is_over(summary.last_trial_s(), now_s)
    })
}
