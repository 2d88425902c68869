// SPDX-License-Identifier: Apache-2.0
//! Gains by sets of candidates, by the rule of docs/decisions/0016: for each service the best
//! candidate of the set by some rounds, `system` where none is better, judged by the others.

use imas_core::stats::{Interval, RESAMPLES, mean_and_deviation, mean_interval};
use serde::Serialize;

use crate::services::pick_rule::{PickRule, cost};
use crate::services::round_changes::{RoundChanges, for_every_service};
use imas_core::judgement::Goal;
use imas_core::server_bench::GuardRail;

/// A set as bits; bit `n` is candidate `n`.
type Members = u32;
/// Most candidates whose sets are compared: more have too many sets.
const MOST_CANDIDATES: usize = 16;

/// One set of candidates beside `system`.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct CandidateSet {
    /// Names of the candidates.
    pub candidates: Vec<String>,
    /// Gains of the set by each rule, in the rules' order.
    pub gains: Vec<Option<SetGain>>,
}

/// The gain of a set, 100 times a logarithm: 1 is about 1 %.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct SetGain {
    /// Mean over the services, with its 95 % interval.
    pub mean: Interval,
    /// Number of services.
    pub services: usize,
}

/// One rule, with what each candidate scores and costs in each split of each service.
#[derive(Debug)]
struct Table {
    services: Vec<Vec<Vec<SplitScore>>>,
}

/// Figures of one candidate in one split.
#[derive(Debug, Clone, Copy)]
struct SplitScore {
    member: Members,
    /// Cost by the rounds that choose, as a logarithm; below 0 is a gain.
    score: f64,
    /// Cost in the round that judges, as a logarithm.
    cost: f64,
}

/// The gains of sets on measured services.
#[derive(Debug)]
pub struct SetGains {
    names: Vec<String>,
    tables: Vec<Table>,
    /// Every service was judged on rounds that did not choose. Otherwise no service has two rounds, and the
    /// round that chose also judged, which flatters every set.
    pub is_held_out: bool,
}

impl SetGains {
    /// Prepares the splits of all services under these rules. None with more than sixteen candidates for all
    /// services, or without any.
    #[must_use]
    pub fn new(services: &[&RoundChanges], rules: &[PickRule]) -> Option<Self> {
        let names = for_every_service(services.iter().copied());
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        if names.is_empty() || names.len() > MOST_CANDIDATES {
            return None;
        }
        let is_held_out = services.iter().any(|one| one.rounds.len() > 1);
        let table = |rule: &PickRule| Table {
            services: services
                .iter()
                .filter(|one| one.rounds.len() > usize::from(is_held_out))
                .map(|one| splits(one, rule, &names, is_held_out))
                .collect(),
        };
        let tables = rules.iter().map(table).collect();
        Some(Self { names, tables, is_held_out })
    }

    /// The candidates that were measured beside `system`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The gain of one set. Names that were not measured are left out.
    #[must_use]
    pub fn of(&self, candidates: &[String]) -> CandidateSet {
        let is_in = |name: &String| candidates.contains(name);
        let members = self.names.iter().enumerate().filter(|(_, name)| is_in(name));
        self.set(members.fold(0, |set, (at, _)| set | 1 << at))
    }

    /// The best sets of `size` candidates by the first rule, at most `most` of them.
    #[must_use]
    pub fn best(&self, size: u32, most: usize) -> Vec<CandidateSet> {
        let Some(first) = self.tables.first() else { return Vec::new() };
        let sets = (0..1 << self.names.len()).filter(|set: &Members| set.count_ones() == size);
        let mut gains: Vec<(f64, Members)> = sets.map(|set| (first.mean(set), set)).collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        gains.into_iter().take(most).map(|(_, set)| self.set(set)).collect()
    }

    fn set(&self, set: Members) -> CandidateSet {
        let names = self.names.iter().enumerate().filter(|(at, _)| set & 1 << at != 0);
        CandidateSet {
            candidates: names.map(|(_, name)| name.clone()).collect(),
            gains: self.tables.iter().map(|table| table.gain(set)).collect(),
        }
    }
}

impl Table {
    fn gains(&self, set: Members) -> Vec<f64> {
        self.services.iter().filter(|splits| !splits.is_empty()).map(|splits| gain(splits, set)).collect()
    }

    fn mean(&self, set: Members) -> f64 {
        mean_and_deviation(&self.gains(set)).0
    }

    fn gain(&self, set: Members) -> Option<SetGain> {
        let gains = self.gains(set);
        Some(SetGain { mean: mean_interval(&gains)?, services: gains.len() })
    }
}

/// Mean over the splits of one service; nothing is gained where `system` stays.
fn gain(splits: &[Vec<SplitScore>], set: Members) -> f64 {
    let picked = |split: &Vec<SplitScore>| {
        let members = split.iter().filter(|one| one.member & set != 0);
        members.min_by(|a, b| a.score.total_cmp(&b.score)).map_or(0.0, |one| -100.0 * one.cost)
    };
    mean_and_deviation(&splits.iter().map(picked).collect::<Vec<_>>()).0
}

