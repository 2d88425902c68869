// SPDX-License-Identifier: Apache-2.0
//! The figures by which services are judged as a whole, from the raw runs of a journal.

use std::collections::BTreeSet;

use imas_core::compare::Margins;
use imas_core::stats::{Interval, RESAMPLES};
use serde::Serialize;

use crate::services::against_single::AgainstSingle;
use crate::services::judge::{
    CandidateForAll, JUDGED, JudgedService, MemoryGain, geometric_mean, of_fewer_services,
};
use crate::services::pick_rule::PickRule;
use crate::services::round_changes::RoundChanges;
use imas_core::judgement::Goal;
use imas_core::run::RawRun;
use imas_core::server_bench::GuardRail;

/// Rounds for a proof on rounds that do not judge: three choose, one judges.
pub const ROUNDS_FOR_PROOF: usize = 4;

/// Rules of the judgement.
#[derive(Debug)]
pub struct JudgeOptions<'a> {
    /// Limits on the costs of a pick.
    pub rails: Vec<GuardRail>,
    /// Services that take less memory under `system`, bytes, do not count for the gain.
    pub least_bytes: f64,
    /// Services with an allocator of their own do not count for the gain.
    pub own_allocator: &'a BTreeSet<String>,
    /// Least memory in glibc's heaps under `system`, bytes, of a service that counts for the gain. Where it is given, it
    /// decides alone: a service with an allocator of its own may have such heaps as well.
    pub least_heap_bytes: Option<f64>,
}

/// Why a service does not count for the gain.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutOfGain {
    /// The service has an allocator of its own.
    OwnAllocator,
    /// The service takes too little memory.
    Small,
    /// The service has too little in glibc's heaps, or nobody looked at them.
    LittleHeap,
}

/// One service under both rules.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct ServiceJudgement {
    /// Why the service does not count for the gain. None where it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_counted: Option<LeftOutOfGain>,
    /// The leanest candidate within the guard rails, as measured.
    pub as_measured: JudgedService,
    /// The leanest candidate within the guard rails whose gain is proven. None with too few rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<JudgedService>,
}

/// How many services a rule made worse on rounds that did not choose.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MadeWorse {
    /// Number of services that could be judged.
    pub services: usize,
    /// Number of services for each figure of [`crate::services::JUDGED`] that are worse than `system` by more
    /// than the margin.
    pub worse: [usize; JUDGED.len()],
    /// Number of services in `worse` that are worse with an error of at most 5 %.
    pub proven: [usize; JUDGED.len()],
    /// Services whose pick failed in a round that judged.
    pub failed: usize,
}

/// Judgement of all services of a journal.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct JournalJudgement {
    /// The services, in the order in which they were measured first.
    pub services: Vec<ServiceJudgement>,
    /// Services without a valid run under `system`: they cannot be judged.
    pub not_measured: Vec<String>,
    /// Gain of the services that count, by all rounds: those that chose also judge.
    pub gain_by_all: MemoryGain,
    /// Gain of the services that count, by the rounds that did not choose.
    pub gain_held_out: MemoryGain,
    /// Gain after the pause of the services that count, by the rounds that did not choose.
    pub idle_gain_held_out: MemoryGain,
    /// Gain over the day of the services that count, by the rounds that did not choose.
    pub day_gain_held_out: MemoryGain,
    /// Services that the picks as measured made worse, of all services.
    pub made_worse: MadeWorse,
    /// Services that the proven picks made worse, of all services.
    pub proven_made_worse: MadeWorse,
    /// One candidate for all services.
    pub for_all: Vec<CandidateForAll>,
    /// One candidate for the services that count.
    pub for_all_counted: Vec<CandidateForAll>,
    /// The leanest of each service, as measured, beside each single candidate for all services.
    pub against_single: Vec<AgainstSingle>,
    /// The proven picks beside each single candidate for all services.
    pub proven_against_single: Vec<AgainstSingle>,
    /// The leanest of each service that counts, as measured, beside each single candidate for these.
    pub against_single_counted: Vec<AgainstSingle>,
}

