// SPDX-License-Identifier: Apache-2.0
//! What a pick may cost a service.

use imas_core::server_bench::GuardRail;

/// Guard rails for CPU time and p99, as `imas bench` had them before decision 59; none where only memory counts.
pub(super) fn rails(memory_only: bool) -> Vec<GuardRail> {
    let usual = [("cpu", 0.02), ("p99", 0.05)].into_iter().filter(|_| !memory_only);
    usual.map(|(figure, most)| GuardRail { figure: figure.to_owned(), most }).collect()
}

/// Guard rails as they are printed: `cpu+2%, p99+5%`.
pub(super) fn in_words(rails: &[GuardRail]) -> String {
    if rails.is_empty() {
        return "none".to_owned();
    }
    rails.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
