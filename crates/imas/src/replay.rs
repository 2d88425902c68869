// SPDX-License-Identifier: Apache-2.0
//! `imas replay`: repeats the calls of a trace under every candidate and predicts the program's figures.

mod page;
mod replayer;
mod shown;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_engine::compared::{ComparedCandidate, DefaultComparison, compared};
use imas_linux::catalogue::SYSTEM;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_trace::file::{Trace, TraceProcess};
use imas_trace::prediction::{Figures, Prediction, RELIABILITY, predict, recorded, with_intervals};
use imas_trace::program::Look;
use imas_trace::result::Replay;

use crate::context::Context;
use crate::message::{self, Hinted};
use crate::trace_args::ReplayArgs;
pub(crate) use replayer::Replayer;

/// The replays of one candidate.
pub(crate) struct Replayed<'a> {
    pub(crate) candidate: &'a ComparedCandidate<'a>,
    pub(crate) replays: Vec<Replay>,
    /// The reason why there are none.
    pub(crate) failure: Option<String>,
}

/// The replays of all candidates.
pub(crate) struct Answer<'a> {
    pub(crate) process: TraceProcess,
    pub(crate) looks: Vec<Look>,
    pub(crate) candidates: Vec<Replayed<'a>>,
}

pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Result<ExitCode> {
    let named = || args.trace.display().to_string();
    let file = File::open(&args.trace).with_context(named)?;
    let mut trace = Trace::open(BufReader::new(file)).with_context(named)?;
    if trace.header.machine != std::env::consts::ARCH {
        return Err(Hinted::error(
            format!("{}: recorded on another kind of machine ({})", named(), trace.header.machine),
            "replay it on such a machine",
        ));
    }
    let process = chosen(args, &trace.header.processes)?;
    let interruption = Interruption::watch()?;
    let store = context.open_store().inspect_err(message::error).ok();
    let compared = compared(&args.with, DefaultComparison::DefaultSet, context, store.as_ref())?;
    match answer(&mut trace, process, &compared, args.runs, context, &interruption).with_context(named) {
        Ok(answer) => shown::show(args, &answer)?,
        Err(error) => {
            let Some(interrupted) = error.downcast_ref::<InterruptedBy>() else { return Err(error) };
            return Ok(ExitCode::from(interrupted.exit_status()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays the process under each candidate in turn, `runs` times. A signal is the error
/// [`InterruptedBy`].
pub(crate) fn answer<'a>(
    trace: &mut Trace<impl Read + Seek>,
    process: TraceProcess,
    compared: &'a [ComparedCandidate<'a>],
    runs: u32,
    context: &Context,
    interruption: &Interruption,
) -> Result<Answer<'a>> {
    let check = || interruption.signal().map_or(Ok(()), |signal| Err(InterruptedBy(signal)));
    let mut candidates: Vec<Replayed<'_>> = compared.iter().map(Replayed::of).collect();
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
    Ok(Answer { process, looks: replayer.program.looks, candidates })
}

impl<'a> Answer<'a> {
    /// The figures of the recorded run.
    pub(crate) fn recorded(&self) -> Figures {
        recorded(&self.looks)
    }

    /// The replays of the candidate of that name.
    fn replays_of(&self, name: &str) -> &[Replay] {
        let found = self.candidates.iter().find(|one| one.candidate.candidate.name == name);
        found.map_or(&[], |one| &one.replays)
    }

    /// Each candidate with its prediction, where there is one.
    pub(crate) fn predictions(&self) -> Vec<(&Replayed<'a>, Option<Prediction>)> {
        let recorded = self.recorded();
        let system = self.replays_of(SYSTEM);
        let predicted = |one: &Replayed<'_>| {
            let figures = predict(&self.looks, system, &one.replays)?;
            Some(with_intervals(&figures, &recorded, RELIABILITY))
        };
        self.candidates.iter().map(|one| (one, predicted(one))).collect()
    }
}

impl<'a> Replayed<'a> {
    fn of(candidate: &'a ComparedCandidate<'a>) -> Self {
        Self { candidate, replays: vec![], failure: candidate.obstacle.clone() }
    }

    fn add(&mut self, replayer: &Replayer<'_>) -> Result<()> {
        match replayer.replay(self.candidate.candidate)? {
            Ok(replay) => self.replays.push(replay),
            Err(failure) => self.failure = Some(failure),
        }
        Ok(())
    }
}

/// The process with the most calls.
pub(crate) fn busiest(processes: &[TraceProcess]) -> Option<&TraceProcess> {
    processes.iter().max_by_key(|process| process.counts.calls)
}

/// The process that was named, or that with the most calls.
fn chosen(args: &ReplayArgs, processes: &[TraceProcess]) -> Result<TraceProcess> {
    let found = match args.process {
        Some(number) => processes.iter().find(|process| process.number == number),
        None => busiest(processes),
    };
    let found = found.filter(|process| process.counts.calls > 0).cloned();
    found.ok_or_else(|| {
        let numbers: Vec<String> = processes.iter().map(|process| process.number.to_string()).collect();
        Hinted::error(
            format!("{}: no calls to replay", args.trace.display()),
            format!("it has the processes {}", numbers.join(", ")),
        )
    })
}
