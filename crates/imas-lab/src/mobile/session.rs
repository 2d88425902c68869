// SPDX-License-Identifier: Apache-2.0
//! The order of all samples, and making them one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_linux::catalogue::Candidate;
use imas_linux::clock::now_unix_s;
use imas_linux::conditions;
use imas_linux::elf::Sizes;
use imas_study::{MobileKey, MobilePart, MobileRecord, MobileSample};
use imas_suite::Shell;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::parts::Parts;
use super::server::Files;
use super::use_case::UseCase;
use super::{SEED, inputs, start};
use crate::study_args::MobileArgs;
use imas_engine::context::Context;
use imas_report::message;

/// A benchmark takes a second or two; under an allocator that hangs it must end some time.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so many failures of a test in a row a candidate is not tried with it again.
const CHANCES: u32 = 2;

pub(super) struct Session<'a> {
    pub(super) args: &'a MobileArgs,
    pub(super) context: &'a Context,
    pub(super) candidates: Vec<&'a Candidate>,
    pub(super) parts: Parts,
    pub(super) record: MobileRecord,
    pub(super) done: BTreeSet<MobileKey>,
    pub(super) out: PathBuf,
    /// For what the programs write; nothing of it is kept.
    pub(super) work: PathBuf,
}

/// One sample to be made.
struct Step<'a> {
    part: MobilePart,
    test: String,
    candidate: &'a Candidate,
    round: u32,
}

impl Step<'_> {
    fn key(&self) -> MobileKey {
        (self.part, self.test.clone(), self.candidate.name.clone(), self.round)
    }
}

impl<'a> Session<'a> {
    pub(super) fn all(mut self) -> Result<()> {
        let mut steps = self.steps();
        steps.retain(|step| !self.done.contains(&step.key()));
        let apps = self.parts.use_case.take().unwrap_or_default();
        let inputs = if steps.iter().any(|step| step.part == MobilePart::UseCase) {
            Some(inputs::make(&self.out.join("inputs"), apps.video.as_deref())?)
        } else {
            None
        };
        let files = inputs.as_ref().map(|inputs| Files::serve(&inputs.folder)).transpose()?;
        let use_case =
            inputs.as_ref().zip(files.as_ref()).map(|(inputs, files)| UseCase { apps: &apps, inputs, files });
        let bar = ProgressBar::new(steps.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)") {
            bar.set_style(style);
        }
        let mut failures: BTreeMap<(String, String), u32> = BTreeMap::new();
        for step in &steps {
            bar.set_message(format!("{}, {}", step.test, step.candidate.name));
            let of = failures.entry((step.test.clone(), step.candidate.name.clone())).or_default();
            if *of < CHANCES {
                let sample = self.sample(step, use_case.as_ref());
                *of = if sample.failed.is_some() { *of + 1 } else { 0 };
                if let Some(why) = &sample.failed {
                    bar.suspend(|| {
                        message::warning(&format!("{}: {}: {why}", step.test, step.candidate.name))
                    });
                }
                self.record.append(&sample).map_err(crate::hint::hinted)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn steps(&self) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        let mut random = StdRng::seed_from_u64(SEED);
        if self.parts.size {
            self.round(&mut steps, (MobilePart::Size, "library"), 0, None);
        }
        let threads = conditions::cpus().max(1);
        // One thread, as many as there are CPUs, twice as many.
        let counts: BTreeSet<u32> = [1, threads, threads * 2].into();
        for round in 0..self.args.rounds {
            if self.parts.size {
                self.round(&mut steps, (MobilePart::Size, "minimal"), round, Some(&mut random));
            }
            if self.parts.benchmarks {
                let threads = counts.iter().map(|count| format!("threads-{count}"));
                for test in ["chunks".to_owned(), "timed".to_owned()].into_iter().chain(threads) {
                    self.round(&mut steps, (MobilePart::Benchmarks, &test), round, Some(&mut random));
                }
            }
        }
        if self.parts.use_case.is_some() {
            for round in 0..self.args.iterations {
                self.round(&mut steps, (MobilePart::UseCase, "use-case"), round, Some(&mut random));
            }
        }
        steps
    }

    /// Every candidate once, in an order of the round's own where there is a source of it.
    fn round(
        &self,
        steps: &mut Vec<Step<'a>>,
        (part, test): (MobilePart, &str),
        round: u32,
        random: Option<&mut StdRng>,
    ) {
        let mut order = self.candidates.clone();
        if let Some(random) = random {
            order.shuffle(random);
        }
        steps.extend(order.into_iter().map(|candidate| Step {
            part,
            test: test.to_owned(),
            candidate,
            round,
        }));
    }

    /// A run that fails is a sample that says so.
    fn sample(&self, step: &Step<'_>, use_case: Option<&UseCase<'_>>) -> MobileSample {
        let mut sample = MobileSample {
            part: step.part,
            test: step.test.clone(),
            candidate: step.candidate.name.clone(),
            round: step.round,
            at_s: now_unix_s(),
            load1: conditions::load1(),
            ..MobileSample::default()
        };
        let made = match (step.part, use_case) {
            (MobilePart::Size, _) if step.test == "library" => {
                library(step.candidate).map(|f| (f, BTreeMap::new()))
            }
            (MobilePart::UseCase, Some(use_case)) => start::variables(self.context, step.candidate)
                .and_then(|variables| use_case.iteration(step.candidate, &variables, &self.work))
                .map(|given| (given.figures, given.served)),
            _ => self.program(step).map(|figures| (figures, BTreeMap::new())),
        };
        match made {
            Ok((figures, served)) => (sample.figures, sample.served) = (figures, served),
            Err(error) => sample.failed = Some(format!("{error:#}")),
        }
        sample
    }

    /// Runs a C program of the study and reads its figures.
    fn program(&self, step: &Step<'_>) -> Result<BTreeMap<String, f64>> {
        let (name, more) = match step.test.strip_prefix("threads-") {
            Some(count) => ("threads", format!("-t {count} -s {}", step.round + 1)),
            None if step.test == "minimal" => ("minimal", String::new()),
            None => (step.test.as_str(), format!("-s {}", step.round + 1)),
        };
        let path = self.context.lib_dir.join("study").join(format!("mobile-{name}"));
        let variables = start::variables(self.context, step.candidate)?;
        let shell = Shell { folder: &self.work, variables: &variables };
        let quoted = shell_words::quote(&path.to_string_lossy()).into_owned();
        let said = shell.run(&format!("exec {quoted} {more}"), PATIENCE)?;
        anyhow::ensure!(said.ok, "mobile-{name}: {}: {}", said.how, said.last_line());
        let line = said.text.lines().find(|line| line.starts_with('{')).context("it printed no figures")?;
        Ok(serde_json::from_str(line)?)
    }
}

/// Nothing for a candidate without a library.
#[expect(clippy::cast_precision_loss, reason = "sizes of files are below 2^53")]
fn library(candidate: &Candidate) -> Result<BTreeMap<String, f64>> {
    let Some(library) = &candidate.library else { return Ok(BTreeMap::new()) };
    let sizes = Sizes::read(library)?;
    let figures = [("file", sizes.file), ("loaded", sizes.loaded), ("code", sizes.code)];
    Ok(figures.map(|(name, bytes)| (name.to_owned(), bytes as f64)).into())
}
