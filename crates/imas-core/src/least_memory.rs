// SPDX-License-Identifier: Apache-2.0
//! The least memory that a server works in: which limit is tried next, from the runs that were made.
//!
//! Two runs without a limit say how fast the server is, and what it holds at most. Limits are then halved in, on a
//! logarithmic scale, between the highest that failed and the lowest that worked, until they lie within 5 % of each other.
//! The lowest has to work twice. A candidate other than `system` begins just below the least limit that is known: where it
//! fails there, it is no better, and that is all that was asked.
//!
//! A limit fails where the kernel kills a process, where the load fails, or where the load is slower than without a limit by
//! more than [`LeastOptions::slower`] and by more than two runs without a limit differ.

use serde::{Deserialize, Serialize};

/// Unit to which limits are rounded, bytes: half a MiB.
const STEP: u64 = 1 << 19;
/// No limit below this is tried: the process that starts a server is in its group for a moment.
const LEAST: u64 = 4 << 20;
/// First limit after the most that was held, as a share of that.
const FIRST_SHARE: f64 = 0.7;
/// Runs without a limit.
const UNLIMITED: usize = 2;
/// Runs that have to work at the least limit.
const CONFIRMATIONS: usize = 2;
/// Free part of a suggested limit, as a share of the least one, per cent.
pub const RESERVE: u64 = 20;
/// Memory still grows where the last cycle of the load added more than this part of it: one in thirty.
const GROWING: u64 = 30;
/// A p99 is higher where it is higher by that multiple of what two runs without a limit differ by.
const P99_NOISES: f64 = 2.0;
/// Steps between the heap's shares of the limit, per cent: the wide ones first.
const SHARE_STEPS: [u64; 2] = [12, 6];
/// Shares of the limit that a heap may have, per cent. With less there is no heap to speak of, and with more no room for
/// the rest of the process.
const SHARES: std::ops::RangeInclusive<u64> = 20..=95;

/// How a run within a limit ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum LimitEnd {
    /// The load came to its end.
    Worked,
    /// The kernel killed a process of the server for want of memory.
    Killed,
    /// The server or its load failed otherwise, in words.
    Failed(String),
}

/// One run of a server.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct LimitRun {
    /// Most bytes that the server's group might have; None without a limit.
    pub limit: Option<u64>,
    /// How it ended.
    pub end: LimitEnd,
    /// Requests, or cycles of load, in a second.
    pub rate: Option<f64>,
    /// 99th percentile of the latency, ms.
    pub p99: Option<f64>,
    /// Most bytes that the group had, page cache included.
    pub peak: Option<u64>,
    /// Resident anonymous memory at the end of each cycle of the load, bytes.
    pub cycle_ends: Vec<u64>,
}

impl LimitRun {
    /// Bytes that the last cycle of the load added, where that is more than one in thirty.
    fn growth(&self) -> Option<u64> {
        let [.., before, last] = self.cycle_ends[..] else { return None };
        let more = last.saturating_sub(before);
        (more.saturating_mul(GROWING) > last).then_some(more)
    }
}

/// Bytes that each further cycle of the load may add, by the runs without a limit: all of them still grew in their last
/// cycle. None where one did not, or had a single cycle.
#[must_use]
pub fn growth_of_a_cycle(runs: &[LimitRun]) -> Option<u64> {
    let grown: Option<Vec<u64>> =
        runs.iter().filter(|run| run.limit.is_none()).map(LimitRun::growth).collect();
    grown?.into_iter().min()
}

/// Speed of the server without a limit, by its runs under `system`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Unlimited {
    /// Mean rate, 1/s.
    pub rate: f64,
    /// Highest p99, ms.
    pub p99: Option<f64>,
    /// Difference of the p99 of two runs, as a share of the lower one.
    pub p99_noise: Option<f64>,
    /// Most bytes that a group had.
    pub peak: u64,
    /// Difference of the rates of two runs, as a share of their mean: no smaller one can be seen.
    pub noise: f64,
}