impl JournalJudgement {
    /// Judgement of all runs of a journal.
    #[must_use]
    pub fn of(runs: &[RawRun], options: &JudgeOptions<'_>) -> Self {
        let (measured, others): (Vec<_>, Vec<_>) =
            RoundChanges::of_all(runs).into_iter().partition(|one| !one.rounds.is_empty());
        let services: Vec<ServiceJudgement> =
            measured.iter().map(|one| ServiceJudgement::of(one, options)).collect();
        let counts = |one: &&ServiceJudgement| one.not_counted.is_none();
        let by_all = services.iter().filter(counts).filter_map(|one| one.as_measured.by_all.ratios[0]);
        let held_out = |figure: &str| {
            let at = JUDGED.iter().position(|judged| *judged == figure);
            let ratio = |one: &ServiceJudgement| one.as_measured.held_out.as_ref()?.ratios[at?];
            MemoryGain::of(&services.iter().filter(counts).filter_map(ratio).collect::<Vec<_>>())
        };
        let all: Vec<&RoundChanges> = measured.iter().collect();
        let with = measured.iter().zip(&services).filter(|(_, one)| one.not_counted.is_none());
        let counted: Vec<&RoundChanges> = with.map(|(changes, _)| changes).collect();
        let picks = |is_in: &dyn Fn(&ServiceJudgement) -> bool,
                     rule: fn(&ServiceJudgement) -> Option<&JudgedService>| {
            let pair = |(changes, one)| Some((changes, rule(one)?.held_out.as_ref()?));
            let those = measured.iter().zip(&services).filter(|(_, one)| is_in(one));
            AgainstSingle::all(&those.filter_map(pair).collect::<Vec<_>>())
        };
        Self {
            gain_by_all: MemoryGain::of(&by_all.collect::<Vec<_>>()),
            gain_held_out: held_out("memory"),
            idle_gain_held_out: held_out("memory_idle"),
            day_gain_held_out: held_out("memory_day"),
            made_worse: MadeWorse::of(services.iter().map(|one| &one.as_measured)),
            proven_made_worse: MadeWorse::of(services.iter().filter_map(|one| one.proven.as_ref())),
            for_all: CandidateForAll::all(&all),
            for_all_counted: CandidateForAll::all(&counted),
            against_single: picks(&|_| true, |one| Some(&one.as_measured)),
            proven_against_single: picks(&|_| true, |one| one.proven.as_ref()),
            against_single_counted: picks(&|one| one.not_counted.is_none(), |one| Some(&one.as_measured)),
            services,
            not_measured: others.into_iter().map(|one| one.service).collect(),
        }
    }

    /// Geometric means over all services of the picks as measured, for each figure of
    /// [`crate::services::JUDGED`], on rounds that did not choose. None where no service has two rounds.
    #[must_use]
    pub fn held_out_mean(&self) -> [Option<Interval>; JUDGED.len()] {
        self.mean(|one| Some(one.as_measured.held_out.as_ref()?.ratios))
    }

    /// Geometric means over all services of the picks as measured, for each figure of
    /// [`crate::services::JUDGED`], on the rounds that chose.
    #[must_use]
    pub fn by_all_mean(&self) -> [Option<Interval>; JUDGED.len()] {
        self.mean(|one| Some(one.as_measured.by_all.ratios))
    }

    /// Sentence on the rows of [`Self::for_all`] that rest on fewer services than there are; empty without such a row.
    #[must_use]
    pub fn of_fewer_services(&self) -> String {
        let rows = self.for_all.iter().map(|one| (one.candidate.as_str(), one.services));
        of_fewer_services(self.services.len(), rows)
    }

    fn mean(
        &self,
        of: impl Fn(&ServiceJudgement) -> Option<[Option<f64>; JUDGED.len()]>,
    ) -> [Option<Interval>; JUDGED.len()] {
        let all: Vec<[Option<f64>; JUDGED.len()]> = self.services.iter().filter_map(of).collect();
        std::array::from_fn(|at| {
            geometric_mean(&all.iter().filter_map(|ratios| ratios[at]).collect::<Vec<_>>())
        })
    }
}

impl ServiceJudgement {
    fn of(changes: &RoundChanges, options: &JudgeOptions<'_>) -> Self {
        let rule = |needs_proof| PickRule {
            goal: Goal::Memory,
            rails: options.rails.clone(),
            least_gain: Margins::USUAL.memory,
            needs_proof,
            resamples: RESAMPLES,
        };
        let is_below = |bytes: Option<f64>, least: f64| bytes.is_none_or(|bytes| bytes < least);
        let not_counted = match options.least_heap_bytes {
            Some(least) => is_below(changes.heap_bytes, least).then_some(LeftOutOfGain::LittleHeap),
            None if options.own_allocator.contains(&changes.service) => Some(LeftOutOfGain::OwnAllocator),
            None => is_below(changes.memory_bytes, options.least_bytes).then_some(LeftOutOfGain::Small),
        };
        let is_enough = changes.rounds.len() >= ROUNDS_FOR_PROOF;
        Self {
            not_counted,
            as_measured: JudgedService::of(changes, &rule(false)),
            proven: is_enough.then(|| JudgedService::of(changes, &rule(true))),
        }
    }
}

