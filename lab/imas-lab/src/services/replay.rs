// SPDX-License-Identifier: Apache-2.0
//! Predictions for services: each is recorded once under `system`, under its whole load, and its processes are
//! replayed under every candidate.

use std::fs::{File, Permissions};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, ValueHint};
use imas_cli::message;
use imas_core::run::RawRun;
use imas_core::server_run::work::phase_spans;
use imas_engine::compared::{ComparedCandidate, DefaultComparison, compared};
use imas_engine::context::Context;
use imas_linux::catalogue::SYSTEM;
use imas_linux::environment::Variables;
use imas_linux::host::now_unix_s;
use imas_replay::recording::{RecordedRun, Recording, RecordingLimits};
use imas_replay::trace::file::{Trace, TraceHeader};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::service::{Service, ServiceExecutor};
use imas_study::services::ServicePrediction;

use super::recipes::{self, RecipeArgs};
use super::several::{ChosenProcesses, ReplayedProcesses, chosen, replay_all};

/// Bytes of the raw files of a service: 512 million calls.
const TRACE_LIMIT: u64 = 4 << 30;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    recipes: RecipeArgs,
    /// The file of predictions; services that are in it are not replayed again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Candidates beside system [default: the default set of services]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    with: Vec<String>,
    /// Replays of each candidate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    replays: u32,
    /// Cycles of load in place of those of the files
    #[arg(long, value_name = "N")]
    cycles: Option<u32>,
}

/// Makes the predictions that are missing.
pub(super) fn replay(args: &ReplayArgs, context: &Context) -> Result<ExitCode> {
    let mut services = recipes::recipes(&args.recipes, context)?;
    recipes::retain_installed(&mut services);
    let candidates = compared(&args.with, DefaultComparison::ServiceSet, context, None)?;
    let mut journal = Journal::open(&args.out).with_context(|| args.out.display().to_string())?;
    let earlier = read(&args.out)?;
    services.retain(|service| !earlier.iter().any(|line| line.service == service.name));
    let interruption = Interruption::watch()?;
    let session = Session { context, candidates, replays: args.replays, interruption: &interruption };
    for service in &mut services {
        service.cycles = args.cycles.unwrap_or(service.cycles);
        let lines = session.predictions(service);
        if let Some(signal) = interruption.signal() {
            message::say(&format!("imas: {}", InterruptedBy(signal)));
            return Ok(ExitCode::from(InterruptedBy(signal).exit_status()));
        }
        for line in lines {
            super::journal::append(&mut journal, &line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The predictions of a file; lines that are cut off or of another kind are left out.
pub(super) fn read(path: &Path) -> Result<Vec<ServicePrediction>> {
    let text = imas_runs::journal::read_text(path).with_context(|| path.display().to_string())?;
    let line = |line: &str| serde_json::from_str::<ServicePrediction>(line).ok();
    Ok(text.lines().filter_map(line).filter(|line| !line.service.is_empty()).collect())
}

struct Session<'a> {
    context: &'a Context,
    candidates: Vec<ComparedCandidate<'a>>,
    replays: u32,
    interruption: &'a Interruption,
}

/// A service that was recorded.
struct RecordedService {
    run: RawRun,
    header: TraceHeader,
    /// Holds the file of the trace.
    _folder: tempfile::TempDir,
    trace: PathBuf,
}

impl Session<'_> {
    /// A line for each candidate. A service that cannot be predicted has one line, with the reason.
    fn predictions(&self, service: &Service) -> Vec<ServicePrediction> {
        let began = Instant::now();
        let common = ServicePrediction { service: service.name.clone(), ..ServicePrediction::default() };
        let lines = self.try_predict(service, &common).unwrap_or_else(|error| {
            let failure = Some(format!("{error:#}"));
            vec![ServicePrediction { candidate: SYSTEM.to_owned(), failure, ..common }]
        });
        let (at_s, took_s) = (now_unix_s(), began.elapsed().as_secs_f64());
        let how = lines.iter().find_map(|line| line.failure.clone()).unwrap_or_default();
        message::say(&format!("imas: {}: {} lines in {took_s:.0} s {how}", service.name, lines.len()));
        lines.into_iter().map(|line| ServicePrediction { at_s, took_s, ..line }).collect()
    }

    fn try_predict(&self, service: &Service, common: &ServicePrediction) -> Result<Vec<ServicePrediction>> {
        let recorded = self.record(service)?;
        let chosen = chosen(&recorded.header)?;
        let mut trace = Trace::open(BufReader::new(File::open(&recorded.trace)?))?;
        let replayed =
            replay_all(&mut trace, &chosen, &self.candidates, self.replays, self.context, self.interruption)?;
        let common = with_facts(common.clone(), &recorded, &chosen);
        let names = self.candidates.iter().map(|one| one.candidate.name.as_str());
        Ok(names.map(|name| line(&common, name, &recorded.run, &replayed)).collect())
    }

    fn record(&self, service: &Service) -> Result<RecordedService> {
        let folder = tempfile::Builder::new().prefix("imas-services-").tempdir()?;
        let trace = folder.path().join("trace");
        let recording =
            Recording::begin(folder.path(), RecordingLimits { bytes: TRACE_LIMIT, duration: None })?;
        // A server that gives up root's rights must reach the recording in it.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        let inherited = Variables::inherited();
        let executor = ServiceExecutor::new(service.clone(), self.context.libraries.clone(), inherited)?;
        let recorder = recording.recorder(self.context)?;
        let run = executor.run_recorded(self.context.candidate(SYSTEM)?, &recorder, self.interruption)?;
        if let Some(failure) = &run.message {
            return Err(anyhow!("it failed while it was recorded: {failure}"));
        }
        let cpu_s = run.cpu_s();
        let header = recording.write(&trace, RecordedRun { cpu_s, wall_s: run.wall_s, exit: 0 })?;
        Ok(RecordedService { run, header, _folder: folder, trace })
    }
}

fn with_facts(
    common: ServicePrediction,
    recorded: &RecordedService,
    chosen: &ChosenProcesses,
) -> ServicePrediction {
    ServicePrediction {
        recorded_bytes: recorded.run.value("memory").unwrap_or(0.0),
        recorded_cpu_s: recorded.run.cpu_s(),
        processes: recorded.header.processes.len() as u64,
        replayed: chosen.processes.len() as u64,
        share: chosen.share,
        calls: chosen.processes.iter().map(|process| process.counts.calls).sum(),
        ..common
    }
}

fn line(
    common: &ServicePrediction,
    candidate: &str,
    run: &RawRun,
    replayed: &ReplayedProcesses<'_>,
) -> ServicePrediction {
    let mut line = ServicePrediction { candidate: candidate.to_owned(), ..common.clone() };
    match replayed.change(candidate, &phase_spans(run.of_server())) {
        Ok(change) => {
            line.memory_bytes = Some((line.recorded_bytes + change.mean_bytes).max(0.0));
            line.cpu_s = Some((line.recorded_cpu_s + change.cpu_s).max(0.0));
        }
        Err(failure) => line.failure = Some(failure),
    }
    line
}
