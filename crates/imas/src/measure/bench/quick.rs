// SPDX-License-Identifier: Apache-2.0
//! `--quick`: one recorded run and its replays choose the candidates that are measured live.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow};
use imas_core::bench::{PredictedRatios, QuickGoal, promising};
use imas_core::reliability::ReliabilityTable;
use imas_core::stats::Interval;
use imas_engine::compared::ComparedCandidate;
use imas_engine::replay_knowledge::shipped;
use imas_linux::measure::RunOutcome;
use imas_replay::process::{NoProcess, cpu_share, representative};
use imas_replay::range::{PredictedRange, Prediction};
use imas_replay::recording::{RecordedRun, Recording, RecordingLimits};
use imas_replay::replayed::{ReplayedCandidates, replay};
use imas_replay::trace::file::Trace;
use imas_replay::trace::prediction::Figures;
use imas_report::bench::{PredictedCandidate, QuickReport, RecordedReport, fallback_text};
use imas_runs::executor::Execution;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::runner::{NextStep, Observer, SessionEnd};
use imas_runs::schedule::{self, Step};
use indicatif::ProgressBar;

use super::progress::FirstRun;
use super::session::{CommandSession, QuickPlan, SessionOutcome, Warm};
use crate::command_line::bench_args::{BenchArgs, QuickObjective};
use imas_cli::message::{self, Hinted};

/// Candidates that are measured beside `system`.
const MEASURED: usize = 2;
/// Replays of each candidate. Memory is the same in each; of CPU time the least counts.
const REPLAYS: u32 = 2;

/// Options that do not go with `--quick`.
pub(super) fn refuse(args: &BenchArgs) -> Result<()> {
    if args.quick.quick && args.server.is_given() {
        return Err(Hinted::error(
            "--quick is for a command, and this is a server",
            "leave --quick out: a server is measured under every candidate (docs/services.md)",
        ));
    }
    if args.quick.quick && args.baseline.baseline.is_some() {
        return Err(Hinted::error(
            "--baseline compares every candidate, and --quick measures two",
            "leave --quick out, or name the candidates with --with",
        ));
    }
    if args.quick.quick && QuickObjective::of(args.server.objective).is_none() {
        return Err(Hinted::error(
            "--objective latency is for a server",
            "with --quick it is cpu, memory, or balanced",
        ));
    }
    Ok(())
}

/// Why nothing is predicted.
pub(crate) struct NoPrediction(pub(crate) String);

/// A prediction or, as no error, why there is none.
type Predicted<T> = Result<Result<T, NoPrediction>>;