impl MadeWorse {
    pub(crate) fn of<'a>(services: impl Iterator<Item = &'a JudgedService>) -> Self {
        let mut all = Self::default();
        for held_out in services.filter_map(|one| one.held_out.as_ref()) {
            all.services += 1;
            all.failed += usize::from(held_out.failed > 0);
            for at in 0..JUDGED.len() {
                all.worse[at] += usize::from(held_out.worse[at]);
                all.proven[at] += usize::from(held_out.proven_worse[at]);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{ArenaHeaps, Failure, Figure, ServerRun, Stage};

    const MB: f64 = 1e6;

    fn run(service: &str, candidate: &str, round: u32, memory_mb: f64, p99: f64) -> RawRun {
        let figures = [
            Figure::lower("memory", memory_mb * MB, "B"),
            Figure::lower("cpu", 1.0, "s"),
            Figure::lower("p99", p99, "ms"),
        ];
        let (program, candidate) = (service.into(), candidate.into());
        RawRun { program, candidate, round, user_s: 1.0, ..RawRun::default() }
            .with_server(ServerRun::of(figures))
    }

    /// One service; `memory` has MB by candidate and round.
    fn service(name: &str, memory: &[(&str, &[f64])]) -> Vec<RawRun> {
        let rounds = |candidate: &'static str, all: &[f64]| {
            let of = |(round, mb): (u32, &f64)| run(name, candidate, round, *mb, 5.0);
            (0..).zip(all).map(of).collect::<Vec<_>>()
        };
        let static_name = |name: &str| match name {
            "system" => "system",
            "glibc:arena2" => "glibc:arena2",
            _ => "b",
        };
        memory.iter().flat_map(|(candidate, all)| rounds(static_name(candidate), all)).collect()
    }

    fn judged(runs: &[RawRun]) -> JournalJudgement {
        let own = BTreeSet::from(["java".to_owned()]);
        let rails = ["cpu+2%", "p99+5%"].map(|rail| rail.parse().unwrap()).to_vec();
        let options =
            JudgeOptions { rails, least_bytes: 50.0 * MB, own_allocator: &own, least_heap_bytes: None };
        JournalJudgement::of(runs, &options)
    }

    #[test]
    fn one_round_holds_nothing_out() {
        let runs = service("a", &[("system", &[100.0]), ("glibc:arena2", &[70.0]), ("b", &[90.0])]);
        let found = judged(&runs);
        assert_eq!(found.services[0].as_measured.by_all.candidate, "glibc:arena2");
        assert_eq!((found.gain_by_all.quarter_less, found.gain_by_all.services), (1, 1));
        assert!((found.gain_by_all.mean.unwrap().mid - 0.7).abs() < 1e-9);
        assert_eq!((found.gain_held_out.services, found.made_worse.services), (0, 0));
        assert!(found.services[0].as_measured.held_out.is_none() && found.services[0].proven.is_none());
    }

    /// Each candidate is the best in one round by chance. The rounds that choose do not show that.
    #[test]
    fn a_pick_is_judged_on_the_rounds_that_did_not_choose_it() {
        let runs = service(
            "a",
            &[("system", &[100.0, 100.0]), ("glibc:arena2", &[50.0, 200.0]), ("b", &[200.0, 50.0])],
        );
        let found = judged(&runs);
        let held_out = found.services[0].as_measured.held_out.as_ref().unwrap();
        assert!((held_out.ratios[0].unwrap() - 2.0).abs() < 1e-9, "{held_out:?}");
        assert_eq!(held_out.worse, [true, false, false, false, false, false]);
        assert_eq!(found.made_worse.worse, [1, 0, 0, 0, 0, 0]);
        assert_eq!(found.made_worse.proven, [0; JUDGED.len()], "two rounds prove nothing");
    }

    #[test]
    fn small_services_and_those_with_their_own_allocator_do_not_count_for_the_gain() {
        let of = |name, mb: f64| service(name, &[("system", &[mb]), ("b", &[mb / 2.0])]);
        let found = judged(&[of("java", 100.0), of("small", 49.0), of("large", 50.0)].concat());
        let why: Vec<_> = found.services.iter().map(|one| one.not_counted).collect();
        assert_eq!(why, [Some(LeftOutOfGain::OwnAllocator), Some(LeftOutOfGain::Small), None]);
        assert_eq!(found.gain_by_all.services, 1);
        assert_eq!((found.for_all[0].services, found.for_all_counted[0].services), (3, 1));
    }

    /// `js` has an allocator of its own and a large heap of glibc, `lean` a small one, and `dark` was not looked at.
    #[test]
    fn the_heaps_of_glibc_decide_which_services_count_where_that_is_asked_for() {
        let of = |name: &str, heap_mb: Option<u64>| {
            let mut runs = service(name, &[("system", &[100.0; 2]), ("b", &[50.0; 2])]);
            for run in &mut runs {
                let heap = |mb| ArenaHeaps { main_bytes: mb * 1_000_000, ..ArenaHeaps::default() };
                let mut server = run.of_server().clone();
                server.heaps = heap_mb.map(heap).into_iter().collect();
                let day = Figure::lower("memory_day", if run.candidate == "b" { 70.0 } else { 100.0 }, "B");
                server.record(day);
                run.set_server(server);
            }
            runs
        };
        let runs = [of("js", Some(20)), of("lean", Some(19)), of("dark", None)].concat();
        let own = BTreeSet::from(["js".to_owned()]);
        let judged = |least_heap_bytes| {
            let (rails, own_allocator) = (vec![], &own);
            let options = JudgeOptions { rails, least_bytes: 0.0, own_allocator, least_heap_bytes };
            let found = JournalJudgement::of(&runs, &options);
            let why = found.services.iter().map(|one| one.not_counted).collect::<Vec<_>>();
            (why, found.day_gain_held_out)
        };
        let little = Some(LeftOutOfGain::LittleHeap);
        let (why, day) = judged(Some(20.0 * MB));
        assert_eq!(why, [None, little, little]);
        assert!(day.services == 1 && (day.mean.unwrap().mid - 0.7).abs() < 1e-9, "{day:?}");
        assert_eq!(judged(None).0, [Some(LeftOutOfGain::OwnAllocator), None, None]);
    }

    /// Settings of a runtime are a pick of its services, and no setting for all; a mean of fewer services is named.
    #[test]
    fn what_is_not_for_every_service_is_not_beside_what_is() {
        let mut runs = [
            service("a", &[("system", &[100.0; 2]), ("b", &[90.0; 2])]),
            service("c", &[("system", &[100.0; 2]), ("glibc:arena2", &[50.0; 2]), ("b", &[90.0; 2])]),
        ]
        .concat();
        let found = judged(&runs);
        let sentence = "Means of fewer than 2 services, not to be compared with other rows: glibc:arena2.";
        assert_eq!((found.for_all.len(), found.of_fewer_services().as_str()), (2, sentence));
        runs.iter_mut()
            .filter(|run| run.candidate == "glibc:arena2")
            .for_each(|run| run.candidate = "node:semi1".into());
        let found = judged(&runs);
        assert_eq!(found.services[1].as_measured.by_all.candidate, "node:semi1");
        let names: Vec<&str> = found.for_all.iter().map(|one| one.candidate.as_str()).collect();
        assert_eq!((names, found.of_fewer_services()), (vec!["b"], String::new()));
        let beside: Vec<&str> = found.against_single.iter().map(|one| one.candidate.as_str()).collect();
        assert_eq!(beside, ["system", "b"]);
    }

    /// The pick failed in the round that judges; a failure in a round that chooses excludes a candidate.
    #[test]
    fn a_failed_pick_counts() {
        let mut runs = service("a", &[("system", &[100.0; 4]), ("b", &[60.0; 4])]);
        let failure = Some(Failure::new(Stage::Died, "x".into()));
        let one = runs.iter_mut().find(|run| run.candidate == "b" && run.round == 2).unwrap();
        one.set_server(ServerRun { failure, ..one.of_server().clone() });
        let found = judged(&runs);
        let one = &found.services[0].as_measured;
        assert_eq!(one.by_all.candidate, "system", "it failed in one of all rounds");
        let held_out = one.held_out.as_ref().unwrap();
        assert_eq!((held_out.failed, held_out.judged), (1, 4), "only round 2 judges a pick of b");
        assert_eq!(held_out.candidates, ["system", "b"]);
        assert_eq!((found.made_worse.failed, found.for_all[0].failed), (1, 1));
    }

    #[test]
    fn missing_runs_and_rounds_without_system_are_left_out() {
        let mut runs = service("a", &[("system", &[100.0; 8]), ("b", &[60.0; 8])]);
        runs.retain(|run| {
            !(run.candidate == "b" && run.round < 3 || run.candidate == "system" && run.round == 7)
        });
        let found = judged(&runs);
        let one = &found.services[0].as_measured;
        assert_eq!((one.rounds, one.by_all.candidate.as_str()), (7, "b"));
        assert_eq!(one.held_out.as_ref().unwrap().judged, 4);
        assert!(judged(&[]).services.is_empty());
        runs.retain(|run| run.candidate == "b");
        let without_system = judged(&runs);
        assert_eq!((without_system.services.len(), without_system.not_measured), (0, vec!["a".to_owned()]));
    }

    /// Four rounds of noise: the leanest as measured is no gain, and no pick is proven.
    #[test]
    fn a_proof_is_stricter_than_the_figures() {
        let runs = service("a", &[("system", &[100.0; 4]), ("b", &[60.0, 140.0, 70.0, 120.0])]);
        let found = judged(&runs);
        assert_eq!(found.services[0].as_measured.by_all.candidate, "b");
        assert_eq!(found.services[0].proven.as_ref().unwrap().by_all.candidate, "system");
        assert_eq!((found.proven_made_worse.services, found.proven_made_worse.worse), (1, [0; JUDGED.len()]));
    }
}
