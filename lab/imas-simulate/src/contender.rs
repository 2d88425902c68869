// SPDX-License-Identifier: Apache-2.0
//! The policies that are compared, each as it would run: asking for trials until it has its answer.

use crate::program::SimulatedProgram;
use crate::program::best;
use imas_core::adaptive::{self, Board, Role, Settings, board::JudgedTrial};
use imas_core::candidate::CountedSample;
use imas_core::paper::{self, Limits, TrialSummary};

/// A policy in the laboratory.
#[derive(Clone, PartialEq, Debug)]
pub enum Contender {
    /// The default policy.
    Adaptive(Settings),
    /// Algorithms 8 to 10 of the paper, and its balanced pick.
    Paper(Limits),
    /// One candidate for every program; `system` where it does not run.
    Always(String),
    /// Every candidate in every round, then the best of them without margin or proof: it is unknown more.
    All,
    /// Every candidate once, then the best of them without margin or proof.
    Once,
}

/// Outcome of a policy for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContenderOutcome {
    /// Trials that the policy asked for.
    pub trials: u32,
    /// Index of the candidate that the policy settled on.
    pub pick: usize,
}

impl Contender {
    /// Name in tables and JSON.
    pub fn name(&self) -> String {
        match self {
            Self::Adaptive(_) => "adaptive".to_owned(),
            Self::Paper(_) => "paper".to_owned(),
            Self::Always(candidate) => format!("always {candidate}"),
            Self::All => "best of all seen".to_owned(),
            Self::Once => "one run of each".to_owned(),
        }
    }

    /// Lets it settle on a candidate, seeing of the measured rounds only `seen`, in that order, and at the
    /// machine's weight `w`. None when the program has not what the policy looks at (`paper`: counted
    /// rounds).
    pub fn settle(
        &self,
        program: &SimulatedProgram,
        seen: &[usize],
        w: f64,
        seed: u64,
    ) -> Option<ContenderOutcome> {
        match self {
            Self::Adaptive(settings) => Some(tried(program, seen, w, &Settings { seed, ..*settings })),
            Self::Paper(limits) => paper(program, seen, limits, seed),
            Self::Always(name) => {
                let pick = program.candidates.iter().position(|candidate| candidate == name).unwrap_or(0);
                Some(ContenderOutcome { trials: 0, pick })
            }
            Self::All => everything(program, seen, w),
            Self::Once => everything(program, seen.get(..1)?, w),
        }
    }
}

/// Trials of every candidate in each of the rounds, and the best of them.
fn everything(program: &SimulatedProgram, seen: &[usize], w: f64) -> Option<ContenderOutcome> {
    let made = seen.iter().flat_map(|&round| &program.rounds[round]).flatten().count();
    Some(ContenderOutcome { trials: u32::try_from(made).ok()?, pick: best(program, seen, w)? })
}

/// Outcome of the default policy. Each trial takes the candidate's run of the policy's current round. When no rounds are left, the policy has to decide by the trials so far.
fn tried(program: &SimulatedProgram, seen: &[usize], w: f64, settings: &Settings) -> ContenderOutcome {
    let len = program.candidates.len();
    let roles = vec![Role::Tested; len];
    // There are no more rounds than these: a policy that kept some of its error for later ones would not be
    // the one that a user has.
    let most = u32::try_from(seen.len()).unwrap_or(u32::MAX).min(settings.max_rounds);
    let settings = &Settings { max_rounds: most, ..*settings };
    let mut trials: Vec<JudgedTrial> = vec![];
    loop {
        let board = Board::new(&trials, len, 0);
        let judgement = adaptive::judge(&board, &roles, 0, w, settings);
        let outcome = ContenderOutcome { trials: board.trials(), pick: judgement.pick };
        let Some(candidate) = judgement.next else { return outcome };
        let again = board.in_round.contains(&candidate) || trials.is_empty();
        let round = (board.rounds as usize + usize::from(again)).saturating_sub(1);
        let Some(&round) = seen.get(round) else { return outcome };
        trials.push(JudgedTrial { candidate, point: program.rounds[round][candidate] });
    }
}

/// Every candidate `max_tests` times, round robin, each test one of the counted runs; those are used anew
/// when they run out.
fn paper(program: &SimulatedProgram, seen: &[usize], limits: &Limits, seed: u64) -> Option<ContenderOutcome> {
    let rounds = counted(program, seen);
    let limits = Limits { retest_s: 0.0, ..*limits };
    let eligible = in_all(&rounds, program.candidates.len());
    let mut summaries = vec![TrialSummary::default(); program.candidates.len()];
    let (mut trials, mut last) = (0, None);
    while let Some(next) = paper::next_test(&summaries, last, &eligible, &limits, f64::from(trials)) {
        let count = u64::from(summaries[next].count);
        let round = seed.wrapping_add(count).checked_rem(rounds.len() as u64)?;
        let test = rounds[usize::try_from(round).ok()?][next]?;
        paper::add(&mut summaries[next], &test, f64::from(trials), &limits);
        (trials, last) = (trials + 1, Some(next));
    }
    let picks = paper::analyse(&summaries, &eligible)?;
    Some(ContenderOutcome { trials, pick: picks.balanced })
}

/// Which candidates have figures in every one of these rounds.
pub fn in_all(rounds: &[&[Option<CountedSample>]], candidates: usize) -> Vec<bool> {
    (0..candidates).map(|i| rounds.iter().all(|round| round[i].is_some())).collect()
}

/// The counted rounds that may be seen, with figures of `system`.
fn counted<'a>(program: &'a SimulatedProgram, seen: &[usize]) -> Vec<&'a [Option<CountedSample>]> {
    let is_seen = |number: &usize| !program.same_runs || seen.contains(number);
    let rounds = program.counted.iter().enumerate().filter(|(number, _)| is_seen(number));
    rounds.map(|(_, round)| round.as_slice()).filter(|round| round[0].is_some()).collect()
}
