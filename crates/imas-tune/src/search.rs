// SPDX-License-Identifier: Apache-2.0
//! The search over several allocators: each gets a few points, then the better half gets more.

use std::collections::BTreeMap;

use optimizer::Trial;

use crate::found::{Evaluation, Importance};
use crate::goal::Goal;
use crate::space::{SettingsPoint, Space, candidate_name};
use crate::study::AllocatorStudy;

/// How often the estimator may name a point that is known already before points are drawn at random.
const REPETITIONS: u32 = 5;
/// How often those may be known before the allocator counts as searched.
const REPETITIONS_AT_RANDOM: u32 = 50;

/// What is to be done next.
#[derive(Debug)]
pub enum Next {
    /// Measure this one, and answer.
    Measure(Question),
    /// Answers are missing before it can go on.
    Wait,
    /// Nothing more.
    Done,
}

/// A point to be measured.
#[derive(Debug)]
pub struct Question {
    /// Name of the candidate, with its settings.
    pub candidate: String,
    study: usize,
    trial: Box<Trial>,
}

/// A search under way.
#[derive(Debug)]
pub struct Search {
    studies: Vec<AllocatorStudy>,
    goal: Goal,
    rungs: Vec<Rung>,
    /// The rung that is being filled.
    rung: usize,
    /// Places of the allocators that are still in.
    alive: Vec<usize>,
    /// By study: points that were asked for.
    asked: Vec<u32>,
    unanswered: u32,
    evaluations: BTreeMap<String, Evaluation>,
}

/// A stage of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rung {
    /// Allocators in it.
    allocators: usize,
    /// Points of each, with those of the rungs before.
    points: u32,
}

impl Search {
    /// A search of these allocators that measures about `points` points. `known`: evaluations of an earlier
    /// session; they count as measured.
    #[must_use]
    pub fn new(
        space: &Space,
        allocators: &[String],
        goal: Goal,
        points: u32,
        seed: u64,
        known: &[Evaluation],
    ) -> Self {
        let study =
            |(at, allocator): (usize, &String)| AllocatorStudy::new(space, allocator, seed + at as u64);
        let studies: Vec<AllocatorStudy> = allocators.iter().enumerate().map(study).collect();
        let mut search = Self {
            goal,
            rungs: rungs(studies.len(), points),
            rung: 0,
            alive: (0..studies.len()).collect(),
            asked: vec![0; studies.len()],
            unanswered: 0,
            evaluations: BTreeMap::new(),
            studies,
        };
        for evaluation in known {
            search.recall(evaluation);
        }
        search
    }

    fn recall(&mut self, evaluation: &Evaluation) {
        let Some(study) = self.studies.iter().position(|study| study.allocator == evaluation.allocator)
        else {
            return;
        };
        self.asked[study] += 1;
        if let Some(ratios) = &evaluation.ratios {
            self.studies[study].tell_point(&evaluation.point, self.goal.score(ratios));
        }
        self.evaluations.insert(evaluation.candidate.clone(), evaluation.clone());
    }

    /// What is to be done next.
    pub fn next_step(&mut self) -> Next {
        loop {
            let Some(rung) = self.rungs.get(self.rung).copied() else { return Next::Done };
            let open = |study: &&usize| self.asked[**study] < rung.points;
            if let Some(study) = self.alive.iter().find(open).copied() {
                if let Some(question) = self.question(study) {
                    return Next::Measure(question);
                }
                self.asked[study] = rung.points;
            } else if self.unanswered > 0 {
                return Next::Wait;
            } else {
                self.end_rung();
            }
        }
    }

    /// A point that is not known yet. The first of each allocator is the one without settings.
    fn question(&mut self, at: usize) -> Option<Question> {
        let study = &self.studies[at];
        if self.asked[at] == 0 && !self.evaluations.contains_key(&study.allocator) {
            study.enqueue_default();
        }
        for attempt in 0..REPETITIONS + REPETITIONS_AT_RANDOM {
            let (trial, point) = if attempt < REPETITIONS { study.ask() } else { study.ask_at_random() };
            let candidate = candidate_name(&study.allocator, &point);
            if let Some(known) = self.evaluations.get(&candidate) {
                let score = known.ratios.as_ref().map(|ratios| self.goal.score(ratios));
                study.tell(trial, score);
                continue;
            }
            self.asked[at] += 1;
            self.unanswered += 1;
            let evaluation = Evaluation::open(&candidate, &study.allocator, point);
            self.evaluations.insert(candidate.clone(), evaluation);
            return Some(Question { candidate, study: at, trial: Box::new(trial) });
        }
        None
    }

