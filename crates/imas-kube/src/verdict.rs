// SPDX-License-Identifier: Apache-2.0
//! The pods of a candidate beside the untouched ones of the same workload. No I/O.
//!
//! Chance decides which pod gets which candidate, so nodes, ages and load are the same on average. A pod is one
//! figure: the mean of its looks. `imas_core::compare` is the judge.

use std::collections::BTreeMap;

use imas_core::SYSTEM;
use imas_core::compare::{Answer, CostLimits, ERROR, EventCount, Margins, chance_of_events, ratio_after};
use imas_core::stats::Interval;

use crate::pods::Pod;

/// What was seen of a workload's pods so far.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    lives: BTreeMap<String, Life>,
}

/// One pod over its looks.
#[derive(Debug, Default)]
struct Life {
    candidate: String,
    looks: u32,
    failures: u32,
    last_failure: Option<String>,
    waits: Option<String>,
    memory: Vec<f64>,
    cpu: Vec<f64>,
}

/// A candidate with the untouched pods as its measure.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) candidate: String,
    pub(crate) pods: usize,
    pub(crate) untouched: usize,
    /// Memory of a pod by that of an untouched one.
    pub(crate) memory: Option<Interval>,
    pub(crate) cpu: Option<Interval>,
    pub(crate) failures: u32,
    /// Why it has to be taken back.
    pub(crate) withdraw: Option<String>,
}

impl Observations {
    /// Adds one look.
    pub(crate) fn add(&mut self, pods: &[Pod]) {
        for pod in pods {
            let Some(candidate) = &pod.candidate else { continue };
            let life = self.lives.entry(pod.uid.clone()).or_default();
            life.candidate.clone_from(candidate);
            life.looks += 1;
            life.failures = pod.failures;
            life.last_failure.clone_from(&pod.last_failure);
            // An image of the application that cannot be had says nothing about the candidate.
            life.waits = pod.waits.clone().filter(|_| pod.waits_for_us);
            if pod.is_ready {
                life.memory.extend(pod.memory.filter(|bytes| *bytes > 0.0).map(f64::ln));
                life.cpu.extend(pod.cpu.filter(|cores| *cores > 0.0).map(f64::ln));
            }
        }
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

fn verdict(name: &str, lives: &[&Life], untouched: &[&Life], checks: usize) -> Verdict {
    let ratio = |figure: fn(&Life) -> &Vec<f64>| {
        ratio_after(&means(untouched, figure), &means(lives, figure), checks)
    };
    Verdict {
        candidate: name.to_owned(),
        pods: lives.len(),
        untouched: untouched.len(),
        memory: ratio(|life| &life.memory),
        cpu: ratio(|life| &life.cpu),
        failures: lives.iter().map(|life| life.failures).sum(),
        withdraw: reason_to_withdraw(lives, untouched),
    }
}

/// The mean of each pod's later half: both groups grow alike until then.
fn means(lives: &[&Life], figure: fn(&Life) -> &Vec<f64>) -> Vec<f64> {
    let later = |values: &Vec<f64>| values[values.len() / 2..].to_vec();
    let values = lives.iter().map(|life| later(figure(life))).filter(|values| !values.is_empty());
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
    is_more(|life| u32::from(life.waits.is_some()))
        .then(|| format!("its pods wait for the libraries ({}), and untouched ones do not", why()))
}

impl Verdict {
    /// Whether it is proven better in memory or CPU, and costs no more of the other than a pick may.
    pub(crate) fn is_better(&self) -> bool {
        let (margins, limits) = (Margins::USUAL, CostLimits::USUAL);
        let better = |ratio: Option<Interval>, margin| {
            ratio.is_some_and(|ratio| Answer::by_interval(ratio, margin) == Answer::Better)
        };
        let is_dear =
            |ratio: Option<Interval>, limit: f64| ratio.is_some_and(|ratio| ratio.mid > 1.0 + limit);
        let gains = better(self.memory, margins.memory) || better(self.cpu, margins.cpu);
        gains
            && !is_dear(self.memory, limits.memory)
            && !is_dear(self.cpu, limits.cpu)
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
            is_ready: true,
            waits: None,
            waits_for_us: false,
            node: None,
            failures: 0,
            oom_kills: 0,
            last_failure: None,
            memory: Some(memory),
            cpu: Some(0.1),
        }
    }

    fn ten(factor: f64) -> Vec<Pod> {
        let noise = |number: usize| 1.0 + number as f64 / 500.0;
        let untouched = (0..7).map(|number| pod(number, SYSTEM, 1e8 * noise(number)));
        untouched.chain((7..10).map(|number| pod(number, "jemalloc", 1e8 * factor * noise(number)))).collect()
    }

    fn judged(pods: &[Pod]) -> Verdict {
        let mut seen = Observations::default();
        seen.add(pods);
        seen.add(pods);
        seen.verdicts().pop().unwrap()
    }

    #[test]
    fn less_memory_is_proven_and_no_difference_is_not() {
        let verdict = judged(&ten(0.7));
        assert!(verdict.is_better() && verdict.memory.unwrap().hi < 0.75, "{verdict:?}");
        assert_eq!((verdict.pods, verdict.untouched), (3, 7));
        assert!(!judged(&ten(1.0)).is_better());
        assert!(!judged(&ten(1.4)).is_better());
    }

    #[test]
    fn a_failure_takes_it_back_unless_untouched_pods_fail_as_often() {
        let mut pods = ten(0.7);
        pods[8].failures = 1;
        pods[8].last_failure = Some("OOMKilled, exit status 137".into());
        let verdict = judged(&pods);
        assert!(verdict.withdraw.as_ref().unwrap().contains("OOMKilled") && !verdict.is_better());
        pods.iter_mut().for_each(|pod| pod.failures = 1);
        assert_eq!(judged(&pods).withdraw, None);
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
    fn what_costs_more_of_the_other_figure_than_a_pick_may_is_not_better() {
        let mut pods = ten(0.7);
        pods.iter_mut()
            .filter(|pod| pod.candidate.as_deref() != Some(SYSTEM))
            .for_each(|pod| pod.cpu = Some(0.2));
        assert!(!judged(&pods).is_better());
    }
}
