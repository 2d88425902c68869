// SPDX-License-Identifier: Apache-2.0
//! What a fleet still lacks of a program's candidates.
//!
//! A candidate is lacking until enough groups of hosts have tried it; less where it is clear before: it is
//! proven, or what could still be gained by it is below the price of a trial.

use imas_core::adaptive::Settings;
use imas_core::adaptive::board::Belief;
use imas_core::fleet_prior::{CRASHED_GROUPS, FleetCandidate, FleetPrior, LEAST_GROUPS, WEIGHTS, liars};

use crate::share::Lack;

/// Groups that are wanted at most.
pub const WANTED: u32 = 20;
/// Price of a trial as a difference of logarithms, as the policy's of a candidate that is eliminated.
const PRICE: f64 = 0.006;

/// What the fleet lacks of each candidate. A candidate is given by name and version of its allocator.
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
    use imas_core::fleet_prior::GroupDifference;

    use super::*;

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
        lacks(&prior, &names, &Settings::default()).into_iter().map(|lack| lack.need).collect()
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
