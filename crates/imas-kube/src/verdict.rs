// SPDX-License-Identifier: Apache-2.0
//! The pods of a candidate beside the untouched ones of the same workload. No I/O.
//!
//! Chance decides which pod gets which candidate, so the load is the same on average. A pod is one figure: the mean of
//! its looks at one age. It is compared with pods on nodes of the same type at the same age, by the judge of all
//! comparisons (`imas_core::compare`).

use std::collections::{BTreeMap, BTreeSet};

use imas_core::SYSTEM;
use imas_core::compare::{
    Answer, CostLimits, ERROR, EventCount, KnownFigure, chance_of_events, judge, ratio_within,
    smallest_difference,
};
use imas_core::stats::Interval;

use crate::pods::{Pod, Types};

/// Pods that are younger than two of these are of one age, seconds: they start.
const YOUNG_S: u64 = 60;
/// Looks that must find the candidate missing: a program may execute itself in one.
const MISSED: u32 = 2;

/// Observations of a workload's pods so far.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    lives: BTreeMap<String, Life>,
}

/// One pod over its looks.
#[derive(Debug, Default)]
struct Life {
    candidate: String,
    /// Type of its node; empty where it is not known.
    node_type: String,
    looks: u32,
    failures: u32,
    last_failure: Option<String>,
    waits: Option<String>,
    /// Looks into the pod that found the candidate missing, and the process that they found.
    missed: u32,
    lacks: Option<String>,
    ages: BTreeMap<u32, Figures>,
}

/// Figures of a pod at one age, as logarithms.
#[derive(Debug, Default)]
struct Figures {
    memory: Vec<f64>,
    cpu: Vec<f64>,
    latency: Vec<f64>,
}

/// A candidate with the untouched pods as its measure.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) candidate: String,
    pub(crate) pods: usize,
    pub(crate) untouched: usize,
    /// Memory of a pod by an untouched one's.
    pub(crate) memory: Option<Interval>,
    pub(crate) cpu: Option<Interval>,
    pub(crate) latency: Option<Interval>,
    pub(crate) failures: u32,
    /// Why it has to be taken back.
    pub(crate) withdraw: Option<String>,
}

impl Observations {
    /// Adds one look at the pods; `types`: of the nodes.
    pub(crate) fn add(&mut self, pods: &[Pod], types: &Types) {
        for pod in pods {
            let Some(candidate) = &pod.candidate else { continue };
            let life = self.lives.entry(pod.uid.clone()).or_default();
            life.candidate.clone_from(candidate);
            life.node_type = pod.node.as_ref().and_then(|node| types.get(node)).cloned().unwrap_or_default();
            life.looks += 1;
            life.failures = pod.failures;
            life.last_failure.clone_from(&pod.last_failure);
            // An image of the application that cannot be had says nothing about the candidate.
            life.missed += u32::from(pod.lacks.is_some());
            life.lacks = pod.lacks.clone().or_else(|| life.lacks.take());
            life.waits = pod.waits.clone().filter(|_| pod.waits_for_us);
            if let (true, Some(age_s)) = (pod.is_ready, pod.age_s) {
                let log = |figure: Option<f64>| figure.filter(|figure| *figure > 0.0).map(f64::ln);
                let figures = life.ages.entry(age(age_s)).or_default();
                figures.memory.extend(log(pod.memory));
                figures.cpu.extend(log(pod.cpu));
                figures.latency.extend(log(pod.latency));
            }
        }
    }

    /// Leaves out what was seen of the pods of a candidate.
    pub(crate) fn forget(&mut self, candidate: &str) {
        self.lives.retain(|_, life| life.candidate != candidate);
    }

    /// The candidates, each judged.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let mut groups: BTreeMap<&str, Vec<&Life>> = BTreeMap::new();
        for life in self.lives.values() {
            groups.entry(life.candidate.as_str()).or_default().push(life);
        }
        let untouched = groups.remove(SYSTEM).unwrap_or_default();
        let checks = groups.len() * 2;
        groups.iter().map(|(name, lives)| verdict(name, lives, &untouched, checks)).collect()
    }
}

