// SPDX-License-Identifier: Apache-2.0
//! One program after the other: recorded, replayed, predicted, written down.

use std::fs::File;
use std::io::BufReader;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::message;
use imas_core::raw_runs::data::NotRun;
use imas_engine::compared::ComparedCandidate;
use imas_engine::context::Context;
use imas_linux::catalogue::SYSTEM;
use imas_linux::host::{self, now_unix_s};
use imas_linux::measure::RunOutcome;
use imas_replay::recording::{RecordedRun, Recording, RecordingLimits, cpu_share, representative};
use imas_replay::replayed::{ReplayedCandidate, ReplayedCandidates, replay};
use imas_replay::trace::file::Trace;
use imas_replay::trace::prediction::middle;
use imas_runs::executor::RunLimits;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::schedule;
use imas_study::predictions::{PredictionLine, Predictions};
use imas_suite::{Place, Suite, SuiteProgram};

use super::{SEED, write};
use crate::study_args::ReplayStudyArgs;
use crate::suite::once::{Once, RunMode};
use crate::suite::sessions::Limit;

/// Bytes of the raw files of a program: 128 million calls.
const TRACE_LIMIT: u64 = 1 << 30;
/// Time limit of a recorded run: this multiple of what the suite expects, and at least this duration.
const TIMEOUT_FACTOR: f64 = 20.0;
const SHORTEST_TIMEOUT_S: f64 = 60.0;

pub(super) struct Session<'a> {
    pub(super) args: &'a ReplayStudyArgs,
    pub(super) context: &'a Context,
    pub(super) suite: &'a Suite,
    pub(super) place: &'a Place,
    pub(super) candidates: Vec<ComparedCandidate<'a>>,
    /// Programs with their build ids.
    pub(super) programs: Vec<(&'a SuiteProgram, String)>,
    /// Predictions that earlier sessions made.
    pub(super) earlier: Predictions,
    pub(super) interruption: &'a Interruption,
}

/// The lines of a program, or why there are none.
type Lines = std::result::Result<Vec<PredictionLine>, String>;

