// SPDX-License-Identifier: Apache-2.0
//! The replays of a process under every candidate, and what they predict.

use std::io::{Read, Seek};

use anyhow::Result;
use imas_core::reliability::{RecordedFacts, ReliabilityTable};
use imas_engine::compared::ComparedCandidate;
use imas_engine::context::Context;
use imas_linux::catalogue::SYSTEM;
use imas_linux::sampler::Resident;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_trace::file::{Trace, TraceProcess};
use imas_trace::prediction::{Figures, least_cpu, predict, recorded};
use imas_trace::program::Look;
use imas_trace::result::Replay;

use crate::range::{Prediction, with_ranges};
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
    /// Memory of the recorded run as it was measured from outside; zero where it was not.
    pub outside: Resident,
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
    let outside = Resident::default();
    Ok(ReplayedCandidates { process, looks: replayer.program.looks, candidates, outside })
}

impl ReplayedCandidates<'_> {
    /// The figures of the recorded run.
    #[must_use]
    pub fn recorded(&self) -> Figures {
        self.with_unseen(recorded(&self.looks))
    }

    /// With the memory that the looks did not see: that of other processes, and of a process that seldom makes a
    /// call. It is taken to be the same under every candidate.
    fn with_unseen(&self, figures: Figures) -> Figures {
        let seen = recorded(&self.looks);
        let unseen = |outside: u64, seen: f64| (outside as f64 - seen).max(0.0);
        Figures {
            peak_bytes: figures.peak_bytes + unseen(self.outside.peak_bytes, seen.peak_bytes),
            mean_bytes: figures.mean_bytes + unseen(self.outside.mean_bytes, seen.mean_bytes),
            ..figures
        }
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
        Some(self.with_unseen(predict(&self.looks, self.replays_of(SYSTEM), &one.replays)?))
    }

    /// What tells how far the predictions may be off. The allocator's part of the CPU time is 0 without a replay
    /// under `system`.
    #[must_use]
    pub fn facts(&self) -> RecordedFacts {
        let recorded = self.recorded();
        let own_cpu_s = Some(least_cpu(self.replays_of(SYSTEM))).filter(|cpu_s| cpu_s.is_finite());
        RecordedFacts {
            allocator_share: own_cpu_s.unwrap_or(0.0) / recorded.cpu_s.max(f64::MIN_POSITIVE),
            peak_bytes: recorded.peak_bytes,
        }
    }

    /// Each candidate with its prediction, where there is one.
    #[must_use]
    pub fn predictions(&self, table: &ReliabilityTable) -> Vec<(&ReplayedCandidate<'_>, Option<Prediction>)> {
        let facts = self.facts();
        let known = ReliabilityTable::default(); // what was recorded is no prediction
        let predicted = |one: &ReplayedCandidate<'_>| {
            let table = if one.candidate.candidate.is_system() { &known } else { table };
            Some(with_ranges(&self.predicted(one)?, one.name(), &facts, table))
        };
        self.candidates.iter().map(|one| (one, predicted(one))).collect()
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