/// The number of an age: each lasts twice as long as the one before.
fn age(seconds: u64) -> u32 {
    (seconds / YOUNG_S).max(1).ilog2()
}

fn verdict(name: &str, lives: &[&Life], untouched: &[&Life], checks: usize) -> Verdict {
    let alike = alike(untouched, lives);
    let ratio = |figure: fn(&Figures) -> &Vec<f64>| {
        let groups: Vec<_> =
            alike.iter().map(|[others, own]| [means(others, figure), means(own, figure)]).collect();
        ratio_within(&groups, checks)
    };
    Verdict {
        candidate: name.to_owned(),
        pods: lives.len(),
        untouched: untouched.len(),
        memory: ratio(|figures| &figures.memory),
        cpu: ratio(|figures| &figures.cpu),
        latency: ratio(|figures| &figures.latency),
        failures: lives.iter().map(|life| life.failures).sum(),
        withdraw: reason_to_withdraw(lives, untouched),
    }
}

/// Untouched pods and pods of a candidate, by the type of their nodes. Of each type the age is taken at which most of
/// both were seen, the later one of several.
fn alike<'a>(untouched: &[&'a Life], lives: &[&'a Life]) -> Vec<[Vec<&'a Figures>; 2]> {
    let mut seen: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for life in lives {
        seen.entry(&life.node_type).or_default().extend(life.ages.keys());
    }
    let of_type = |(node_type, ages): (&str, BTreeSet<u32>)| {
        let groups = ages.into_iter().map(|age| [at(untouched, node_type, age), at(lives, node_type, age)]);
        groups.max_by_key(|group| group.iter().map(Vec::len).min())
    };
    seen.into_iter().filter_map(of_type).collect()
}

/// Figures of the pods on nodes of that type at that age.
fn at<'a>(lives: &[&'a Life], node_type: &str, age: u32) -> Vec<&'a Figures> {
    let same = lives.iter().filter(|life| life.node_type == node_type);
    same.filter_map(|life| life.ages.get(&age)).collect()
}

/// The mean of each pod.
fn means(pods: &[&Figures], figure: fn(&Figures) -> &Vec<f64>) -> Vec<f64> {
    let values = pods.iter().map(|pod| figure(pod)).filter(|values| !values.is_empty());
    values.map(|values| values.iter().sum::<f64>() / values.len() as f64).collect()
}

/// A candidate whose pods fail is taken back at once, as long as no untouched pod does: to take one back in vain costs
/// little. Where both fail, it has to be proven that the candidate's do more often.
fn reason_to_withdraw(lives: &[&Life], untouched: &[&Life]) -> Option<String> {
    let is_more = |count: fn(&Life) -> u32| {
        let events = |lives: &[&Life]| EventCount {
            events: lives.iter().map(|life| count(life)).sum(),
            seconds: lives.iter().map(|life| f64::from(life.looks)).sum(),
        };
        let (before, after) = (events(untouched), events(lives));
        after.events > 0 && (before.events == 0 || chance_of_events(before, after) < ERROR)
    };
    let last = || lives.iter().find_map(|life| life.last_failure.clone()).unwrap_or_default();
    let why = || lives.iter().find_map(|life| life.waits.clone()).unwrap_or_default();
    if is_more(|life| life.failures) {
        return Some(format!("its pods fail ({}), more often than untouched ones", last()));
    }
    if lives.iter().map(|life| life.missed).sum::<u32>() >= MISSED {
        let process = lives.iter().find_map(|life| life.lacks.clone()).unwrap_or_default();
        return Some(format!("it does not serve in {process}, which holds the most memory of its pod"));
    }
    is_more(|life| u32::from(life.waits.is_some()))
        .then(|| format!("its pods wait for the libraries ({}), and untouched ones do not", why()))
}

