// SPDX-License-Identifier: Apache-2.0
//! The strategies that choose a candidate for each program.

use imas_core::adaptive::Settings;
use imas_core::candidate::{CountedSample, SYSTEM};
use imas_core::paper::{self, Limits, Picks, TrialSummary};
use imas_simulate::{Contender, SimulatedProgram, best, in_all};

/// The objective of a pick.
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

    /// Weight of CPU; memory has the rest of 1.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::Fastest => 1.0,
            Self::Leanest => 0.0,
            Self::Balanced => 0.5,
        }
    }

    pub(crate) fn of(self, picks: &Picks) -> usize {
        match self {
            Self::Fastest => picks.fastest,
            Self::Leanest => picks.leanest,
            Self::Balanced => picks.balanced,
        }
    }
}

/// The candidates of the paper.
pub(crate) const PAPERS_FOUR: [&str; 4] = [SYSTEM, "hoard", "tcmalloc", "jemalloc"];

/// One strategy.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Strategy {
    /// One candidate for every program.
    Always(String),
    /// Algorithm 9 over all candidates.
    Paper(Aim),
    /// Algorithm 9 over the paper's four.
    PaperFour(Aim),
    /// Algorithm 9 over the paper's four, judged on the same runs that chose, as in the paper.
    PaperAsPrinted(Aim),
    /// The default policy.
    Adaptive(Aim),
    /// The best candidate of the rounds seen, without margin or proof.
    Best(Aim),
    /// The best candidate of the judging rounds. No selector can do better.
    Hindsight(Aim),
}

/// The rounds by their use, as indices into the program's rounds.
pub(crate) struct Parts<'a> {
    pub(crate) seen: &'a [usize],
    pub(crate) judging: &'a [usize],
    pub(crate) counted_seen: &'a [usize],
    pub(crate) counted_judging: &'a [usize],
}

impl Strategy {
    /// The name of its line in a chart. It selects the colour: the allocator's, or the one of IMAS.
    pub(crate) fn policy(&self, name: &str) -> String {
        match self {
            Self::Always(candidate) => candidate.clone(),
            _ => format!("IMAS {name}"),
        }
    }

    /// Text for tables.
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

    /// All strategies that the study compares.
    pub(crate) fn all(candidates: &[String]) -> Vec<Self> {
        let always = candidates.iter().cloned().map(Self::Always);
        let by_aim: [fn(Aim) -> Self; 6] =
            [Self::Adaptive, Self::Paper, Self::PaperFour, Self::PaperAsPrinted, Self::Best, Self::Hindsight];
        always.chain(by_aim.iter().flat_map(|of| Aim::ALL.map(of))).collect()
    }

    /// Index of the strategy's candidate for the program. None if it has no data, or if its candidate does
    /// not run.
    pub(crate) fn pick(&self, program: &SimulatedProgram, parts: &Parts<'_>, seed: u64) -> Option<usize> {
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

pub(crate) fn is_papers(candidate: &str) -> bool {
    PAPERS_FOUR.contains(&candidate)
}

/// Applies algorithms 8 and 9 to these counted rounds.
pub(crate) fn analyse(
    program: &SimulatedProgram,
    rounds: &[usize],
    may: impl Fn(&str) -> bool,
) -> Option<Picks> {
    let limits = Limits { retest_s: 0.0, ..Limits::default() };
    let mut summaries = vec![TrialSummary::default(); program.candidates.len()];
    let rounds: Vec<&[Option<CountedSample>]> =
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
