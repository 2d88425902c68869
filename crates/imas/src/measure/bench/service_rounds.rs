// SPDX-License-Identifier: Apache-2.0
//! The rounds of a server in `imas bench`: progress, warnings and the file of raw runs.

use std::path::Path;

use anyhow::{Context as _, Result};
use imas_linux::catalogue::CatalogueCandidate;
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_runs::schedule::Step;
use imas_service::{ServiceError, ServiceExecutor, ServiceRun, ServiceSession};
use indicatif::{ProgressBar, ProgressStyle};

use super::caller_folder::CallerFolder;
use super::progress;
use crate::measure::ticker::Ticker;
use imas_cli::message;

/// Of one server under its candidates.
pub(super) struct BenchRounds<'a> {
    pub(super) executor: &'a ServiceExecutor,
    pub(super) candidates: &'a [&'a CatalogueCandidate],
    pub(super) interruption: &'a Interruption,
    bar: ProgressBar,
    _ticker: Option<Ticker>,
    raw: Option<Journal>,
    /// Knows why a run failed that did not find its files. It says so once.
    pub(super) caller: Option<&'a CallerFolder>,
    /// What a run that cannot be made ends the command with.
    hinted: fn(ServiceError) -> anyhow::Error,
}

impl<'a> BenchRounds<'a> {
    /// `is_shown`: progress is; `raw`: the file of raw runs, if one was named.
    pub(super) fn new(
        executor: &'a ServiceExecutor,
        candidates: &'a [&'a CatalogueCandidate],
        rounds: u32,
        is_shown: bool,
        raw: Option<&Path>,
        interruption: &'a Interruption,
        hinted: fn(ServiceError) -> anyhow::Error,
    ) -> Result<Self> {
        let bar = progress(candidates.len() * rounds as usize, is_shown);
        let ticker = is_shown.then(|| progress::ticker(&bar)).flatten();
        let raw = raw.map(crate::measure::export::journal).transpose()?;
        Ok(Self { executor, candidates, interruption, bar, _ticker: ticker, raw, caller: None, hinted })
    }

    /// Takes the bar away.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }

    fn warn(&mut self, run: &ServiceRun) {
        let Some(failure) = &run.failure else { return };
        let text = format!("{}\n{}", failure.what, failure.server);
        let hint = self.caller.and_then(|caller| caller.hint(&text));
        self.caller = self.caller.filter(|_| hint.is_none());
        self.bar.suspend(|| {
            message::warning(&format!("{}: round {}: {}", run.candidate, run.round + 1, failure.what));
            if failure.server.lines().count() > 1 {
                message::say(&indented(&failure.server));
            }
            hint.iter().for_each(|hint| message::say(hint));
        });
    }
}

impl ServiceSession for BenchRounds<'_> {
    fn make(&mut self, step: &Step) -> Result<ServiceRun, ServiceError> {
        let candidate = self.candidates[step.candidate];
        let kept = step.kind.kept();
        if kept.is_some() {
            self.bar.inc(1);
        }
        let round = kept.map_or(0, |(_, round)| round);
        self.bar.set_message(candidate.name.clone());
        let run = self.executor.run(candidate, round, self.interruption)?;
        if self.interruption.signal().is_none() {
            self.warn(&run);
        }
        Ok(run)
    }

    fn skipped(&mut self, _step: &Step) {
        self.bar.inc(1);
    }

    fn after(&mut self, _step: &Step, run: &ServiceRun) -> Result<()> {
        let Some(raw) = &mut self.raw else { return Ok(()) };
        raw.append(run).with_context(|| raw.path().display().to_string())
    }

    fn not_prepared(&mut self, _service: usize, error: ServiceError) -> Result<()> {
        Err((self.hinted)(error))
    }

    fn not_made(&mut self, _step: &Step, error: ServiceError) -> Result<()> {
        Err((self.hinted)(error))
    }
}

/// The bar: on a terminal only, on standard error.
fn progress(runs: usize, is_shown: bool) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
    progress::bar(runs, is_shown).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
