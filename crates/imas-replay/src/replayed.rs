// SPDX-License-Identifier: Apache-2.0
//! The replays of a process under every candidate, and what they predict.

use std::io::{Read, Seek};

use anyhow::Result;
use imas_engine::compared::ComparedCandidate;
use imas_engine::context::Context;
use imas_linux::catalogue::SYSTEM;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_trace::file::{Trace, TraceProcess};
use imas_trace::prediction::{Figures, predict, recorded};
use imas_trace::program::Look;
use imas_trace::result::Replay;

use crate::replayer::Replayer;

/// The replays of one candidate.
#[derive(Debug)]
pub struct ReplayedCandidate<'a> {
    /// The candidate.
    pub candidate: &'a ComparedCandidate<'a>,
    /// Those that succeeded.
    pub replays: Vec<Replay>,
    /// The reason why there are none.
    pub failure: Option<String>,
}

/// The replays of all candidates.
#[derive(Debug)]
pub struct ReplayedCandidates<'a> {
    /// The process that was replayed.
    pub process: TraceProcess,
    /// Recorded looks, which each replay repeats.
    pub looks: Vec<Look>,
    /// In the order given.
    pub candidates: Vec<ReplayedCandidate<'a>>,
}

/// Replays the process under each candidate in turn, `runs` times.
///
/// # Errors
/// When the trace is damaged, or no replay can be made. A signal is the error [`InterruptedBy`].
pub fn replay<'a>(
    trace: &mut Trace<impl Read + Seek>,
    process: TraceProcess,
    compared: &'a [ComparedCandidate<'a>],
    runs: u32,
    context: &Context,
    interruption: &Interruption,
) -> Result<ReplayedCandidates<'a>> {
    let check = || interruption.signal().map_or(Ok(()), |signal| Err(InterruptedBy(signal)));
    let mut candidates: Vec<ReplayedCandidate<'_>> = compared.iter().map(ReplayedCandidate::of).collect();
    let replayer = Replayer::prepare(trace, process.number, context)?;
    check()?;
    let replayer = replayer.calibrated();
    check()?;
    let replayer = replayer?;
    for _ in 0..runs {
        for candidate in candidates.iter_mut().filter(|candidate| candidate.failure.is_none()) {
            candidate.add(&replayer)?;
            check()?;
        }
    }
    Ok(ReplayedCandidates { process, looks: replayer.program.looks, candidates })
}

impl ReplayedCandidates<'_> {
    /// The figures of the recorded run.
    #[must_use]
    pub fn recorded(&self) -> Figures {
        recorded(&self.looks)
    }

    /// The replays of the candidate of that name.
    #[must_use]
    pub fn replays_of(&self, name: &str) -> &[Replay] {
        let found = self.candidates.iter().find(|one| one.candidate.candidate.name == name);
        found.map_or(&[], |one| &one.replays)
    }

    /// What the program would take under a candidate; None without replays of it and of `system`.
    #[must_use]
    pub fn predicted(&self, one: &ReplayedCandidate<'_>) -> Option<Figures> {
        predict(&self.looks, self.replays_of(SYSTEM), &one.replays)
    }
}

impl<'a> ReplayedCandidate<'a> {
    fn of(candidate: &'a ComparedCandidate<'a>) -> Self {
        Self { candidate, replays: vec![], failure: candidate.obstacle.clone() }
    }

    /// Its name in the catalogue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.candidate.candidate.name
    }

    fn add(&mut self, replayer: &Replayer<'_>) -> Result<()> {
        match replayer.replay(self.candidate.candidate)? {
            Ok(replay) => self.replays.push(replay),
            Err(failure) => self.failure = Some(failure),
        }
        Ok(())
    }
}
