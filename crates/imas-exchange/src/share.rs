// SPDX-License-Identifier: Apache-2.0
//! Which hosts try what: trials are shared out so that each host has few, and at most a share of the hosts is
//! in one at a time.
//!
//! Every host works it out for itself, without asking another: D. G. Thaler and C. V. Ravishankar, "Using
//! name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6, 1998 (rendezvous
//! hashing, here with the weights of C. Schindelhauer and G. Schomaker, "Weighted distributed hash tables",
//! SPAA 2005).
//!
//! Figures that a fleet still lacks of a program's candidates.
//!
//! A candidate is lacking until enough groups of hosts have tried it; less where it is clear before: it is proven, or
//! what could still be gained by it is below the price of a trial.

use imas_core::adaptive::Settings;
use imas_core::adaptive::board::Belief;
use imas_core::fleet_prior::{CRASHED_GROUPS, FleetCandidate, FleetPrior, LEAST_GROUPS, WEIGHTS, liars};

use crate::group::{COUNTED_HOSTS, hash, is_counted};

/// Usual share of the hosts that are in a trial of one program at a time.
pub const USUAL_SHARE: f64 = 0.05;
/// Where so few hosts are known, at least one of them is in a trial: on average, and one host alone always
/// is.
const LEAST_HOSTS: f64 = 1.0;

/// Lack of figures of a candidate in the fleet.
#[derive(Clone, PartialEq, Debug)]
pub struct Lack {
    /// The candidate.
    pub candidate: String,
    /// How many more groups of hosts should try it; none: nothing is lacking.
    pub need: u32,
}

/// The host that asks, and when.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrialTurn<'a> {
    /// The host.
    pub host: &'a str,
    /// The subject of the program.
    pub subject: &'a str,
    /// Counts up; in each epoch other hosts are in a trial.
    pub epoch: u64,
    /// Hosts that are known to run the program, this one included; 0 is taken as 1.
    pub hosts: u32,
    /// Greatest share of them that is in a trial at a time.
    pub share: f64,
}

/// The candidate that this host tries in this epoch, with `system` beside it; None where it tries none. Only
/// hosts whose figures of a candidate count try it.
pub fn trial_of<'a>(turn: &TrialTurn<'_>, lacks: &'a [Lack]) -> Option<&'a str> {
    let lacking = || lacks.iter().filter(|lack| lack.need > 0);
    let need: f64 = lacking().map(|lack| f64::from(lack.need)).sum();
    let program = turn.subject.split('.').next().unwrap_or_default();
    let is_chosen = |lack: &&Lack| {
        is_counted(turn.host, program, &lack.candidate, turn.hosts)
            && unit(turn, &lack.candidate) <= chance(turn, lack, need)
    };
    // Candidates are chosen as often as they are needed: the greatest of the logarithms over the weights
    // wins.
    let score = |lack: &Lack| unit(turn, &lack.candidate).ln() / f64::from(lack.need);
    let best = lacking().filter(is_chosen).max_by(|a, b| score(a).total_cmp(&score(b)));
    best.map(|lack| lack.candidate.as_str())
}

/// How many hosts are in a trial of the program in one epoch, on average.
pub fn hosts_in_trial(turn: &TrialTurn<'_>, lacks: &[Lack]) -> f64 {
    let need: f64 = lacks.iter().map(|lack| f64::from(lack.need)).sum();
    if need > 0.0 && turn.share > 0.0 { in_trial(turn, need) } else { 0.0 }
}

fn in_trial(turn: &TrialTurn<'_>, need: f64) -> f64 {
    (turn.share.min(1.0) * f64::from(turn.hosts)).min(need).max(LEAST_HOSTS)
}

/// Chance that one of the hosts whose figures count tries the candidate now: as many hosts as may be in a
/// trial, but no more than are needed, and of these the candidate's part.
fn chance(turn: &TrialTurn<'_>, lack: &Lack, need: f64) -> f64 {
    if turn.share <= 0.0 || turn.hosts <= 1 {
        return if turn.share > 0.0 { 1.0 } else { 0.0 };
    }
    in_trial(turn, need) * f64::from(lack.need) / need / f64::from(turn.hosts.min(COUNTED_HOSTS))
}

