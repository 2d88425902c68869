// SPDX-License-Identifier: Apache-2.0
//! Replays points of the space, several at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use imas_engine::inline_candidate::{has_settings, inline_candidate};
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_replay::replayer::Replayer;
use imas_runs::interruption::Interruption;
use imas_trace::prediction::{Figures, predict, recorded};
use imas_trace::result::Replay;
use imas_tune::found::{Evaluation, Importance};
use imas_tune::goal::{Goal, PointRatios};
use imas_tune::search::{Next, Search};
use imas_tune::space::{Space, candidate_name};

use super::work::PointsJournal;
use crate::context::Context;
use crate::message;
use crate::tune_args::TuneArgs;

/// Replays under `system` that the others are compared with.
const BASELINE: usize = 3;
/// A replay may take so many times what it takes under `system`, and a bit more.
const SLOWEST: u32 = 10;
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);
/// A setting whose removal costs no more than that in score is left out: a fifth of a per cent.
const NO_LOSS: f64 = 0.002;
/// glibc's malloc has settings and no entry of its own in the catalogue.
const GLIBC: &str = "glibc";

/// What was found by replays.
pub(super) struct Points {
    pub(super) evaluations: Vec<Evaluation>,
    pub(super) importance: Vec<Importance>,
}

/// The replays under `system`.
pub(super) struct Baseline<'a> {
    pub(super) replayer: &'a Replayer<'a>,
    pub(super) interruption: &'a Interruption,
    system: Vec<Replay>,
    recorded: Figures,
    timeout: Duration,
}

impl<'a> Baseline<'a> {
    /// Replays under `system`, `jobs` at a time as the points are.
    pub(super) fn replayed(
        replayer: &'a Replayer<'a>,
        jobs: usize,
        interruption: &'a Interruption,
    ) -> Result<Self> {
        let system = plain(SYSTEM, replayer.context)?;
        let began = Instant::now();
        let one = |job| replayer.replay_beside(&system, job, Duration::MAX, interruption);
        let mut all = vec![];
        while all.len() < BASELINE {
            let replays: Vec<_> = std::thread::scope(|scope| {
                let started: Vec<_> = (0..jobs).map(|job| scope.spawn(move || one(job))).collect();
                started.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
            });
            for replay in replays {
                let replay = replay.map_err(|_| anyhow!("a thread panicked"))??;
                all.push(replay.map_err(|why| anyhow!("the replay under system failed: {why}"))?);
            }
        }
        let rounds = u32::try_from(all.len().div_ceil(jobs)).unwrap_or(1);
        let timeout = (began.elapsed() / rounds).saturating_mul(SLOWEST).max(LEAST_TIMEOUT);
        let recorded = recorded(&replayer.program.looks);
        if recorded.cpu_s <= 0.0 || recorded.mean_bytes <= 0.0 {
            return Err(crate::message::Hinted::error(
                "the recorded run was too short to predict anything",
                "give the program more to do",
            ));
        }
        Ok(Self { replayer, interruption, system: all, recorded, timeout })
    }

    /// One replay of a candidate. The inner error is the reason why there is none.
    pub(super) fn replay(&self, candidate: &str, job: usize) -> Result<Result<Replay, String>> {
        match named(candidate, self.replayer.context) {
            Ok(candidate) => self.replayer.replay_beside(&candidate, job, self.timeout, self.interruption),
            Err(error) => Ok(Err(format!("{error:#}"))),
        }
    }

    /// What the program would take under the candidate of these replays, as ratios to the recorded run.
    pub(super) fn ratios(&self, replays: &[Replay], system: &[Replay]) -> Option<PointRatios> {
        let figures = predict(&self.replayer.program.looks, system, replays)?;
        Some(PointRatios {
            cpu: figures.cpu_s / self.recorded.cpu_s,
            memory: figures.mean_bytes / self.recorded.mean_bytes,
            peak: figures.peak_bytes / self.recorded.peak_bytes,
        })
    }