impl Session<'_> {
    /// Every program that is not there yet. A signal is the error [`InterruptedBy`]; the lines of programs that
    /// were finished stay.
    pub(super) fn all(&self, journal: &mut Journal) -> Result<()> {
        let names: Vec<&str> = self.programs.iter().map(|(program, _)| program.name.as_str()).collect();
        // In random order: those that time allows are a sample of all.
        let order = schedule::subjects(&names, 0, SEED);
        let limit = Limit::start(self.args.limit);
        for (done, at) in order.into_iter().enumerate() {
            let (program, build_id) = &self.programs[at];
            let missing = self.missing(program);
            if missing.len() < 2 {
                continue;
            }
            if limit.is_over() {
                let left =
                    format!("not begun: {} of {}", names.len() - done, counted(names.len(), "program"));
                message::say(&limit.message(&left));
                return Ok(());
            }
            let began = Instant::now();
            let lines = self.predicted(program, build_id, &missing)?;
            self.keep(journal, program, lines, began.elapsed())?;
        }
        Ok(())
    }

    /// `system` and the candidates that have no line of that program.
    fn missing(&self, program: &SuiteProgram) -> Vec<ComparedCandidate<'_>> {
        let is_there = |name: &str| self.earlier.has(&program.name, name);
        let is_needed =
            |one: &&ComparedCandidate<'_>| one.candidate.is_system() || !is_there(&one.candidate.name);
        self.candidates.iter().filter(is_needed).cloned().collect()
    }

    fn keep(
        &self,
        journal: &mut Journal,
        program: &SuiteProgram,
        lines: Lines,
        took: Duration,
    ) -> Result<()> {
        let took_s = took.as_secs_f64();
        match lines {
            Err(why) => {
                message::say(&format!("imas: {}: left out: {why}", program.name));
                write(journal, &NotRun { left_out: program.name.clone(), why, at_s: now_unix_s() })
            }
            Ok(lines) => {
                let made = lines.len();
                lines.iter().try_for_each(|line| write(journal, line))?;
                message::say(&format!("imas: {}: {made} predictions in {took_s:.0} s", program.name));
                Ok(())
            }
        }
    }

    /// Predictions for one program. Its failure is no reason to lose the others.
    fn predicted(
        &self,
        program: &SuiteProgram,
        build_id: &str,
        candidates: &[ComparedCandidate<'_>],
    ) -> Result<Lines> {
        let lines = self.try_predict(program, build_id, candidates);
        if let Some(signal) = self.interruption.signal() {
            return Err(InterruptedBy(signal).into());
        }
        Ok(lines.unwrap_or_else(|error| Err(format!("{error:#}"))))
    }

    fn try_predict(
        &self,
        program: &SuiteProgram,
        build_id: &str,
        candidates: &[ComparedCandidate<'_>],
    ) -> Result<Lines> {
        self.place.prepare(self.suite, program)?;
        let folder = tempfile::Builder::new().prefix("imas-study-").tempdir()?;
        let file = folder.path().join("trace");
        let (header, outside) = {
            let limits = RecordingLimits { bytes: TRACE_LIMIT, duration: None };
            let recording = Recording::begin(folder.path(), limits)?;
            let run = match self.record(program, build_id, &recording)? {
                Ok(run) => run,
                Err(why) => return Ok(Err(why)),
            };
            let cpu_s = run.user_s + run.system_s;
            let recorded = RecordedRun { cpu_s, wall_s: run.wall_s, exit: run.exit };
            (recording.write(&file, recorded)?, run.resident)
        };
        let process = match representative(&header) {
            Ok(process) => process,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let facts =
            Facts { processes: header.processes.len() as u64, cpu_share: cpu_share(&process, &header) };
        let mut trace = Trace::open(BufReader::new(File::open(&file)?))?;
        let replays = self.args.replays;
        let mut replayed = replay(&mut trace, process, candidates, replays, self.context, self.interruption)?;
        replayed.outside = outside;
        let recorded = replayed.recorded();
        if recorded.cpu_s <= 0.0 || recorded.mean_bytes <= 0.0 || recorded.end_bytes <= 0.0 {
            return Ok(Err("the recorded run was too short".to_owned()));
        }
        Ok(Ok(self.lines(program, &replayed, facts)))
    }

    /// One run under `system` with the recorder. The inner error is the reason why it says nothing.
    fn record(
        &self,
        program: &SuiteProgram,
        build_id: &str,
        recording: &Recording,
    ) -> Result<std::result::Result<RunOutcome, String>> {
        let timeout = Duration::from_secs_f64((program.seconds * TIMEOUT_FACTOR).max(SHORTEST_TIMEOUT_S));
        let limits = RunLimits { timeout, still: None, most: None, prefault_bytes: 0 };
        let once = Once { context: self.context, place: self.place, program, build_id, limits };
        let recorder = recording.recorder(self.context)?;
        let run = once.run(self.context.candidate(SYSTEM)?, RunMode::Recorded(&recorder))?;
        if let Some(why) = run.record.why {
            let message = run.record.message.unwrap_or_default();
            return Ok(Err(format!("it failed while it was recorded: {why}: {message}")));
        }
        Ok(Ok(run.outcome))
    }

    fn lines(
        &self,
        program: &SuiteProgram,
        replayed: &ReplayedCandidates<'_>,
        facts: Facts,
    ) -> Vec<PredictionLine> {
        let common = common(program, replayed, facts);
        let is_new = |one: &&ReplayedCandidate<'_>| !self.earlier.has(&program.name, one.name());
        let new = replayed.candidates.iter().filter(is_new);
        new.map(|one| line(&common, replayed, one)).collect()
    }
}

/// Facts that the trace has beside its calls.
#[derive(Debug, Clone, Copy)]
struct Facts {
    processes: u64,
    /// The replayed process's part of the CPU time of the tree.
    cpu_share: f64,
}

/// The figures of the recorded run, which each line has.
fn common(program: &SuiteProgram, replayed: &ReplayedCandidates<'_>, facts: Facts) -> PredictionLine {
    let (recorded, counts) = (replayed.recorded(), replayed.process.counts);
    let system = replayed.replays_of(SYSTEM);
    let live = middle(system).map(|replay| replay.looks.iter().map(|look| look.live_bytes).max());
    PredictionLine {
        program: program.name.clone(),
        category: program.category.clone(),
        at_s: now_unix_s(),
        load1: host::load1(),
        calls: counts.calls,
        threads: counts.threads.into(),
        processes: facts.processes,
        process_share: facts.cpu_share,
        cpu_s: recorded.cpu_s,
        peak_bytes: recorded.peak_bytes,
        mean_bytes: recorded.mean_bytes,
        end_bytes: recorded.end_bytes,
        live_peak_bytes: live.flatten().unwrap_or(0),
        allocator_share: replayed.facts().allocator_share,
        ..PredictionLine::default()
    }
}

fn line(
    common: &PredictionLine,
    replayed: &ReplayedCandidates<'_>,
    one: &ReplayedCandidate<'_>,
) -> PredictionLine {
    let mut line = PredictionLine {
        candidate: one.name().to_owned(),
        version: imas_engine::candidates::version(one.candidate.candidate),
        failure: one.failure.clone(),
        replay_cpu_s: one.replays.iter().map(|replay| replay.cpu_s).collect(),
        ..common.clone()
    };
    if let Some(replay) = middle(&one.replays) {
        line.faults = replay.faults;
        line.refused = replay.refused;
        let share = |look: &imas_replay::trace::prediction::ReplayLook| {
            look.huge_bytes as f64 / look.bytes.max(1) as f64
        };
        line.huge_share = replay.looks.iter().map(share).fold(0.0, f64::max);
    }
    if let (None, Some(figures)) = (&one.failure, replayed.predicted(one)) {
        line.cpu_ratio = Some(figures.cpu_s / common.cpu_s);
        line.peak_ratio = Some(figures.peak_bytes / common.peak_bytes);
        line.mean_ratio = Some(figures.mean_bytes / common.mean_bytes);
        line.end_ratio = Some(figures.end_bytes / common.end_bytes);
    }
    line
}