impl Verdict {
    /// Whether it is proven better in memory or CPU, costs no more of the other than a pick may, and is not proven
    /// slower. Memory and CPU have to be known, and the latency if it was asked for.
    pub(crate) fn is_better(&self, asks_latency: bool) -> bool {
        let (Some(memory), Some(cpu)) = (self.memory, self.cpu) else { return false };
        let limits = CostLimits::USUAL;
        let answer = |ratio, figure| judge(KnownFigure::Interval(ratio), smallest_difference(figure));
        let is_slower = self.latency.map_or(asks_latency, |ratio| answer(ratio, "p99") == Answer::Worse);
        (answer(memory, "memory") == Answer::Better || answer(cpu, "cpu") == Answer::Better)
            && memory.mid <= 1.0 + limits.memory
            && cpu.mid <= 1.0 + limits.cpu
            && !is_slower
            && self.withdraw.is_none()
    }

    /// Product of both ratios: the smaller, the better.
    pub(crate) fn product(&self) -> f64 {
        [self.memory, self.cpu].into_iter().flatten().map(|ratio| ratio.mid).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: usize, candidate: &str, memory: f64) -> Pod {
        Pod {
            name: format!("web-{number}"),
            uid: number.to_string(),
            candidate: Some(candidate.to_owned()),
            left_alone: None,
            container: "app".to_owned(),
            preload: None,
            lacks: None,
            is_ready: true,
            has_ended: false,
            waits: None,
            waits_for_us: false,
            node: Some(format!("node-{}", number % 2)),
            age_s: Some(600),
            failures: 0,
            oom_kills: 0,
            last_failure: None,
            memory: Some(memory),
            cpu: Some(0.1),
            latency: Some(0.2),
        }
    }

    fn ten(factor: f64) -> Vec<Pod> {
        let noise = |number: usize| 1.0 + number as f64 / 500.0;
        let untouched = (0..7).map(|number| pod(number, SYSTEM, 1e8 * noise(number)));
        untouched.chain((7..10).map(|number| pod(number, "jemalloc", 1e8 * factor * noise(number)))).collect()
    }

    fn judged(pods: &[Pod]) -> Verdict {
        judged_on(pods, &Types::new())
    }

    fn judged_on(pods: &[Pod], types: &Types) -> Verdict {
        let mut seen = Observations::default();
        seen.add(pods, types);
        seen.add(pods, types);
        seen.verdicts().pop().unwrap()
    }

    fn has_candidate(pod: &Pod) -> bool {
        pod.candidate.as_deref() != Some(SYSTEM)
    }

    #[test]
    fn less_memory_is_proven_and_no_difference_is_not() {
        let verdict = judged(&ten(0.7));
        assert!(verdict.is_better(false) && verdict.memory.unwrap().hi < 0.75, "{verdict:?}");
        assert_eq!((verdict.pods, verdict.untouched), (3, 7));
        assert!(!judged(&ten(1.0)).is_better(false));
        assert!(!judged(&ten(1.4)).is_better(false));
    }

    #[test]
    fn a_failure_takes_it_back_unless_untouched_pods_fail_as_often() {
        let mut pods = ten(0.7);
        pods[8].failures = 1;
        pods[8].last_failure = Some("OOMKilled, exit status 137".into());
        let verdict = judged(&pods);
        assert!(verdict.withdraw.as_ref().unwrap().contains("OOMKilled") && !verdict.is_better(false));
        pods.iter_mut().for_each(|pod| pod.failures = 1);
        assert_eq!(judged(&pods).withdraw, None);
    }

    #[test]
    fn a_candidate_that_is_begun_again_is_judged_by_its_new_pods() {
        let mut pods = ten(0.7);
        pods[8].failures = 1;
        let mut seen = Observations::default();
        seen.add(&pods, &Types::new());
        assert!(seen.verdicts()[0].withdraw.is_some());
        seen.forget("jemalloc");
        assert!(seen.verdicts().is_empty());
        let anew = ten(0.7).into_iter().map(|pod| Pod { uid: format!("{}-again", pod.uid), ..pod });
        seen.add(&anew.collect::<Vec<_>>(), &Types::new());
        let verdict = seen.verdicts().pop().unwrap();
        assert_eq!((verdict.pods, verdict.withdraw.as_deref()), (3, None));
    }