    /// The answer to a question. Returns what is to be kept of it.
    pub fn answer(
        &mut self,
        question: Question,
        ratios: Result<crate::goal::PointRatios, String>,
    ) -> Evaluation {
        let score = ratios.as_ref().ok().map(|ratios| self.goal.score(ratios));
        self.studies[question.study].tell(*question.trial, score);
        self.unanswered -= 1;
        let allocator = &self.studies[question.study].allocator;
        let evaluation = self
            .evaluations
            .entry(question.candidate.clone())
            .or_insert_with(|| Evaluation::open(&question.candidate, allocator, SettingsPoint::new()));
        evaluation.set(ratios);
        evaluation.clone()
    }

    /// Takes a question back that will not be answered.
    pub fn withdraw(&mut self, question: Question) {
        self.unanswered -= 1;
        self.asked[question.study] -= 1;
        self.evaluations.remove(&question.candidate);
    }

    /// The next rung keeps the allocators with the best points.
    fn end_rung(&mut self) {
        self.rung += 1;
        let Some(rung) = self.rungs.get(self.rung) else { return };
        let mut by_score: Vec<(f64, usize)> =
            self.alive.iter().map(|&study| (self.best_score(study), study)).collect();
        by_score.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.alive = by_score.into_iter().map(|(_, study)| study).take(rung.allocators).collect();
    }

    fn best_score(&self, study: usize) -> f64 {
        let of_it = |one: &&Evaluation| one.allocator == self.studies[study].allocator;
        let scores = self.evaluations.values().filter(of_it).filter_map(|one| one.ratios.as_ref());
        scores.map(|ratios| self.goal.score(ratios)).fold(f64::INFINITY, f64::min)
    }

    /// All that was measured, in no order.
    #[must_use]
    pub fn evaluations(&self) -> Vec<Evaluation> {
        self.evaluations.values().filter(|one| one.is_answered()).cloned().collect()
    }

    /// How much each setting matters.
    #[must_use]
    pub fn importance(&self) -> Vec<Importance> {
        let of = |study: &AllocatorStudy| Importance {
            allocator: study.allocator.clone(),
            settings: study.importance(),
        };
        self.studies.iter().map(of).filter(|one| !one.settings.is_empty()).collect()
    }
}