/// Demands on a run.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct LeastOptions {
    /// Share by which the load may be slower than without a limit.
    pub slower: f64,
    /// Share by which p99 may be higher than without a limit. Twice the difference of two runs without a limit counts
    /// where that is more.
    pub p99: f64,
    /// Share by which the limit that is found may be too high.
    pub precision: f64,
    /// Most runs of a candidate.
    pub most_runs: usize,
}

impl Default for LeastOptions {
    fn default() -> Self {
        Self { slower: 0.05, p99: 0.25, precision: 0.05, most_runs: 24 }
    }
}

/// The run that is made next.
#[derive(Clone, PartialEq, Debug)]
pub enum NextLimit {
    /// One without a limit.
    Unlimited,
    /// One within this limit, bytes.
    Limit(u64),
    /// None: it is known.
    End(LeastEnd),
}

/// End of the search of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum LeastEnd {
    /// Least limit in which it works, bytes.
    Found(u64),
    /// It fails at this limit, which is just below the least one that is known.
    NoBetter(u64),
    /// It fails without a limit, in words.
    Fails(String),
    /// It worked in this limit, and the runs were used up before that was sure.
    NotSettled(u64),
}

impl LeastEnd {
    /// Least limit, bytes, where one is known.
    #[must_use]
    pub fn least(&self) -> Option<u64> {
        match self {
            Self::Found(bytes) | Self::NotSettled(bytes) => Some(*bytes),
            Self::NoBetter(_) | Self::Fails(_) => None,
        }
    }
}

impl Unlimited {
    /// Speed by the runs without a limit; None where fewer worked than are needed, or one says neither rate nor peak.
    #[must_use]
    pub fn of(runs: &[LimitRun]) -> Option<Self> {
        let free: Vec<&LimitRun> =
            runs.iter().filter(|run| run.limit.is_none() && run.end == LimitEnd::Worked).collect();
        if free.len() < UNLIMITED {
            return None;
        }
        let rates: Option<Vec<f64>> = free.iter().map(|run| run.rate).collect();
        let rates = rates?;
        let rate = rates.iter().sum::<f64>() / rates.len() as f64;
        let (least, most) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
        let p99s = || free.iter().filter_map(|run| run.p99);
        let (prompt, p99) = (p99s().reduce(f64::min), p99s().reduce(f64::max));
        let p99_noise =
            prompt.zip(p99).filter(|(least, _)| *least > 0.0).map(|(least, most)| most / least - 1.0);
        let peak = free.iter().filter_map(|run| run.peak).max()?;
        (rate > 0.0).then_some(Self { rate, p99, p99_noise, peak, noise: (most - least) / rate })
    }

    /// Share by which a run may be slower: what was asked for, or what cannot be seen.
    #[must_use]
    pub fn tolerance(&self, options: &LeastOptions) -> f64 {
        options.slower.max(self.noise)
    }

    /// Whether the run worked as well as those without a limit.
    #[must_use]
    pub fn is_as_good(&self, run: &LimitRun, options: &LeastOptions) -> bool {
        let is_fast = run.rate.is_none_or(|rate| rate >= self.rate * (1.0 - self.tolerance(options)));
        let more = options.p99.max(P99_NOISES * self.p99_noise.unwrap_or_default());
        let most = self.p99.map(|p99| p99 * (1.0 + more));
        let is_prompt = run.p99.zip(most).is_none_or(|(p99, most)| p99 <= most);
        run.end == LimitEnd::Worked && is_fast && is_prompt
    }
}

/// Search for the least limit of one candidate.
#[derive(Clone, Copy, Debug)]
pub struct LeastSearch<'a> {
    /// Speed to hold; None while the candidate is `system` and its runs without a limit are not made.
    pub unlimited: Option<Unlimited>,
    /// Least limit that another candidate works in, bytes; None for the first one.
    pub known: Option<u64>,
    /// Demands.
    pub options: &'a LeastOptions,
}

