// SPDX-License-Identifier: Apache-2.0
//! A command as an executor: measured as in production, or with every call counted.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Injection, Libraries, Mode, Reach, Variables};
use imas_linux::measure::{RunOutcome, RunRequest};
use imas_linux::pace::steady_cpu;
use imas_linux::program::Command;
use imas_linux::runtime_start::with_arguments;

use crate::counted::{CountedRun, Folder};
use crate::executor::{Execution, Executor, RunLimits, record};
use crate::schedule::{RoundKind, Step};

/// When runs are kept on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneCpuRule {
    /// When the last warm-up used one CPU at a time.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Library and file that record warm-ups.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// The library that records.
    pub library: PathBuf,
    /// The file from which it reads the target and the amount.
    pub control: PathBuf,
}

impl Recorder {
    /// The environment of a program that is recorded: the recorder takes the hook's place, and its control
    /// file the place of the page.
    ///
    /// # Errors
    /// When a path cannot be preloaded.
    pub fn variables(
        &self,
        candidate: &CatalogueCandidate,
        inherited: &Variables,
        libraries: &Libraries,
    ) -> Result<Variables> {
        let libraries = Libraries { hook: self.library.clone(), ..libraries.clone() };
        let page = Some(self.control.as_path());
        let injection = Injection { candidate, mode: Mode::Trial, reach: Reach::Tree, page };
        Ok(injection.variables(inherited, &libraries)?)
    }
}

/// Runs one command under candidates.
#[derive(Debug)]
pub struct CommandExecutor<'a> {
    /// Command that is run.
    pub command: &'a Command,
    /// Build-id of the program; empty when it has none.
    pub build_id: &'a str,
    /// The candidates, by the index that steps have.
    pub candidates: Vec<&'a CatalogueCandidate>,
    /// Libraries that are preloaded beside a candidate.
    pub libraries: &'a Libraries,
    /// Whom the candidate serves where nothing is counted.
    pub reach: Reach,
    /// Standard input; /dev/null when there is none.
    pub input: Option<PathBuf>,
    /// Pass on what the command prints.
    pub show_output: bool,
    /// When runs are kept on one CPU.
    pub one_cpu: OneCpuRule,
    /// The CPU that runs are kept on, once it is known whether they are.
    cpu: Cell<Option<usize>>,
}

impl<'a> CommandExecutor<'a> {
    /// Runs the command under these candidates, without input.
    #[must_use]
    pub fn new(
        command: &'a Command,
        build_id: &'a str,
        candidates: Vec<&'a CatalogueCandidate>,
        libraries: &'a Libraries,
    ) -> Self {
        Self {
            command,
            build_id,
            candidates,
            libraries,
            reach: Reach::Children,
            input: None,
            show_output: false,
            one_cpu: OneCpuRule::Never,
            cpu: Cell::new(None),
        }
    }

    /// The CPU that every run was kept on; None when all could be used.
    #[must_use]
    pub fn kept_on(&self) -> Option<usize> {
        self.cpu.get()
    }

    fn counted(&self, candidate: &CatalogueCandidate, limits: &RunLimits) -> Result<Execution> {
        let folder = Folder::new()?;
        let first = folder.first_page(self.command, candidate, self.build_id)?;
        let variables = self.variables(candidate, Mode::Trial, Some(&first))?;
        let outcome = self.once(candidate, &variables, limits)?;
        let mut notes = Vec::new();
        let counted = folder.counted().inspect_err(|error| {
            notes.push(format!("{}: its counted run gave no figures: {error:#}", candidate.name));
        });
        Ok(Execution { notes, ..self.execution(outcome, counted.ok()) })
    }

    fn execution(&self, outcome: RunOutcome, counted: Option<CountedRun>) -> Execution {
        let mut record = record(&outcome, counted.as_ref());
        record.cpu = self.cpu.get();
        Execution { record, outcome, counted, ..Execution::default() }
    }

    fn variables(
        &self,
        candidate: &CatalogueCandidate,
        mode: Mode,
        page: Option<&Path>,
    ) -> Result<Variables> {
        let reach = if mode == Mode::Trial { Reach::Tree } else { self.reach };
        Ok(Injection { candidate, mode, reach, page }.variables(&inherited(), self.libraries)?)
    }

    fn once(
        &self,
        candidate: &CatalogueCandidate,
        variables: &Variables,
        limits: &RunLimits,
    ) -> Result<RunOutcome> {
        let run = RunRequest {
            file: &self.command.file,
            argv: &with_arguments(candidate, &self.command.argv),
            variables,
            input: self.input.as_deref(),
            folder: None,
            show_output: self.show_output,
            timeout: limits.timeout,
            still: limits.still,
            most: limits.most,
            cpu: self.cpu.get(),
            prefault_bytes: limits.prefault_bytes,
        };
        Ok(run.measure()?)
    }

    fn plain(&self, candidate: &CatalogueCandidate, limits: &RunLimits) -> Result<RunOutcome> {
        self.once(candidate, &self.variables(candidate, Mode::Production, None)?, limits)
    }

    /// Every warm-up may use all CPUs: of one that is kept on one CPU already nothing can be learnt.
    fn warm_up(&self, candidate: &CatalogueCandidate, limits: &RunLimits) -> Result<Execution> {
        let kept = if self.one_cpu == OneCpuRule::Auto { self.cpu.take() } else { self.cpu.get() };
        let outcome = self.plain(candidate, limits)?;
        let is_kept = self.one_cpu == OneCpuRule::Auto && outcome.is_serial();
        self.cpu.set(if is_kept { steady_cpu() } else { kept });
        Ok(self.execution(outcome, None))
    }
}

fn inherited() -> Variables {
    Variables::inherited()
}

impl Executor for CommandExecutor<'_> {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        if self.one_cpu == OneCpuRule::Always && self.cpu.get().is_none() {
            self.cpu.set(steady_cpu());
        }
        let candidate = self.candidates[step.candidate];
        match step.kind {
            RoundKind::Warmup => self.warm_up(candidate, limits),
            RoundKind::Counted { .. } if !candidate.is_bare() => self.counted(candidate, limits),
            // Nothing is loaded into the program that would count.
            RoundKind::Counted { .. } | RoundKind::Measured { .. } => {
                let outcome = self.plain(candidate, limits)?;
                Ok(self.execution(outcome, None))
            }
        }
    }
}
