// SPDX-License-Identifier: Apache-2.0
//! What came of a rule against a baseline, in words.

use imas_core::bench::{BaselineCheck, CheckStatus};

use imas_cli::format;

/// One line: the rule, the candidate, the change with its interval, and what came of it.
#[must_use]
pub fn check_text(check: &BaselineCheck) -> String {
    let BaselineCheck { candidate, rule, ratio, status } = check;
    let change = ratio.as_ref().map_or_else(|| "not comparable".to_owned(), format::change);
    let verdict = match status {
        CheckStatus::Failed => "FAILED: the whole interval lies beyond the limit",
        CheckStatus::Passed => "passed",
        CheckStatus::NotComparable => "not checked",
    };
    format!("{rule} under {candidate}: {change} against the baseline: {verdict}")
}
