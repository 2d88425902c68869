// SPDX-License-Identifier: Apache-2.0
//! The verdict on one candidate, in the words of the table.

use imas_core::bench::{BenchPicks, IneligibleCandidate, Word};
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;

use super::CandidateReport;
use imas_cli::format;

/// Words on CPU and memory, and of what it is the pick; or why it cannot be picked.
pub(super) fn text(candidate: &CandidateReport, picks: &BenchPicks) -> String {
    if let Some(reason) = &candidate.reason {
        return format!("not usable: {reason}");
    }
    let mut words = match (&candidate.ineligible, &candidate.verdict) {
        (Some(why), _) => vec![objection(*why)],
        (None, Some(verdict)) if verdict.cpu == verdict.memory => vec![verdict.cpu.to_string()],
        (None, Some(verdict)) => {
            vec![word(verdict.cpu, candidate.ratio.cpu), word(verdict.memory, candidate.ratio.memory)]
        }
        (None, None) => vec![],
    };
    let titles = [("fastest", &picks.fastest), ("leanest", &picks.leanest), ("balanced", &picks.balanced)];
    // `system` is no pick: it is what stays where nothing is proven to be better.
    let won = titles.into_iter().filter(|(_, pick)| **pick == candidate.name && candidate.name != SYSTEM);
    words.extend(won.map(|(title, _)| format!("*{title}*")));
    words.join(", ")
}

/// The word, with the factor where that is large.
fn word(word: Word, ratio: Option<Interval>) -> String {
    let is_change = matches!(word, Word::Faster | Word::Slower | Word::LessMemory | Word::MoreMemory);
    let factor = ratio.filter(|_| is_change).and_then(|ratio| format::large_factor(ratio.mid));
    factor.map_or_else(|| word.to_string(), |factor| format!("{factor} {word}"))
}

/// Why a candidate that ran is out of the question, in a few words; the warnings say more.
fn objection(why: IneligibleCandidate) -> String {
    match why {
        IneligibleCandidate::NoRuns => "no runs".to_owned(),
        IneligibleCandidate::Crashed { signal } => format!("crashes (signal {signal})"),
        IneligibleCandidate::Hung => "hangs".to_owned(),
        IneligibleCandidate::Excess => "far too much".to_owned(),
        IneligibleCandidate::TimedOut => "not in time".to_owned(),
        IneligibleCandidate::ExitDiffers { exit } => format!("exits with {exit}"),
        IneligibleCandidate::OutputDiffers => "other output".to_owned(),
    }
}
