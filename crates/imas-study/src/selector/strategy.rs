// SPDX-License-Identifier: Apache-2.0
//! What might decide which candidate a program gets.

use imas_core::adaptive::Settings;
use imas_core::candidate::{Counted, SYSTEM};
use imas_core::paper::{self, Limits, Picks, Summary};
use imas_core::simulate::{Contender, Program, best, in_all};

/// What a pick is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Aim {
    Fastest,
    Leanest,
    Balanced,
}

impl Aim {
    pub(crate) const ALL: [Self; 3] = [Self::Fastest, Self::Leanest, Self::Balanced];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::Leanest => "leanest",
            Self::Balanced => "balanced",
        }
    }

    /// Weight of CPU; memory has the rest.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::Fastest => 1.0,
            Self::Leanest => 0.0,
            Self::Balanced => 0.5,
        }
    }

    fn of(self, picks: &Picks) -> usize {
        match self {
            Self::Fastest => picks.fastest,
            Self::Leanest => picks.leanest,
            Self::Balanced => picks.balanced,
        }
    }
}

/// The collection of the paper.
pub(crate) const PAPERS_FOUR: [&str; 4] = [SYSTEM, "hoard", "tcmalloc", "jemalloc"];

/// One way to decide.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Strategy {
    /// One candidate for every program.
    Always(String),
    /// Algorithm 9 over all candidates.
    Paper(Aim),
    /// Algorithm 9 over the paper's four.
    PaperFour(Aim),
    /// Algorithm 9 over the paper's four, judged on the runs that chose, which is how the paper judges.
    PaperAsPrinted(Aim),
    /// The default policy.
    Adaptive(Aim),
    /// The best of the rounds seen, without margin or proof.
    Best(Aim),
    /// The best of the very rounds that judge it: what no selector can reach.
    Hindsight(Aim),
}

/// Rounds by what they are used for; indices into those of the program.
pub(crate) struct Parts<'a> {
    pub(crate) seen: &'a [usize],
    pub(crate) judging: &'a [usize],
    pub(crate) counted_seen: &'a [usize],
    pub(crate) counted_judging: &'a [usize],
}

impl Strategy {
    /// As in tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Always(candidate) => format!("{candidate} for all"),
            Self::Paper(aim) => format!("IMAS paper, {}", aim.name()),
            Self::PaperFour(aim) => format!("IMAS paper, its four allocators, {}", aim.name()),
            Self::PaperAsPrinted(aim) => {
                format!("IMAS paper, its four, judged on the runs that chose, {}", aim.name())
            }
            Self::Adaptive(aim) => format!("IMAS adaptive, {}", aim.name()),
            Self::Best(aim) => format!("best of the runs seen, {}", aim.name()),
            Self::Hindsight(aim) => format!("oracle in hindsight (upper bound), {}", aim.name()),
        }
    }

    /// All that the study compares.
    pub(crate) fn all(candidates: &[String]) -> Vec<Self> {
        let always = candidates.iter().cloned().map(Self::Always);
        let by_aim: [fn(Aim) -> Self; 6] =
            [Self::Adaptive, Self::Paper, Self::PaperFour, Self::PaperAsPrinted, Self::Best, Self::Hindsight];
        always.chain(by_aim.iter().flat_map(|of| Aim::ALL.map(of))).collect()
    }

    /// Index of its candidate for the program. None where it has nothing to go by, or its candidate does not run.
    pub(crate) fn pick(&self, program: &Program, parts: &Parts<'_>, seed: u64) -> Option<usize> {
        match self {
            Self::Always(name) => program.candidates.iter().position(|candidate| candidate == name),
            Self::Paper(aim) => analyse(program, parts.counted_seen, |_| true).map(|p| aim.of(&p)),
            Self::PaperFour(aim) => analyse(program, parts.counted_seen, is_papers).map(|p| aim.of(&p)),
            Self::PaperAsPrinted(aim) => {
                analyse(program, parts.counted_judging, is_papers).map(|p| aim.of(&p))
            }
            Self::Adaptive(aim) => {
                let contender = Contender::Adaptive(Settings::default());
                Some(contender.settle(program, parts.seen, aim.weight(), seed)?.pick)
            }
            Self::Best(aim) => best(program, parts.seen, aim.weight()),
            Self::Hindsight(aim) => best(program, parts.judging, aim.weight()),
        }
    }
}

fn is_papers(candidate: &str) -> bool {
    PAPERS_FOUR.contains(&candidate)
}

/// Algorithms 8 and 9 on these counted rounds.
pub(crate) fn analyse(program: &Program, rounds: &[usize], may: impl Fn(&str) -> bool) -> Option<Picks> {
    let limits = Limits { retest_s: 0.0, ..Limits::default() };
    let mut summaries = vec![Summary::default(); program.candidates.len()];
    let rounds: Vec<&[Option<Counted>]> =
        rounds.iter().map(|&round| program.counted[round].as_slice()).collect();
    let counted = in_all(&rounds, program.candidates.len());
    for (round, time_s) in rounds.iter().zip(0u32..) {
        for (summary, counted) in summaries.iter_mut().zip(*round) {
            counted.iter().for_each(|counted| {
                paper::add(summary, counted, f64::from(time_s), &limits);
            });
        }
    }
    let eligible: Vec<bool> =
        program.candidates.iter().zip(counted).map(|(name, counted)| counted && may(name)).collect();
    paper::analyse(&summaries, &eligible)
}