    #[test]
    fn pods_that_wait_for_our_libraries_take_it_back_and_for_their_own_image_they_do_not() {
        let mut pods = ten(0.7);
        pods[7].waits = Some("ImagePullBackOff".into());
        assert_eq!(judged(&pods).withdraw, None);
        pods[7].waits_for_us = true;
        assert!(judged(&pods).withdraw.unwrap().contains("ImagePullBackOff"));
    }

    #[test]
    fn a_candidate_that_does_not_serve_is_taken_back_at_the_second_look() {
        let mut pods = ten(0.7);
        let mut seen = Observations::default();
        let mut look = |lacks: Option<&str>| {
            pods[7].lacks = lacks.map(str::to_owned);
            seen.add(&pods, &Types::new());
            seen.verdicts().pop().unwrap().withdraw
        };
        assert_eq!((look(Some("node")), look(None)), (None, None), "once");
        assert!(look(Some("node")).unwrap().starts_with("it does not serve in node, which"));
    }

    #[test]
    fn what_costs_more_of_the_other_figure_than_a_pick_may_is_not_better() {
        let mut pods = ten(0.7);
        pods.iter_mut().filter(|pod| has_candidate(pod)).for_each(|pod| pod.cpu = Some(0.2));
        assert!(!judged(&pods).is_better(false));
    }

    #[test]
    fn a_candidate_that_is_proven_slower_is_not_better() {
        let mut pods = ten(0.7);
        pods.iter_mut().filter(|pod| has_candidate(pod)).for_each(|pod| pod.latency = Some(0.3));
        assert!(!judged(&pods).is_better(false));
        pods[9].latency = Some(0.01);
        assert!(judged(&pods).is_better(false), "not proven");
        pods.iter_mut().for_each(|pod| pod.latency = None);
        let verdict = judged(&pods);
        assert!(verdict.is_better(false) && !verdict.is_better(true), "asked for, and not known");
        pods.iter_mut().for_each(|pod| pod.cpu = None);
        assert!(!judged(&pods).is_better(false), "CPU is not known");
    }

    /// Pods need half as much on small nodes, and most of the candidate's are there.
    #[test]
    fn pods_are_compared_on_nodes_of_one_type() {
        let pods = |factor: f64| {
            let made = (0..40).map(|number| {
                let (node, base, few) = if number < 20 { ("s", 5e7, 0..3) } else { ("l", 1e8, 37..40) };
                let is_untouched = few.contains(&number) == (number < 20);
                let (candidate, factor) = if is_untouched { (SYSTEM, 1.0) } else { ("jemalloc", factor) };
                let noise = 1.0 + (number % 5) as f64 / 100.0;
                Pod { node: Some(node.to_owned()), ..pod(number, candidate, base * factor * noise) }
            });
            made.collect::<Vec<_>>()
        };
        let types = Types::from([("s".to_owned(), "small".to_owned()), ("l".to_owned(), "large".to_owned())]);
        assert!(judged(&pods(1.0)).is_better(false), "the types are not known");
        assert!(!judged_on(&pods(1.0), &types).is_better(false));
        let verdict = judged_on(&pods(0.7), &types);
        assert!(
            verdict.is_better(false) && (0.69..0.73).contains(&verdict.memory.unwrap().mid),
            "{verdict:?}"
        );
    }

    /// Pods of the candidate are older in the second look. In the first they were not, and needed as much.
    #[test]
    fn pods_are_compared_at_the_same_age() {
        let mut pods = ten(0.7);
        pods.iter_mut().filter(|pod| has_candidate(pod)).for_each(|pod| pod.age_s = Some(100_000));
        assert_eq!(judged(&pods).memory, None);
        let mut seen = Observations::default();
        seen.add(&ten(1.0), &Types::new());
        seen.add(&pods, &Types::new());
        let verdict = seen.verdicts().pop().unwrap();
        assert!(!verdict.is_better(false) && verdict.memory.unwrap().mid > 0.95, "{verdict:?}");
    }

    #[test]
    fn an_age_lasts_twice_as_long_as_the_one_before() {
        assert_eq!([0, 119, 120, 239, 240, 3600].map(age), [0, 0, 1, 1, 2, 5]);
    }
}