    /// The point without those of its settings that its score does not need: each is left out in turn.
    pub(super) fn simplified(&self, evaluation: &Evaluation, goal: &Goal) -> Result<Evaluation> {
        let mut simple = evaluation.clone();
        let names: Vec<String> = evaluation.point.keys().cloned().collect();
        for name in names {
            let (Some(ratios), true) = (simple.ratios, simple.point.len() > 1) else { break };
            let mut point = simple.point.clone();
            point.remove(&name);
            let candidate = candidate_name(&simple.allocator, &point);
            let Ok(fewer) = self.measured(&candidate, 0)? else { continue };
            if goal.score(&fewer) <= goal.score(&ratios) + NO_LOSS {
                simple = Evaluation { candidate, point, ratios: Some(fewer), ..simple };
            }
        }
        Ok(simple)
    }

    fn measured(&self, candidate: &str, job: usize) -> Result<Result<PointRatios, String>> {
        let replay = self.replay(candidate, job)?;
        Ok(replay.and_then(|replay| {
            self.ratios(&[replay], &self.system).ok_or_else(|| "nothing can be predicted".to_owned())
        }))
    }
}

/// The candidate of a name, which may have settings in it.
fn named(name: &str, context: &Context) -> Result<CatalogueCandidate> {
    if has_settings(name) { inline_candidate(name, context) } else { plain(name, context) }
}

/// An allocator without settings.
pub(super) fn plain(allocator: &str, context: &Context) -> Result<CatalogueCandidate> {
    context.candidate(if allocator == GLIBC { SYSTEM } else { allocator }).cloned()
}

/// Replays points until the search ends or its time is over.
pub(super) fn search(
    args: &TuneArgs,
    baseline: &Baseline<'_>,
    goal: Goal,
    space: &Space,
    allocators: &[String],
    journal: &mut PointsJournal,
) -> Result<Points> {
    let known = std::mem::take(&mut journal.known);
    if !known.is_empty() {
        message::say(&format!("imas: note: {} points of an earlier session are used", known.len()));
    }
    let search = Search::new(space, allocators, goal, args.points, args.seed, &known);
    let end = args.max_time.and_then(|time| Instant::now().checked_add(time));
    let state = SearchState { search, journal, error: None };
    let workers = Workers { state: Mutex::new(state), answered: Condvar::new(), baseline, end };
    std::thread::scope(|scope| {
        for job in 0..args.jobs() {
            let workers = &workers;
            scope.spawn(move || workers.work(job));
        }
    });
    let SearchState { search, error, .. } =
        workers.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match error {
        Some(error) => Err(error),
        None => Ok(Points { evaluations: search.evaluations(), importance: search.importance() }),
    }
}

/// The threads that replay.
struct Workers<'a> {
    state: Mutex<SearchState<'a>>,
    answered: Condvar,
    baseline: &'a Baseline<'a>,
    end: Option<Instant>,
}

struct SearchState<'a> {
    search: Search,
    journal: &'a mut PointsJournal,
    error: Option<anyhow::Error>,
}

impl<'a> Workers<'a> {
    fn lock(&self) -> MutexGuard<'_, SearchState<'a>> {
        // After a panic of another thread the search is as it was between two answers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread: question, replay, answer, until there is no more.
    fn work(&self, job: usize) {
        let mut state = self.lock();
        loop {
            let is_late = self.end.is_some_and(|end| Instant::now() >= end);
            if state.error.is_some() || is_late {
                break;
            }
            let question = match state.search.next_step() {
                Next::Measure(question) => question,
                Next::Wait => {
                    state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Next::Done => break,
            };
            drop(state);
            let measured = self.baseline.measured(&question.candidate, job);
            state = self.lock();
            match measured {
                Ok(ratios) => {
                    let evaluation = state.search.answer(question, ratios);
                    let kept = state.journal.append(&evaluation);
                    state.error = state.error.take().or_else(|| kept.err());
                }
                Err(error) => {
                    state.search.withdraw(question);
                    state.error = state.error.take().or(Some(error));
                }
            }
            self.answered.notify_all();
        }
        drop(state);
        self.answered.notify_all();
    }
}