impl CommandSession<'_> {
    /// Predicts, and measures what looks best; everything where nothing can be predicted.
    pub(super) fn measure_quickly(
        &self,
        compared: &[ComparedCandidate<'_>],
        interruption: &Interruption,
    ) -> Result<SessionOutcome> {
        let began = Instant::now();
        let predicted = match self.predict(compared, interruption) {
            Ok(predicted) => predicted,
            Err(error) => match error.downcast_ref::<InterruptedBy>() {
                Some(by) => return Ok(SessionOutcome::Stopped(ExitCode::from(by.exit_status()))),
                None => Err(NoPrediction(format!("{error:#}"))),
            },
        };
        let objective = QuickObjective::of(self.args.server.objective).unwrap_or_default();
        let quick = QuickReport { objective: objective.name().to_owned(), ..QuickReport::default() };
        let took_s = began.elapsed().as_secs_f64();
        match predicted {
            Err(NoPrediction(why)) => {
                message::say(&format!("imas: note: {}", fallback_text(&why)));
                let outcome = self.measure(compared, None, interruption)?;
                Ok(outcome.with_quick(QuickReport { fallback: Some(why), took_s, ..quick }))
            }
            Ok((warm, recorded, predicted)) => {
                let predicted = chosen(predicted, objective.cpu_weight());
                let is_measured =
                    |name: &str| predicted.iter().any(|one| one.name == name && one.is_measured);
                let measured = |one: &&ComparedCandidate<'_>| {
                    one.candidate.is_system() || is_measured(&one.candidate.name)
                };
                let few: Vec<ComparedCandidate<'_>> = compared.iter().filter(measured).cloned().collect();
                let of_all = predicted.iter().filter_map(|one| Some((one.name.as_str(), one.ratio?)));
                let goal = QuickGoal::new(objective.cpu_weight(), of_all);
                let outcome = self.measure(&few, Some(QuickPlan { warm, goal }), interruption)?;
                Ok(outcome.with_quick(QuickReport { recorded: Some(recorded), predicted, took_s, ..quick }))
            }
        }
    }

    /// Records a run and replays it.
    fn predict(
        &self,
        compared: &[ComparedCandidate<'_>],
        interruption: &Interruption,
    ) -> Predicted<(Warm, RecordedReport, Vec<PredictedCandidate>)> {
        let usable = compared.iter().filter(|one| one.obstacle.is_none() && !one.candidate.is_system());
        if usable.count() <= MEASURED {
            let why = format!("there are no more than {MEASURED} candidates to choose from");
            return Ok(Err(NoPrediction(why)));
        }
        let limits = RecordingLimits { bytes: self.args.quick.trace_limit, duration: None };
        let folder = tempfile::Builder::new().prefix("imas-quick-").tempdir()?;
        let recording = Recording::begin(folder.path(), limits)?;
        let (warm, run) = self.record(compared, &recording, interruption)?;
        if let Some(why) = self.objection(&run) {
            return Ok(Err(NoPrediction(why)));
        }
        let cpu_s = run.user_s + run.system_s;
        let file = folder.path().join("trace");
        let header = recording.write(&file, RecordedRun { cpu_s, wall_s: run.wall_s, exit: run.exit })?;
        drop(recording);
        let process = match representative(&header) {
            Ok(process) => process,
            Err(why) => return Ok(Err(NoPrediction(advised(why)))),
        };
        let recorded = RecordedReport {
            calls: process.counts.calls,
            processes: header.processes.len(),
            cpu_share: cpu_share(&process, &header),
        };
        let mut trace = Trace::open(BufReader::new(File::open(&file)?))?;
        let mut answer = replay(&mut trace, process, compared, REPLAYS, self.context, interruption)?;
        answer.outside = run.resident;
        Ok(ratios_of_all(&answer, &shipped()).map(|predicted| (warm, recorded, predicted)))
    }

    /// One run under `system` with the recorder, made as a warm-up is.
    fn record(
        &self,
        compared: &[ComparedCandidate<'_>],
        recording: &Recording,
        interruption: &Interruption,
    ) -> Result<(Warm, RunOutcome)> {
        let system: Vec<_> = compared.iter().filter(|one| one.candidate.is_system()).cloned().collect();
        let mut executor = self.executor(&system);
        executor.recorder = Some(recording.recorder(self.context)?);
        let mut runner = self.runner(&system, self.subject(), interruption);
        let steps = schedule::steps(&[0], 0, 0, 1, self.args.seed);
        let _hint = FirstRun::begins(&ProgressBar::hidden());
        let mut seen = LastRun::default();
        let ended = runner.run(steps, &mut self.around(&mut executor), &mut seen)?;
        if let SessionEnd::Interrupted(signal) = ended {
            return Err(InterruptedBy(signal).into());
        }
        let subject = runner.subjects.pop().ok_or_else(|| anyhow!("the recorded run was not made"))?;
        let outcome = seen.outcome.ok_or_else(|| anyhow!("the recorded run was not made"))?;
        Ok((Warm { subject, cpu: executor.kept_on() }, outcome))
    }

    /// Why the recorded run says nothing of the others.
    fn objection(&self, run: &RunOutcome) -> Option<String> {
        if run.timed_out {
            return Some("the program did not end in time while it was recorded".to_owned());
        }
        if let Some(signal) = run.signal {
            return Some(format!("the program was ended by signal {signal} while it was recorded"));
        }
        let failed = run.exit != 0 && !self.args.ignore_failure;
        failed.then(|| format!("the program ended with {} while it was recorded", run.exit))
    }
}

/// Keeps how the last run ended.
#[derive(Default)]
struct LastRun {
    outcome: Option<RunOutcome>,
}

impl Observer for LastRun {
    fn after(&mut self, _step: &Step, run: Execution) -> Result<NextStep> {
        self.outcome = Some(run.outcome);
        Ok(NextStep::Make)
    }
}

/// The reason, with the option that helps.
fn advised(why: NoProcess) -> String {
    match why {
        NoProcess::Limit => format!("{why}; --trace-limit raises it"),
        why => why.to_string(),
    }
}

/// Ratios of each candidate to `system`, or why there are none at all.
pub(crate) fn ratios_of_all(
    answer: &ReplayedCandidates<'_>,
    reliability: &ReliabilityTable,
) -> Result<Vec<PredictedCandidate>, NoPrediction> {
    let recorded = answer.recorded();
    if recorded.cpu_s <= 0.0 || recorded.mean_bytes <= 0.0 {
        return Err(NoPrediction("the recorded run was too short".to_owned()));
    }
    let all = answer.predictions(reliability);
    let others = all.into_iter().filter(|(one, _)| !one.candidate.candidate.is_system());
    let predicted: Vec<PredictedCandidate> = others
        .map(|(one, prediction)| PredictedCandidate {
            name: one.name().to_owned(),
            ratio: prediction.map(|prediction| ratios(&prediction, &recorded)),
            failure: one.failure.clone(),
            is_measured: false,
        })
        .collect();
    if predicted.iter().all(|one| one.ratio.is_none()) {
        return Err(NoPrediction("no replay succeeded".to_owned()));
    }
    Ok(predicted)
}

fn ratios(prediction: &Prediction, recorded: &Figures) -> PredictedRatios {
    let of = |range: &PredictedRange, whole: f64| Interval {
        lo: range.low / whole,
        mid: range.value / whole,
        hi: range.high / whole,
    };
    PredictedRatios {
        cpu: of(&prediction.cpu_s, recorded.cpu_s),
        memory: of(&prediction.mean_bytes, recorded.mean_bytes),
        peak: of(&prediction.peak_bytes, recorded.peak_bytes),
    }
}

/// Marks the candidates that are measured.
fn chosen(mut predicted: Vec<PredictedCandidate>, cpu_weight: f64) -> Vec<PredictedCandidate> {
    let with_ratios: Vec<(usize, PredictedRatios)> =
        predicted.iter().enumerate().filter_map(|(at, one)| Some((at, one.ratio?))).collect();
    let ratios: Vec<PredictedRatios> = with_ratios.iter().map(|(_, ratios)| *ratios).collect();
    for at in promising(&ratios, cpu_weight, MEASURED) {
        predicted[with_ratios[at].0].is_measured = true;
    }
    predicted
}
