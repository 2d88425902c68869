// SPDX-License-Identifier: Apache-2.0
//! The rounds of a server in `imas bench`. Where their number is not fixed, the runs that `imas_core` wants next are made
//! until its course ends, and what is known so far is shown. Then what all rounds have: progress, warnings and the file of
//! raw runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use imas_cli::format::{counted, seconds};
use imas_cli::message;
use imas_core::SYSTEM;
use imas_core::run::RawRun;
use imas_core::server_bench::course::{CourseEnd, CourseOptions, NextRuns, runs_of_a_course};
use imas_core::server_bench::{ServiceComparison, ServiceOptions, compare_services};
use imas_core::server_run::Failure;
use imas_engine::prices;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::runtime::Runtime;
use imas_report::bench::RoundsEnd;
use imas_report::service::{leanest, so_far};
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_runs::runner::{NextStep, Observer, Runner, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};
use imas_runs::service::{ServiceError, ServiceExecutor};
use imas_runs::subject::Subject;
use indicatif::{ProgressBar, ProgressStyle};

use super::progress::{self, StopRule, Ticker};

/// A course of runs.
pub(super) struct Course<'a> {
    pub(super) names: &'a [String],
    pub(super) options: ServiceOptions,
    pub(super) course: CourseOptions,
    /// Runs under `system` before the first that counts.
    pub(super) warmup: u32,
    pub(super) seed: u64,
    /// Runtime of the server, by which candidates have their expectations.
    pub(super) runtime: Option<Runtime>,
    /// Plan and time go to standard error.
    pub(super) is_told: bool,
}

impl Course<'_> {
    /// Runs of a course as it usually is, and at most.
    pub(super) fn planned(&self) -> (usize, usize) {
        let (usual, most) = runs_of_a_course(self.names.len().saturating_sub(1), self.course.looks);
        (usual + self.warmup as usize, most + self.warmup as usize)
    }

    /// Makes the runs. Returns how the session ended, and how the course did if it was not cut short.
    pub(super) fn make(
        &self,
        runner: &mut Runner<'_>,
        executor: &mut dyn Executor,
        rounds: &mut BenchRounds<'_>,
    ) -> Result<(SessionEnd, Option<CourseEnd>)> {
        let of = |name: &str| self.names.iter().position(|one| one == name).unwrap_or(0);
        let warm = Step { subject: 0, candidate: of(SYSTEM), kind: RoundKind::Warmup };
        self.tell(|| self.plan());
        let mut ended = runner.run(std::iter::repeat_n(warm, self.warmup as usize), executor, rounds)?;
        while ended == SessionEnd::Finished {
            let comparison = compare_services(self.names, rounds.runs(), &self.options);
            let (round, names) = match NextRuns::after(rounds.runs(), &comparison, &self.course) {
                NextRuns::System => (0, vec![SYSTEM.to_owned()]),
                NextRuns::Candidates(names) => (0, self.by_expectation(names)),
                NextRuns::Round(round, names) => (round, [vec![SYSTEM.to_owned()], names].concat()),
                NextRuns::End(end) => return Ok((ended, Some(end))),
            };
            rounds.so_far = firmer(&comparison);
            let began = Instant::now();
            let order = match round {
                0 => (0..names.len()).collect(),
                _ => schedule::candidates("", names.len(), round, self.seed),
            };
            let kind = RoundKind::Measured { round };
            let steps = order.into_iter().map(|at| Step { subject: 0, candidate: of(&names[at]), kind });
            ended = runner.run(steps, executor, rounds)?;
            if rounds.runs().len() == 1 {
                self.tell(|| self.time(began.elapsed().as_secs_f64()));
            }
        }
        Ok((ended, None))
    }

    /// The candidates of the first round, the best expectation first: a bench that is cut short has compared these.
    fn by_expectation(&self, mut names: Vec<String>) -> Vec<String> {
        let rank = |name: &String| prices::rank(name, self.runtime);
        names.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        names
    }

    fn tell(&self, text: impl Fn() -> String) {
        if self.is_told {
            message::say(&text());
        }
    }

    /// Runs that will be made, before anything is known of the time.
    fn plan(&self) -> String {
        let others = counted(self.names.len().saturating_sub(1), "candidate");
        let (usual, most) = self.planned();
        format!(
            "imas: one run under system, which may be the answer; then one of each of {others}, and more of the best: \
             about {usual} runs, at most {most}; ^C prints the best answer so far"
        )
    }

    /// Time of the bench, after one run that took `run_s` seconds.
    fn time(&self, run_s: f64) -> String {
        let first = self.names.len();
        let (usual, most) = self.planned();
        let of = |runs: usize| seconds(run_s * runs.saturating_sub(1) as f64);
        format!(
            "imas: a run takes {}: {first} runs end in {}, {usual} in {}, {most} in {}",
            seconds(run_s),
            of(first),
            of(usual),
            of(most)
        )
    }
}

/// The best answer so far, in a few words.
fn firmer(comparison: &ServiceComparison) -> Option<String> {
    leanest(comparison).map(|one| so_far(comparison, one))
}

