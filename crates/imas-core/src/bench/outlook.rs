// SPDX-License-Identifier: Apache-2.0
//! What the runs say as a whole: by the same ratios and picks as the table.

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::pairs::{Criterion, more_runs};
use super::picks::{BenchPicks, Entrant};
use crate::candidate::SYSTEM;
use crate::compare::{Answer, PairedRatio};
use crate::stats::attainable_confidence;

/// What the runs say as a whole.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outlook {
    /// A candidate is better than `system`: the picks name it.
    Settled,
    /// A candidate is better in these runs, which are too few or too noisy to prove it.
    LooksBetter {
        /// Name of the candidate.
        candidate: String,
        /// Rounds that it was compared in.
        rounds: usize,
        /// Confidence that this number of rounds can reach, 0 to 0.95.
        confidence: f64,
        /// Rough number of further rounds that would prove it; None where none would.
        more_rounds: Option<u32>,
    },
    /// No candidate is shown to be better, and some may be.
    Open {
        /// Rough number of further rounds that would settle it; None where it is too close to call.
        more_rounds: Option<u32>,
        /// Upper bound of a gain by the intervals, as a part of 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        less_than: Option<f64>,
    },
    /// Too few rounds to prove anything.
    TooFewRounds {
        /// Rounds that were compared.
        rounds: usize,
        /// Fewest rounds for a proof.
        least: usize,
    },
    /// The runs show that none is better by more than the margin.
    NoneBetter,
    /// Nothing to compare.
    Unknown,
}

/// The outlook of candidates that can be picked; their ratios rest on as many rounds as there are.
pub(super) fn outlook(entrants: &[Entrant<'_>], picks: &BenchPicks, options: &Options) -> Outlook {
    let all = [&picks.fastest, &picks.leanest, &picks.balanced];
    if all.into_iter().any(|pick| pick != SYSTEM) {
        return Outlook::Settled;
    }
    if entrants.iter().all(|entrant| entrant.cpu.is_none() && entrant.memory.is_none()) {
        return Outlook::Unknown;
    }
    let rounds =
        entrants.iter().flat_map(|one| [one.cpu, one.memory]).flatten().map(|ratio| ratio.rounds).max();
    if let Some(rounds) = rounds.filter(|rounds| *rounds < options.min_runs) {
        return Outlook::TooFewRounds { rounds, least: options.min_runs };
    }
    if let Some((entrant, ratio)) = best_of_better(entrants, options) {
        return Outlook::LooksBetter {
            candidate: entrant.name.to_owned(),
            rounds: ratio.rounds,
            confidence: attainable_confidence(ratio.rounds),
            more_rounds: rounds_to_be_sure(ratio, entrants.len(), options),
        };
    }
    let open: Vec<Option<u32>> = entrants.iter().filter_map(|entrant| open(entrant, options)).collect();
    match open.iter().flatten().max() {
        _ if open.is_empty() => Outlook::NoneBetter,
        more => Outlook::Open { more_rounds: more.copied(), less_than: largest_gain(entrants) },
    }
}

/// Best candidate of those that are better than `system` in these runs, and the ratio by which it is better.
/// It is the candidate that is best in both figures, else in CPU time, else in memory.
fn best_of_better<'a, 'b>(
    entrants: &'a [Entrant<'b>],
    options: &Options,
) -> Option<(&'a Entrant<'b>, PairedRatio)> {
    let within =
        |ratio: Option<PairedRatio>, margin| ratio.is_none_or(|ratio| ratio.interval.mid <= 1.0 + margin);
    let is_balanced = |entrant: &&Entrant<'b>| {
        within(entrant.cpu, options.margins.cpu) && within(entrant.memory, options.margins.memory)
    };
    let better = |criterion: Criterion, all: bool| {
        let those = entrants.iter().filter(move |entrant| all || is_balanced(entrant));
        let ratios = those.filter_map(move |entrant| Some((entrant, entrant.ratio(criterion)?)));
        ratios
            .filter(move |(_, ratio)| {
                Answer::by_interval(ratio.interval, criterion.margin(options)) == Answer::Better
            })
            .min_by(|(_, a), (_, b)| a.interval.mid.total_cmp(&b.interval.mid))
    };
    let both = [Criterion::Balance, Criterion::Cpu, Criterion::Memory].map(|criterion| (criterion, false));
    let one = [Criterion::Cpu, Criterion::Memory].map(|criterion| (criterion, true));
    both.into_iter().chain(one).find_map(|(criterion, all)| better(criterion, all))
}

/// The largest gain that an interval leaves open.
fn largest_gain(entrants: &[Entrant<'_>]) -> Option<f64> {
    let ratios = entrants.iter().flat_map(|one| [one.cpu, one.memory]).flatten();
    ratios.map(|ratio| 1.0 - ratio.interval.lo).max_by(f64::total_cmp)
}

/// Rough number of further rounds that would prove the ratio: at least as many as the full confidence takes.
fn rounds_to_be_sure(ratio: PairedRatio, of: usize, options: &Options) -> Option<u32> {
    const FULL_CONFIDENCE: usize = 6;
    let missing = FULL_CONFIDENCE.max(options.min_runs).saturating_sub(ratio.rounds);
    let missing = u32::try_from(missing).unwrap_or(u32::MAX);
    if ratio.rounds < 2 {
        return Some(missing); // nothing is known of the noise yet
    }
    let proof = ratio.rounds_to_prove(&options.demand(of))?;
    Some(proof.max(missing).max(1))
}

/// Whether a candidate may be better than `system` although the runs do not show it, and how many further
/// rounds would settle that.
fn open(entrant: &Entrant<'_>, options: &Options) -> Option<Option<u32>> {
    let axes = [(entrant.cpu, options.margins.cpu), (entrant.memory, options.margins.memory)];
    let may_be = axes.into_iter().filter_map(|(ratio, margin)| {
        let ratio = ratio?;
        let cannot_be_better = ratio.is_above(1.0 - margin, &options.demand(1));
        (!cannot_be_better).then(|| more_runs(ratio.interval, ratio.rounds, margin, options.min_runs))
    });
    let more: Vec<Option<u32>> = may_be.collect();
    (!more.is_empty()).then(|| more.into_iter().flatten().max())
}
