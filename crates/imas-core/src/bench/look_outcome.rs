// SPDX-License-Identifier: Apache-2.0
//! When a look at the runs ends them.

use super::options::Options;
use super::outlook::Outlook;
use super::pairs::Criterion;
use super::picks::Entrant;

/// The result of a look: whether further rounds are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookOutcome {
    /// The answer will not change by more rounds, or there is nothing to compare.
    Settled,
    /// The rounds that are left are far too few to settle it.
    Hopeless,
    /// More rounds may settle it.
    Open,
}

/// The least number of rounds from which the number of further rounds can be estimated well enough to stop.
const KNOWN: usize = 10;
/// The rounds end early if the estimate exceeds the rounds that are left by this factor.
const FAR_TOO_MANY: usize = 3;

impl LookOutcome {
    /// Outcome for candidates that can be picked, after this number of rounds.
    pub(super) fn of(entrants: &[Entrant<'_>], outlook: &Outlook, rounds: usize, options: &Options) -> Self {
        match outlook {
            Outlook::Unknown | Outlook::NoneBetter => Self::Settled,
            Outlook::TooFewRounds { .. } => Self::unless_hopeless(None, rounds, options),
            Outlook::LooksBetter { more_rounds, .. } | Outlook::Open { more_rounds, .. } => {
                Self::unless_hopeless(*more_rounds, rounds, options)
            }
            Outlook::Settled if has_unproven_leader(entrants, options) => Self::Open,
            Outlook::Settled => Self::Settled,
        }
    }

    /// Outcome for an answer that takes about `more_rounds` further rounds after `rounds`. None: any number
    /// is too few. It is open, or hopeless where far fewer rounds are left.
    fn unless_hopeless(more_rounds: Option<u32>, rounds: usize, options: &Options) -> Self {
        let most = options.looks.map_or(usize::MAX, |looks| looks.most as usize);
        let left = most.saturating_sub(rounds);
        let is_too_many = |more: u32| more as usize > left.saturating_mul(FAR_TOO_MANY);
        match more_rounds {
            _ if rounds < KNOWN => Self::Open,
            Some(more) if !is_too_many(more) => Self::Open,
            _ => Self::Hopeless,
        }
    }
}

/// Whether a candidate that looks best on one axis is not proven to be better than `system`.
fn has_unproven_leader(entrants: &[Entrant<'_>], options: &Options) -> bool {
    [Criterion::Cpu, Criterion::Memory].into_iter().any(|axis| {
        let mid =
            |entrant: &&Entrant<'_>| entrant.ratio(axis).map_or(f64::INFINITY, |ratio| ratio.interval.mid);
        let leader = entrants.iter().min_by(|a, b| mid(a).total_cmp(&mid(b)));
        let looks_better = |one: &&Entrant<'_>| mid(one) < 1.0 - axis.margin(options);
        leader.filter(looks_better).is_some_and(|one| !one.beats_system(axis, entrants.len(), options))
    })
}