impl LeastSearch<'_> {
    /// The next run of the candidate after these of its own.
    #[must_use]
    pub fn next(&self, runs: &[LimitRun]) -> NextLimit {
        if let Some(why) = runs.iter().filter(|run| run.limit.is_none()).find_map(why_failed) {
            return NextLimit::End(LeastEnd::Fails(why));
        }
        let Some(unlimited) = self.unlimited else {
            let is_made = runs.iter().filter(|run| run.limit.is_none()).count() >= UNLIMITED;
            let why =
                || "its load says no rate, or the kernel does not count the memory of a group".to_owned();
            return if is_made { NextLimit::End(LeastEnd::Fails(why())) } else { NextLimit::Unlimited };
        };
        let bounds = Bounds::of(runs, &unlimited, self);
        match self.known {
            Some(known) if bounds.works.is_none() => self.first(known, &bounds),
            _ => self.within(runs, &bounds, rounded_up(unlimited.peak)),
        }
    }

    /// Least limit of these runs in which it worked as well as without one, above all that failed.
    #[must_use]
    pub fn so_far(&self, runs: &[LimitRun]) -> Option<u64> {
        Bounds::of(runs, &self.unlimited?, self).works
    }

    /// Just below the limit of another candidate.
    fn first(&self, known: u64, bounds: &Bounds) -> NextLimit {
        let below = rounded_down(scaled(known, 1.0 - self.options.precision));
        if below < LEAST || bounds.fails.is_some() {
            return NextLimit::End(LeastEnd::NoBetter(below));
        }
        NextLimit::Limit(below)
    }

    fn within(&self, runs: &[LimitRun], bounds: &Bounds, peak: u64) -> NextLimit {
        let fails = bounds.fails.unwrap_or(0);
        let works = bounds.works.unwrap_or_else(|| peak.max(fails + STEP));
        let is_close = works <= rounded_up(scaled(fails, 1.0 + self.options.precision));
        let is_least = is_close || works <= LEAST;
        let confirmed = runs.iter().filter(|run| run.limit == Some(works)).count() >= CONFIRMATIONS;
        if bounds.works.is_some() && is_least && confirmed {
            return NextLimit::End(LeastEnd::Found(works));
        }
        if runs.len() >= self.options.most_runs {
            return NextLimit::End(bounds.works.map_or_else(
                || LeastEnd::Fails("it fails in all that it holds without a limit".to_owned()),
                LeastEnd::NotSettled,
            ));
        }
        if is_least {
            return NextLimit::Limit(works);
        }
        let next = match fails {
            0 => scaled(works, FIRST_SHARE),
            fails => scaled(fails, (works as f64 / fails as f64).sqrt()),
        };
        NextLimit::Limit(rounded_down(next).clamp((fails + STEP).max(LEAST), works))
    }
}

/// The share of the limit (per cent) that a runtime's heap gets next, after these with their least limits; `usual` are tried
/// first, then the neighbours of the best, until none of them is better. None at the end.
///
/// A share that is no better costs one run, so that looking beside the best is cheap.
#[must_use]
pub fn next_share(usual: &[u64], tried: &[(u64, Option<u64>)]) -> Option<u64> {
    let is_new = |share: &u64| SHARES.contains(share) && tried.iter().all(|(before, _)| before != share);
    if let Some(share) = usual.iter().copied().find(is_new) {
        return Some(share);
    }
    let found = tried.iter().filter_map(|(share, least)| Some((*share, (*least)?)));
    let (best, _) = found.min_by_key(|(_, least)| *least)?;
    let beside = |step: u64| [best + step, best.saturating_sub(step)];
    SHARE_STEPS.into_iter().flat_map(beside).find(is_new)
}

/// The highest limit that failed, and the lowest above it at which no run failed.
struct Bounds {
    fails: Option<u64>,
    works: Option<u64>,
}