/// A number above 0 and up to 1 by chance, which depends on turn and candidate.
fn unit(turn: &TrialTurn<'_>, candidate: &str) -> f64 {
    let [a, b, c, d, e, f, g, h, ..] =
        hash(&["share", turn.host, turn.subject, &turn.epoch.to_string(), candidate]);
    let bits = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 11;
    (bits as f64 + 1.0) / (1u64 << 53) as f64
}

/// Groups that are wanted at most.
pub const WANTED: u32 = 20;
/// Price of a trial as a difference of logarithms, as the policy's of a candidate that is eliminated.
const PRICE: f64 = 0.006;

/// The fleet's lack of figures of each candidate. A candidate is given by name and version of its allocator.
pub fn lacks(prior: &FleetPrior, candidates: &[(&str, &str)], settings: &Settings) -> Vec<Lack> {
    let unknown = FleetCandidate::default();
    let of = |(name, version): &(&str, &str)| {
        let is_it = |one: &&FleetCandidate| one.name == *name && one.version == *version;
        prior.candidates.iter().find(is_it).unwrap_or(&unknown)
    };
    let known: Vec<&FleetCandidate> = candidates.iter().map(of).collect();
    let need = |i: usize| match known[i] {
        one if one.crashed_groups >= CRASHED_GROUPS || one.is_void() => 0,
        one if one.groups.len() < LEAST_GROUPS => wanted(one, prior.counted),
        one if WEIGHTS.iter().any(|&w| is_open(&known, i, (w, prior.counted), settings)) => {
            wanted(one, prior.counted)
        }
        _ => 0,
    };
    let lack = |(i, (name, _)): (usize, &(&str, &str))| Lack { candidate: (*name).to_owned(), need: need(i) };
    candidates.iter().enumerate().map(lack).collect()
}

/// Number of further groups that are wanted of a candidate, beyond the groups that may lie.
fn wanted(one: &FleetCandidate, counted: u32) -> u32 {
    let all = WANTED + u32::try_from(liars(counted)).unwrap_or(u32::MAX);
    all.saturating_sub(u32::try_from(one.groups.len()).unwrap_or(u32::MAX))
}