/// Runs one server under its candidates.
pub(super) struct OneServer<'a> {
    pub(super) executor: &'a ServiceExecutor,
    pub(super) candidates: &'a [&'a CatalogueCandidate],
    pub(super) interruption: &'a Interruption,
    /// Function that makes the command's error of a run that cannot be made.
    pub(super) hinted: fn(ServiceError) -> anyhow::Error,
}

impl Executor for OneServer<'_> {
    fn execute(&mut self, step: &Step, _limits: &RunLimits) -> Result<Execution> {
        let candidate = self.candidates[step.candidate];
        let round = step.kind.kept().map_or(0, |(_, round)| round);
        let run = self.executor.run(candidate, round, self.interruption).map_err(self.hinted)?;
        Ok(imas_runs::service::execution(run))
    }
}

/// Runs of the server, gathered as they are made.
pub(super) struct BenchRounds<'a> {
    candidates: &'a [&'a CatalogueCandidate],
    runs: Vec<RawRun>,
    bar: ProgressBar,
    _ticker: Option<Ticker>,
    raw: Option<Journal>,
    /// The best answer so far.
    pub(super) so_far: Option<String>,
    /// Ends the rounds when the time is up.
    pub(super) stop: StopRule,
    /// The round that was begun last.
    begun: u32,
    /// Failures that were reported, by kind.
    told: Vec<String>,
    /// Number of further failures of these kinds by candidate: one line at the end has them.
    untold: BTreeMap<String, u32>,
}

impl<'a> BenchRounds<'a> {
    /// `is_shown`: progress is; `raw`: the file of raw runs, if one was named.
    pub(super) fn new(
        candidates: &'a [&'a CatalogueCandidate],
        steps: usize,
        is_shown: bool,
        raw: Option<&Path>,
        stop: StopRule,
    ) -> Result<Self> {
        let bar = progress(steps, is_shown);
        let ticker = is_shown.then(|| progress::ticker(&bar)).flatten();
        let raw = raw.map(crate::measure::bench::export::journal).transpose()?;
        Ok(Self {
            candidates,
            runs: vec![],
            bar,
            _ticker: ticker,
            raw,
            so_far: None,
            stop,
            begun: 0,
            told: vec![],
            untold: BTreeMap::new(),
        })
    }

    /// Takes the bar away, and tells how often a failure was repeated.
    pub(super) fn finish(self) -> (Vec<RawRun>, Option<RoundsEnd>) {
        self.bar.finish_and_clear();
        let repeated: Vec<String> =
            self.untold.iter().map(|(candidate, times)| format!("{candidate}: {times}")).collect();
        if !repeated.is_empty() {
            message::warning(&format!("more runs that failed as told above: {}", repeated.join(", ")));
        }
        (self.runs, self.stop.ended)
    }

    fn warn(&mut self, run: &RawRun) {
        let Some(failure) = &run.of_server().failure else { return };
        let kind = kind(failure);
        if self.told.contains(&kind) {
            *self.untold.entry(run.candidate.clone()).or_default() += 1;
            return;
        }
        self.told.push(kind);
        self.bar.suspend(|| {
            message::warning(&format!("{}: round {}: {}", run.candidate, run.round + 1, failure.what));
            if failure.server.lines().count() > 1 {
                message::say(&indented(&failure.server));
            }
        });
    }

    /// The runs that were made.
    pub(super) fn runs(&self) -> &[RawRun] {
        &self.runs
    }

    /// Every run under `system` so far has failed. What fails untouched cannot be compared.
    fn fails_untouched(&self) -> bool {
        let mut system = self.runs.iter().filter(|run| run.candidate == imas_core::SYSTEM).peekable();
        system.peek().is_some() && system.all(|run| !run.ok)
    }
}

impl Observer for BenchRounds<'_> {
    fn before(&mut self, step: &Step, _subjects: &[Subject]) -> Result<NextStep> {
        let so_far = self.so_far.as_ref().map_or_else(String::new, |so_far| format!("; {so_far}"));
        self.bar.set_message(format!("{}{so_far}", self.candidates[step.candidate].name));
        if let Some((_, round)) = step.kind.kept().filter(|(_, round)| *round > self.begun) {
            self.begun = round;
        }
        if self.begun > 0 {
            self.stop.check_time();
        }
        self.bar.inc(1);
        // A course may be longer than it usually is.
        self.bar.set_length(self.bar.length().unwrap_or(0).max(self.bar.position()));
        Ok(if self.stop.ended.is_some() { NextStep::Stop } else { NextStep::Make })
    }

    fn skipped(&mut self, _step: &Step) {
        self.bar.inc(1);
    }

    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        let run = run.record;
        self.warn(&run);
        if step.kind.kept().is_none() {
            return Ok(NextStep::Make);
        }
        if let Some(raw) = &mut self.raw {
            raw.append(&run).with_context(|| raw.path().display().to_string())?;
        }
        self.runs.push(run);
        Ok(if self.fails_untouched() { NextStep::Stop } else { NextStep::Make })
    }
}

/// The bar: on a terminal only, on standard error.
fn progress(runs: usize, is_shown: bool) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
    progress::bar(runs, is_shown).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Failures of one kind differ in numbers at most: ports, process ids, times.
fn kind(failure: &Failure) -> String {
    let words = failure.what.chars().filter(|letter| !letter.is_ascii_digit());
    format!("{:?} {:?} {}", failure.stage, failure.signal, words.collect::<String>())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
