// SPDX-License-Identifier: Apache-2.0
//! The order of all samples, and making them one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_core::run::RawRun;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::Sizes;
use imas_linux::host;
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, NextStep, Observer, Rules, Runner, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};
use imas_runs::subject::{Subject, Timeout};
use imas_study::{MobileKey, MobilePart};
use imas_suite::Shell;
use indicatif::{ProgressBar, ProgressStyle};

use super::parts::Parts;
use super::server::Files;
use super::use_case::UseCase;
use super::{SEED, inputs, start};
use crate::study_args::StudyArgs;
use imas_cli::message;
use imas_engine::context::Context;

/// A benchmark takes a second or two; under an allocator that hangs it must end some time.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of failures of a test in a row after which a candidate is not tried with it again.
const CHANCES: usize = 2;

/// Rounds of sizes and benchmarks.
const ROUNDS: u32 = 10;

pub(super) struct Session<'a> {
    pub(super) args: &'a StudyArgs,
    pub(super) context: &'a Context,
    pub(super) candidates: Vec<&'a CatalogueCandidate>,
    pub(super) parts: Parts,
    pub(super) done: BTreeSet<MobileKey>,
    pub(super) out: PathBuf,
    /// Folder for what the programs write; nothing of it is kept.
    pub(super) work: PathBuf,
}

/// A test of the study.
struct MobileTest {
    part: MobilePart,
    name: String,
}

impl MobileTest {
    fn new(part: MobilePart, name: impl Into<String>) -> Self {
        Self { part, name: name.into() }
    }
}

impl Session<'_> {
    pub(super) fn all(mut self, journal: Journal, interruption: &Interruption) -> Result<()> {
        let tests = self.tests();
        let steps = self.steps(&tests);
        let apps = self.parts.use_case.take().unwrap_or_default();
        let inputs = if steps.iter().any(|step| tests[step.subject].part == MobilePart::UseCase) {
            Some(inputs::make(&self.out.join("inputs"), apps.video.as_deref())?)
        } else {
            None
        };
        let files = inputs.as_ref().map(|inputs| Files::serve(&inputs.folder)).transpose()?;
        let use_case =
            inputs.as_ref().zip(files.as_ref()).map(|(inputs, files)| UseCase { apps: &apps, inputs, files });
        let names: Vec<String> = self.candidates.iter().map(|candidate| candidate.name.clone()).collect();
        let subjects = tests.iter().map(|test| Subject::new(&test.name, Timeout::After(COMMAND_TIMEOUT)));
        let rules = Rules { elimination: Elimination::FailuresInARow(CHANCES), warmup_must_succeed: false };
        let mut runner = Runner::new(names.clone(), subjects.collect(), rules, interruption);
        runner.journal = Some(journal);
        let mut shown = Shown::start(steps.len(), &tests, names);
        let mut executor = TestExecutor { session: &self, tests: &tests, use_case };
        let ended = runner.run(steps, &mut executor, &mut shown);
        shown.bar.finish_and_clear();
        match ended? {
            SessionEnd::Interrupted(signal) => Err(InterruptedBy(signal).into()),
            SessionEnd::Finished | SessionEnd::Stopped => Ok(()),
        }
    }

    fn tests(&self) -> Vec<MobileTest> {
        let mut tests = Vec::new();
        if self.parts.size {
            tests.extend(["library", "minimal"].map(|name| MobileTest::new(MobilePart::Size, name)));
        }
        if self.parts.benchmarks {
            let cpus = host::cpus().max(1);
            // One thread, as many as there are CPUs, twice as many.
            let counts: BTreeSet<u32> = [1, cpus, cpus * 2].into();
            let threads = counts.iter().map(|count| format!("threads-{count}"));
            let names = ["chunks".to_owned(), "timed".to_owned()].into_iter().chain(threads);
            tests.extend(names.map(|name| MobileTest::new(MobilePart::Benchmarks, name)));
        }
        if self.parts.use_case.is_some() {
            tests.push(MobileTest::new(MobilePart::UseCase, "use-case"));
        }
        tests
    }

    /// The samples that are not there yet, round by round: in each every candidate once.
    fn steps(&self, tests: &[MobileTest]) -> Vec<Step> {
        let mut steps = Vec::new();
        for round in 0..self.rounds().max(self.args.mobile.iterations) {
            for (subject, test) in tests.iter().enumerate() {
                let order = schedule::candidates(&test.name, self.candidates.len(), round, SEED);
                let is_left = |at: &usize| {
                    let key = (test.part, test.name.clone(), self.candidates[*at].name.clone(), round);
                    round < self.rounds_of(test) && !self.done.contains(&key)
                };
                let step = |candidate| Step { subject, candidate, kind: RoundKind::Measured { round } };
                steps.extend(order.into_iter().filter(is_left).map(step));
            }
        }
        // The use case last: it takes the longest.
        steps.sort_by_key(|step| tests[step.subject].part == MobilePart::UseCase);
        steps
    }

    fn rounds(&self) -> u32 {
        self.args.run.rounds.unwrap_or(ROUNDS)
    }

    fn rounds_of(&self, test: &MobileTest) -> u32 {
        match test.part {
            MobilePart::Size if test.name == "library" => 1, // a file has the same size each time
            MobilePart::Size | MobilePart::Benchmarks => self.rounds(),
            MobilePart::UseCase => self.args.mobile.iterations,
        }
    }

    /// Runs a C program of the study and reads its figures.
    fn program(
        &self,
        test: &MobileTest,
        candidate: &CatalogueCandidate,
        round: u32,
        timeout: Duration,
    ) -> Result<BTreeMap<String, f64>> {
        let seed = round + 1;
        let (name, more) = match test.name.strip_prefix("threads-") {
            Some(count) => ("threads", format!("-t {count} -s {seed}")),
            None if test.name == "minimal" => ("minimal", String::new()),
            None => (test.name.as_str(), format!("-s {seed}")),
        };
        let path = self.context.lib_dir.join("study").join(format!("mobile-{name}"));
        let variables = start::variables(self.context, candidate)?;
        let shell = Shell { folder: &self.work, variables: &variables };
        let quoted = shell_words::quote(&path.to_string_lossy()).into_owned();
        let output = shell.run(&format!("exec {quoted} {more}"), timeout)?;
        anyhow::ensure!(output.ok, "mobile-{name}: {}: {}", output.how, output.last_line());
        let line = output.text.lines().find(|line| line.starts_with('{')).context("it printed no figures")?;
        Ok(serde_json::from_str(line)?)
    }
}