/// A candidate that ever failed with the service is out for it.
fn splits(
    service: &RoundChanges,
    rule: &PickRule,
    names: &[String],
    is_held_out: bool,
) -> Vec<Vec<SplitScore>> {
    let of_split = |&judging: &u32| {
        let chooses = |round: &&u32| !is_held_out || **round != judging;
        let choosing: Vec<u32> = service.rounds.iter().filter(chooses).copied().collect();
        let one = |(at, name): (usize, &String)| {
            let place = names.iter().position(|known| known == name)?;
            let score = rule.score(service, at, &choosing)?;
            let cost = cost(rule.goal, service, at, judging)?;
            (!service.has_failed(at, &service.rounds)).then_some(SplitScore {
                member: 1 << place,
                score,
                cost,
            })
        };
        service.candidates.iter().enumerate().filter_map(one).collect()
    };
    service.rounds.iter().map(of_split).collect()
}

/// The rules by which sets are compared: memory within the guard rails first, then the rules of
/// docs/decisions/0016. Any gain counts.
#[must_use]
pub fn set_rules(rails: &[GuardRail]) -> [(&'static str, PickRule); 4] {
    let rule = |goal, rails: &[GuardRail]| PickRule {
        goal,
        rails: rails.to_vec(),
        least_gain: 0.0,
        needs_proof: false,
        resamples: RESAMPLES,
    };
    [
        ("leanest within the guard rails", rule(Goal::Memory, rails)),
        ("leanest", rule(Goal::Memory, &[])),
        ("balanced", rule(Goal::Balanced, &[])),
        ("fastest", rule(Goal::Cpu, &[])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::run::RawRun;
    use imas_core::server_run::{Failure, Figure, ServerRun, Stage};

    fn run(service: &str, candidate: &str, round: u32, memory: f64) -> RawRun {
        RawRun { program: service.into(), candidate: candidate.into(), round, ..RawRun::default() }
            .with_server(ServerRun::of([Figure::lower("memory", memory, "B")]))
    }

    /// `a` is good for one service and `b` for the other; `c` is good by chance in one round.
    fn runs(rounds: u32) -> Vec<RawRun> {
        let of = |service: &'static str, a: f64, b: f64| {
            (0..rounds).flat_map(move |round| {
                let c = if round == 0 { 10.0 } else { 300.0 };
                [("system", 100.0), ("a", a), ("b", b), ("c", c)]
                    .map(|(candidate, memory)| run(service, candidate, round, memory))
            })
        };
        of("x", 50.0, 120.0).chain(of("y", 130.0, 80.0)).collect()
    }

    fn gains(runs: &[RawRun]) -> SetGains {
        let measured = RoundChanges::of_all(runs);
        let rules = set_rules(&[]).map(|(_, rule)| rule);
        SetGains::new(&measured.iter().collect::<Vec<_>>(), &rules).unwrap()
    }

    fn gain(set: &CandidateSet) -> f64 {
        set.gains[1].unwrap().mean.mid
    }

    #[test]
    fn a_set_gains_what_its_best_gains_on_rounds_that_did_not_choose() {
        let gains = gains(&runs(3));
        assert!(gains.is_held_out);
        let of = |names: &[&str]| {
            gain(&gains.of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()))
        };
        let (half, fifth) = (-100.0 * 0.5_f64.ln(), -100.0 * 0.8_f64.ln());
        assert!((of(&["a"]) - half / 2.0).abs() < 1e-9, "system stays where it is better");
        assert!((of(&["a", "b"]) - (half + fifth) / 2.0).abs() < 1e-9);
        assert_eq!(of(&[]), 0.0);
        assert!(of(&["c"]) <= 0.0, "what one round picks the others judge");
        let best = gains.best(2, 1);
        assert_eq!(
            (best.len(), best[0].candidates.as_slice()),
            (1, ["a", "b"].map(str::to_owned).as_slice())
        );
        assert!(best[0].gains[3].is_none_or(|gain| gain.mean.mid == 0.0), "no CPU time was measured");
    }

    #[test]
    fn one_round_chooses_and_judges_and_a_failed_candidate_is_out() {
        let mut runs = runs(1);
        let gains_of_all = gains(&runs);
        assert!(!gains_of_all.is_held_out);
        assert!(gain(&gains_of_all.of(&["c".to_owned()])) > 200.0, "flattered");
        let failure = Some(Failure::new(Stage::Died, "x".into()));
        for run in runs.iter_mut().filter(|run| run.candidate == "c") {
            run.set_server(ServerRun { failure: failure.clone(), ..run.of_server().clone() });
        }
        assert_eq!(gain(&gains(&runs).of(&["c".to_owned()])), 0.0);
    }
}