/// Whether further trials of a candidate may change what hosts pick at this weight.
fn is_open(known: &[&FleetCandidate], i: usize, (w, counted): (f64, u32), settings: &Settings) -> bool {
    let Some(gain) = known[i].gain(w) else { return true };
    let margin = settings.margin(w);
    let others = known.iter().enumerate().filter(|&(j, one)| j != i && one.groups.len() >= LEAST_GROUPS);
    let best = others.filter_map(|(_, one)| one.gain(w)).max_by(|a, b| a.value.total_cmp(&b.value));
    let (best, of_best) =
        best.filter(|best| best.value > margin).map_or((margin, 0.0), |b| (b.value, b.error));
    let lead = Belief { mean: gain.value - best, variance: gain.error.powi(2) + of_best.powi(2) };
    let lag = Belief { mean: -lead.mean, ..lead };
    let tail = (1.0 - settings.confidence) / known.len() as f64;
    let is_chosen = lag.upside() < PRICE && known[i].proves(w, margin, tail, counted);
    lead.upside() >= PRICE && !is_chosen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use imas_core::fleet_prior::GroupDifference;

    use super::*;

    fn lacks(needs: &[(&str, u32)]) -> Vec<Lack> {
        needs.iter().map(|(name, need)| Lack { candidate: (*name).to_owned(), need: *need }).collect()
    }

    fn turn<'a>(host: &'a str, epoch: u64, hosts: u32) -> TrialTurn<'a> {
        TrialTurn { host, subject: "program.environment", epoch, hosts, share: USUAL_SHARE }
    }

    fn tried(hosts: u32, epoch: u64, lacks: &[Lack]) -> BTreeMap<String, u32> {
        let mut tried = BTreeMap::new();
        for host in 0..hosts {
            if let Some(name) = trial_of(&turn(&format!("host-{host}"), epoch, hosts), lacks) {
                *tried.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
        tried
    }

    #[test]
    fn of_a_thousand_hosts_a_twentieth_is_in_a_trial() {
        let lacks = lacks(&[("jemalloc", 80), ("hoard", 80), ("done", 0)]);
        let mut all: u32 = 0;
        for epoch in 0..100 {
            let now: u32 = tried(1000, epoch, &lacks).values().sum();
            assert!((20..90).contains(&now), "{now}");
            all += now;
        }
        assert!((4_600..5_400).contains(&all), "{all}");
    }

    #[test]
    fn candidates_are_tried_as_they_are_needed() {
        let lacks = lacks(&[("jemalloc", 120), ("hoard", 30), ("done", 0)]);
        let mut all: BTreeMap<String, u32> = BTreeMap::new();
        for epoch in 0..100 {
            tried(1000, epoch, &lacks).into_iter().for_each(|(name, n)| *all.entry(name).or_insert(0) += n);
        }
        let ratio = f64::from(all["jemalloc"]) / f64::from(all["hoard"]);
        assert!((3.4..4.7).contains(&ratio) && !all.contains_key("done"), "{all:?}");
    }

    #[test]
    fn as_many_hosts_try_as_are_announced() {
        let lacks = lacks(&[("jemalloc", 80), ("hoard", 80)]);
        let of = |hosts, lacks: &[Lack]| hosts_in_trial(&turn("a", 0, hosts), lacks);
        let all: u32 = (0..200).map(|epoch| tried(160, epoch, &lacks).values().sum::<u32>()).sum();
        assert!((f64::from(all) / 200.0 - of(160, &lacks)).abs() < 1.0, "{all}");
        assert_eq!([1, 10, 160, 100_000].map(|hosts| of(hosts, &lacks)), [1.0, 1.0, 8.0, 160.0]);
        assert_eq!(of(160, &[]), 0.0);
    }

    #[test]
    fn no_more_hosts_try_than_are_needed() {
        let lacks = lacks(&[("jemalloc", 8), ("hoard", 4)]);
        let all: u32 = (0..50).map(|epoch| tried(1000, epoch, &lacks).values().sum::<u32>()).sum();
        assert!((480..720).contains(&all), "{all}");
    }

    #[test]
    fn one_host_alone_is_always_in_a_trial_and_few_hosts_take_turns() {
        let lacks = lacks(&[("jemalloc", 4)]);
        assert!((0..50).all(|epoch| tried(1, epoch, &lacks).len() == 1));
        assert!((0..50).all(|epoch| trial_of(&turn("a", epoch, 0), &lacks).is_some()));
        let busy: u32 = (0..300).map(|epoch| tried(10, epoch, &lacks).values().sum::<u32>()).sum();
        assert!((240..360).contains(&busy), "{busy}");
    }

    #[test]
    fn nothing_is_tried_that_is_not_lacking_or_where_the_share_is_none() {
        assert!(tried(1000, 0, &lacks(&[("jemalloc", 0)])).is_empty());
        let off = TrialTurn { share: 0.0, ..turn("a", 0, 1) };
        assert_eq!(trial_of(&off, &lacks(&[("jemalloc", 4)])), None);
    }

    fn candidate(name: &str, groups: usize, cpu: f64, spread: f64) -> FleetCandidate {
        let off = |i: usize| spread * ((i % 5) as f64 - 2.0);
        let groups = (0..groups).map(|i| GroupDifference { cpu: cpu + off(i), memory: cpu + off(i) });
        FleetCandidate { name: name.to_owned(), groups: groups.collect(), ..FleetCandidate::default() }
    }

    fn needs(candidates: Vec<FleetCandidate>) -> Vec<u32> {
        let names: Vec<(String, String)> =
            candidates.iter().map(|one| (one.name.clone(), one.version.clone())).collect();
        let names: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let prior = FleetPrior { candidates, ..FleetPrior::default() };
        super::lacks(&prior, &names, &Settings::default()).into_iter().map(|lack| lack.need).collect()
    }

    #[test]
    fn what_is_clear_lacks_nothing() {
        let crashed = FleetCandidate { crashed_groups: 3, ..candidate("e", 2, -0.3, 0.0) };
        let all = vec![
            candidate("proven", 10, -0.20, 0.01),
            candidate("worse", 10, 0.10, 0.01),
            candidate("new", 0, 0.0, 0.0),
            candidate("open", 10, -0.19, 0.10),
            crashed,
        ];
        assert_eq!(needs(all), [10, 0, 20, 10, 0], "the best is not known among the first and the fourth");
        let all = vec![candidate("proven", 10, -0.20, 0.01), candidate("worse", 10, 0.10, 0.01)];
        assert_eq!(needs(all), [0, 0]);
        assert_eq!(needs(vec![candidate("alike", 20, 0.0, 0.2)]), [0], "enough have tried it");
    }
}