/// Makes the samples of the study.
struct TestExecutor<'a, 'b> {
    session: &'a Session<'b>,
    tests: &'a [MobileTest],
    use_case: Option<UseCase<'a>>,
}

type Figures = BTreeMap<String, f64>;
type Served = BTreeMap<String, String>;

impl TestExecutor<'_, '_> {
    fn figures(&self, step: &Step, round: u32, limits: &RunLimits) -> Result<(Figures, Served)> {
        let (test, candidate) = (&self.tests[step.subject], self.session.candidates[step.candidate]);
        match (test.part, &self.use_case) {
            (MobilePart::Size, _) if test.name == "library" => Ok((library(candidate)?, Served::new())),
            (MobilePart::UseCase, Some(use_case)) => {
                let variables = start::variables(self.session.context, candidate)?;
                let facts = use_case.iteration(candidate, &variables, &self.session.work)?;
                Ok((facts.figures, facts.served))
            }
            _ => Ok((self.session.program(test, candidate, round, limits.timeout)?, Served::new())),
        }
    }
}

impl Executor for TestExecutor<'_, '_> {
    /// The sample of a failed run has the reason.
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        let round = step.kind.kept().map_or(0, |(_, round)| round);
        let record = RawRun {
            part: Some(self.tests[step.subject].part.name().to_owned()),
            load1: host::load1(),
            ..RawRun::default()
        };
        let record = match self.figures(step, round, limits) {
            Ok((figures, served)) => RawRun { ok: true, figures, served, ..record },
            Err(error) => {
                RawRun { why: Some("failed".to_owned()), message: Some(format!("{error:#}")), ..record }
            }
        };
        Ok(Execution { record, ..Execution::default() })
    }
}

/// Progress of the study on a terminal, and what failed.
struct Shown<'a> {
    bar: ProgressBar,
    tests: &'a [MobileTest],
    candidates: Vec<String>,
}

impl<'a> Shown<'a> {
    fn start(steps: usize, tests: &'a [MobileTest], candidates: Vec<String>) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)") {
            bar.set_style(style);
        }
        Self { bar, tests, candidates }
    }

    fn name(&self, step: &Step) -> (&str, &str) {
        (&self.tests[step.subject].name, &self.candidates[step.candidate])
    }
}

impl Observer for Shown<'_> {
    fn before(&mut self, step: &Step, _subjects: &[Subject]) -> Result<NextStep> {
        let (test, candidate) = self.name(step);
        self.bar.set_message(format!("{test}, {candidate}"));
        Ok(NextStep::Make)
    }

    fn skipped(&mut self, _step: &Step) {
        self.bar.inc(1);
    }

    fn made(&mut self, _step: &Step, _took: Duration) {
        self.bar.inc(1);
    }

    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        if let Some(why) = &run.record.message {
            let (test, candidate) = self.name(step);
            self.bar.suspend(|| message::warning(&format!("{test}: {candidate}: {why}")));
        }
        Ok(NextStep::Make)
    }
}

/// Sizes of a candidate's library, bytes; none for a candidate without a library.
#[expect(clippy::cast_precision_loss, reason = "sizes of files are below 2^53")]
fn library(candidate: &CatalogueCandidate) -> Result<BTreeMap<String, f64>> {
    let Some(library) = &candidate.library else { return Ok(BTreeMap::new()) };
    let sizes = Sizes::read(library)?;
    let figures = [("file", sizes.file), ("loaded", sizes.loaded), ("code", sizes.code)];
    Ok(figures.map(|(name, bytes)| (name.to_owned(), bytes as f64)).into())
}