/// All allocators, then half of them, and so on to one; each rung measures about as many points as the
/// others.
fn rungs(allocators: usize, points: u32) -> Vec<Rung> {
    let mut counts = vec![];
    let mut left = allocators;
    while left > 1 {
        counts.push(left);
        left = left.div_ceil(2);
    }
    counts.extend((allocators > 0).then_some(1));
    let share = f64::from(points) / counts.len().max(1) as f64;
    let mut sum = 0;
    let rung = |allocators: usize| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32")]
        let more = (share / allocators as f64).round().max(1.0) as u32;
        sum += more;
        Rung { allocators, points: sum }
    };
    counts.into_iter().map(rung).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::PointRatios;
    use proptest::prelude::*;

    fn space(allocators: usize) -> (Space, Vec<String>) {
        let names: Vec<String> = (0..allocators).map(|n| format!("a{n}")).collect();
        let entry = |name: &String| {
            format!("[[setting]]\nallocator = '{name}'\nname = 'n'\nfrom = 0\nto = 100\ndefault = 50\n")
        };
        let text: String = names.iter().map(entry).collect();
        (Space::read(&format!("schema = 1\n{text}"), 1).unwrap(), names)
    }

    fn goal() -> Goal {
        Goal { cpu_weight: 0.0, limits: vec![] }
    }

    /// Allocator aN takes (N + 1) * 0.5 of memory, and less with a small n.
    fn ratios(candidate: &str) -> PointRatios {
        let (allocator, n) = candidate.split_once("?n:").unwrap_or((candidate, "50"));
        let base: f64 = allocator[1..].parse().unwrap();
        let memory = (base + 1.0) * 0.5 * (1.0 + n.parse::<f64>().unwrap() / 100.0);
        PointRatios { cpu: 1.0, memory, peak: memory }
    }

    fn search(allocators: usize, points: u32, known: &[Evaluation]) -> (Search, u32) {
        let (space, names) = space(allocators);
        let mut search = Search::new(&space, &names, goal(), points, 1, known);
        let mut measured = 0;
        while let Next::Measure(question) = search.next_step() {
            measured += 1;
            let ratios = ratios(&question.candidate);
            search.answer(question, Ok(ratios));
        }
        (search, measured)
    }

    #[test]
    fn the_better_half_gets_more_points() {
        assert_eq!(rungs(5, 120).iter().map(|rung| rung.allocators).collect::<Vec<_>>(), [5, 3, 2, 1]);
        assert_eq!(rungs(1, 10), [Rung { allocators: 1, points: 10 }]);
        assert_eq!(rungs(0, 10), []);
        let (search, measured) = search(4, 60, &[]);
        assert!((50..=70).contains(&measured), "{measured}");
        let count = |name: &str| search.evaluations().iter().filter(|one| one.allocator == name).count();
        assert!(count("a0") > 3 * count("a3"), "{} and {}", count("a0"), count("a3"));
    }

    #[test]
    fn a_search_begins_with_the_defaults_and_finds_the_best() {
        let (space, names) = space(2);
        let mut first = Search::new(&space, &names, goal(), 10, 1, &[]);
        let Next::Measure(question) = first.next_step() else { panic!("a question") };
        assert_eq!(question.candidate, "a0");
        let (search, _) = search(2, 60, &[]);
        let best = crate::found::best(&search.evaluations(), &goal(), 1).remove(0);
        assert_eq!(best.allocator, "a0");
        assert!(best.ratios.unwrap().memory < 0.55, "{best:?}");
    }

    #[test]
    fn an_earlier_session_is_not_measured_again() {
        let (whole, measured) = search(3, 40, &[]);
        let known = whole.evaluations();
        let (again, more) = search(3, 40, &known);
        assert_eq!((more, again.evaluations().len()), (0, known.len()), "of {measured}");
    }

    #[test]
    fn a_small_space_ends() {
        let text = "schema = 1\n[[setting]]\nallocator = 'a0'\nname = 'n'\nfrom = 0\nto = 1\ndefault = 0";
        let mut search =
            Search::new(&Space::read(text, 1).unwrap(), &["a0".to_owned()], goal(), 1000, 1, &[]);
        let mut measured = 0;
        while let Next::Measure(question) = search.next_step() {
            measured += 1;
            search.answer(question, Err("it failed".to_owned()));
        }
        assert_eq!(measured, 2);
        assert!(search.evaluations().iter().all(|one| one.failure.is_some()));
    }

    proptest! {
        /// Whatever fails, and in whatever order the answers come: each point is asked once, and it ends.
        #[test]
        fn it_ends_with_answers_in_any_order(allocators in 1_usize..5, points in 0_u32..60, jobs in 1_usize..5, fail in any::<u64>()) {
            let (space, names) = space(allocators);
            let mut search = Search::new(&space, &names, goal(), points, 7, &[]);
            let mut open: Vec<Question> = vec![];
            let mut asked = std::collections::BTreeSet::new();
            let mut bits = fail;
            loop {
                let next = search.next_step();
                if let Next::Measure(question) = next {
                    prop_assert!(asked.insert(question.candidate.clone()), "asked twice");
                    open.push(question);
                    if open.len() < jobs {
                        continue;
                    }
                } else if matches!(next, Next::Done) {
                    break;
                }
                prop_assert!(!open.is_empty(), "nothing to wait for");
                bits = bits.rotate_left(7).wrapping_mul(3);
                let question = open.remove(usize::try_from(bits % 5).unwrap() % open.len());
                let answer = if bits & 8 == 0 { Err("no".to_owned()) } else { Ok(ratios(&question.candidate)) };
                search.answer(question, answer);
            }
            prop_assert!(open.is_empty());
        }
    }
}