impl Bounds {
    fn of(runs: &[LimitRun], unlimited: &Unlimited, search: &LeastSearch<'_>) -> Self {
        let limited = || runs.iter().filter_map(|run| Some((run.limit?, run)));
        let is_good = |run: &LimitRun| unlimited.is_as_good(run, search.options);
        let failed = limited().filter(|(_, run)| !is_good(run)).map(|(limit, _)| limit);
        let fails = failed.max();
        let worked =
            limited().filter(|(limit, run)| is_good(run) && fails.is_none_or(|fails| *limit > fails));
        Self { fails, works: worked.map(|(limit, _)| limit).min() }
    }
}

fn why_failed(run: &LimitRun) -> Option<String> {
    match &run.end {
        LimitEnd::Worked => None,
        LimitEnd::Killed => Some("the kernel killed it for want of memory".to_owned()),
        LimitEnd::Failed(why) => Some(why.clone()),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are positive, and bytes far below 2^53"
)]
fn scaled(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

fn rounded_up(bytes: u64) -> u64 {
    bytes.div_ceil(STEP).saturating_mul(STEP)
}

fn rounded_down(bytes: u64) -> u64 {
    bytes / STEP * STEP
}

/// A limit to set, bytes: the least one with a reserve, in whole MiB.
#[must_use]
pub fn suggested_limit(least: u64) -> u64 {
    scaled(least, 1.0 + RESERVE as f64 / 100.0).div_ceil(1 << 20).saturating_mul(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn run(limit: Option<u64>, end: LimitEnd, rate: f64) -> LimitRun {
        LimitRun {
            limit,
            end,
            rate: Some(rate),
            p99: None,
            peak: limit.or(Some(400 * MIB)),
            cycle_ends: vec![],
        }
    }

    /// A server that is killed below `needs`, and slow below `fast`.
    fn served(limit: Option<u64>, (needs, fast): (u64, u64)) -> LimitRun {
        match limit {
            Some(limit) if limit < needs => run(Some(limit), LimitEnd::Killed, 0.0),
            Some(limit) if limit < fast => run(Some(limit), LimitEnd::Worked, 50.0),
            limit => run(limit, LimitEnd::Worked, 100.0),
        }
    }

    fn searched(server: (u64, u64), known: Option<u64>, of_system: Option<Unlimited>) -> (LeastEnd, usize) {
        let options = LeastOptions::default();
        let mut runs: Vec<LimitRun> = vec![];
        loop {
            let unlimited = of_system.or_else(|| Unlimited::of(&runs));
            let limit = match (LeastSearch { unlimited, known, options: &options }).next(&runs) {
                NextLimit::End(end) => return (end, runs.len()),
                NextLimit::Unlimited => None,
                NextLimit::Limit(limit) => Some(limit),
            };
            assert!(runs.len() < 25, "{runs:?}");
            runs.push(served(limit, server));
        }
    }

    proptest! {
        /// The limit works, and is at most 5 % and a step above the least; what a slower server needs counts, too.
        #[test]
        fn the_least_limit_is_found(needs in 4 * MIB..390 * MIB, more in 0..100 * MIB) {
            let fast = (needs + more).min(400 * MIB);
            let (end, runs) = searched((needs, fast), None, None);
            let LeastEnd::Found(found) = end else { panic!("{end:?} after {runs}") };
            prop_assert!(found >= fast && found as f64 <= fast as f64 * 1.05 + 2.0 * STEP as f64, "{found} for {fast}");
            prop_assert!(runs <= 24, "{runs}");
        }

        /// A candidate that fails just below a known limit is no better after one run.
        #[test]
        fn another_candidate_is_asked_once(needs in 4 * MIB..390 * MIB, known in 5 * MIB..400 * MIB) {
            let of_system = Unlimited { rate: 100.0, p99: None, p99_noise: None, peak: 400 * MIB, noise: 0.0 };
            let (end, runs) = searched((needs, needs), Some(known), Some(of_system));
            match end {
                LeastEnd::NoBetter(below) => prop_assert!(below < needs.max(LEAST) && runs <= 1, "{below} {runs}"),
                LeastEnd::Found(found) => prop_assert!(found < known && found >= needs),
                end => prop_assert!(false, "{end:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_judged_ends_with_its_reason() {
        let options = LeastOptions::default();
        let search = LeastSearch { unlimited: None, known: None, options: &options };
        let failed = [run(None, LimitEnd::Failed("no port".into()), 0.0)];
        assert_eq!(search.next(&failed), NextLimit::End(LeastEnd::Fails("no port".into())));
        let silent =
            [run(None, LimitEnd::Worked, 1.0), LimitRun { rate: None, ..run(None, LimitEnd::Worked, 1.0) }];
        assert_eq!(Unlimited::of(&silent), None);
        assert!(matches!(search.next(&silent), NextLimit::End(LeastEnd::Fails(_))));
    }

    #[test]
    fn a_difference_that_cannot_be_seen_is_no_failure() {
        let options = LeastOptions { p99: 0.5, ..LeastOptions::default() };
        let of = |first, second| [run(None, LimitEnd::Worked, first), run(None, LimitEnd::Worked, second)];
        let noisy = Unlimited::of(&of(90.0, 110.0)).unwrap();
        assert!((noisy.tolerance(&options) - 0.2).abs() < 1e-9);
        let quiet = Unlimited { p99: Some(10.0), ..Unlimited::of(&of(100.0, 100.0)).unwrap() };
        let slow = run(Some(MIB), LimitEnd::Worked, 90.0);
        assert!(noisy.is_as_good(&slow, &options) && !quiet.is_as_good(&slow, &options));
        let late = LimitRun { p99: Some(16.0), ..run(Some(MIB), LimitEnd::Worked, 100.0) };
        assert!(!quiet.is_as_good(&late, &options));
        let shaky = Unlimited { p99_noise: Some(0.4), ..quiet };
        assert!(shaky.is_as_good(&late, &options), "16 ms of 10, where two equal runs differ by 40 %");
    }

    #[test]
    fn a_suggestion_has_a_reserve() {
        assert_eq!(suggested_limit(100 * MIB), 120 * MIB);
        assert_eq!(suggested_limit(MIB), 2 * MIB);
        assert_eq!(suggested_limit(u64::MAX), u64::MAX, "of a hostile figure");
    }

    /// The share that needs the least is 38: a heap of 75 or 50 % is far from it.
    #[test]
    fn the_share_of_a_heap_is_walked_to() {
        let least = |share: u64| 100 + share.abs_diff(38) * 2;
        let mut tried: Vec<(u64, Option<u64>)> = vec![];
        while let Some(share) = next_share(&[75, 50], &tried) {
            let known = tried.iter().filter_map(|(_, found)| *found).min();
            let is_better = known.is_none_or(|known| least(share) < known);
            tried.push((share, is_better.then(|| least(share))));
            assert!(tried.len() < 12, "{tried:?}");
        }
        let shares: Vec<u64> = tried.iter().map(|(share, _)| *share).collect();
        assert_eq!(shares, [75, 50, 62, 38, 26, 44, 32]);
        assert_eq!(next_share(&[90], &[(90, None)]), None, "nothing to look beside");
        assert_eq!(next_share(&[], &[]), None);
    }

    #[test]
    fn what_still_grows_is_told() {
        let of = |ends: &[u64]| LimitRun {
            cycle_ends: ends.iter().map(|mib| mib * MIB).collect(),
            ..run(None, LimitEnd::Worked, 1.0)
        };
        assert_eq!(growth_of_a_cycle(&[of(&[60, 90]), of(&[60, 80])]), Some(20 * MIB));
        assert_eq!(growth_of_a_cycle(&[of(&[60, 90]), of(&[60, 61])]), None, "one has found its level");
        assert_eq!(growth_of_a_cycle(&[of(&[60]), of(&[60])]), None, "one cycle says nothing");
        assert_eq!(growth_of_a_cycle(&[]), None);
    }
}
