// SPDX-License-Identifier: Apache-2.0
//! One run of one program under one candidate.

use std::hash::Hasher;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::measure::{self, RunOutcome};
use imas_linux::pace::steady_cpu;
use imas_linux::runtime_start::with_arguments;
use imas_suite::{Place, Server, Shell, ShellOutput, SuiteProgram, words};
use nix::sys::signal::Signal;
use siphasher::sip::SipHasher13;

use super::fit::resolve;
use imas_engine::context::Context;
use imas_runs::command::Recorder;
use imas_runs::counted::Folder;
use imas_runs::executor::{Execution, Fault, RunLimits, record, with_fault};
use imas_runs::service::free_port;

/// A program of the suite, and what one run of it needs.
pub(crate) struct Once<'a> {
    pub(crate) context: &'a Context,
    pub(crate) place: &'a Place,
    pub(crate) program: &'a SuiteProgram,
    pub(crate) build_id: &'a str,
    pub(crate) limits: RunLimits,
}

/// Observation beside a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunMode<'a> {
    /// Nothing, as in production.
    Measured,
    /// Every call is counted.
    Counted,
    /// Every call is recorded.
    Recorded(&'a Recorder),
}

/// A server may take this long until it answers, and to end.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two attempts to reach a server that starts.
const ASK_EVERY: Duration = Duration::from_millis(20);

impl Once<'_> {
    /// Makes the run. A program that fails is no error: the record has the failure.
    pub(crate) fn run(&self, candidate: &CatalogueCandidate, mode: RunMode<'_>) -> Result<Execution> {
        let load1 = imas_linux::host::load1();
        let work = self.place.clear_work().map_err(super::hinted)?;
        let port = self.program.server.as_ref().map(|_| free_port()).transpose()?;
        let plain = self.place.variables(Some(self.program), port);
        let shell = Shell { folder: &work, variables: &plain };
        if let Some(prepare) = &self.program.prepare {
            let output = shell.run(prepare, self.limits.timeout)?;
            anyhow::ensure!(
                output.ok,
                "{}: prepare: {}: {}",
                self.program.name,
                output.how,
                output.last_line()
            );
        }
        let folder = matches!(mode, RunMode::Counted).then(Folder::new).transpose()?;
        let (outcome, fault) = self.measured(candidate, mode, folder.as_ref(), &shell)?;
        let fault = match fault.or_else(|| fault_of(&outcome, self.program.server.is_some())) {
            None => self.check(&shell)?,
            found => found,
        };
        let counted = folder.and_then(|folder| folder.counted().ok());
        let mut record = with_fault(record(&outcome, counted.as_ref()), fault);
        record.output = (!self.program.varies).then(|| self.digest(&outcome, &work)).transpose()?;
        (record.load1, record.cpu) = (load1, self.cpu());
        Ok(Execution { record, outcome, counted, ..Execution::default() })
    }

    fn measured(
        &self,
        candidate: &CatalogueCandidate,
        mode: RunMode<'_>,
        folder: Option<&Folder>,
        shell: &Shell<'_>,
    ) -> Result<(RunOutcome, Option<Fault>)> {
        let words = words(&self.program.command).context("an empty command")?;
        let command = resolve(&words, self.place)?;
        let page = folder.map(|folder| folder.first_page(&command, candidate, self.build_id)).transpose()?;
        let variables = match mode {
            RunMode::Recorded(recorder) => {
                recorder.variables(candidate, shell.variables, &self.context.libraries)?
            }
            RunMode::Measured | RunMode::Counted => {
                self.injected(candidate, shell.variables, page.as_deref())?
            }
        };
        let input = self.program.input.as_ref().map(|input| shell.folder.join(input));
        let run = measure::RunRequest {
            file: &command.file,
            argv: &with_arguments(candidate, &command.argv),
            variables: &variables,
            input: input.as_deref(),
            folder: Some(shell.folder),
            show_output: false,
            timeout: if self.program.server.is_some() { READY_TIMEOUT } else { self.limits.timeout },
            still: None,
            most: None,
            cpu: self.cpu(),
            prefault_bytes: self.limits.prefault_bytes,
        };
        let Some(server) = &self.program.server else {
            return Ok((run.measure()?, None));
        };
        let load = |pid| self.load(server, shell, pid);
        let (outcome, loaded) = run.measure_server(signal(&server.stop), load)?;
        Ok((outcome, loaded?))
    }

    /// A program that does one thing at a time is measured on one CPU, which is steadier.
    fn cpu(&self) -> Option<usize> {
        if self.program.threads == 1 { steady_cpu() } else { None }
    }

    fn injected(
        &self,
        candidate: &CatalogueCandidate,
        variables: &Variables,
        page: Option<&Path>,
    ) -> Result<Variables> {
        let (mode, reach) = match page {
            Some(_) => (Mode::Trial, Reach::Tree),
            None => (Mode::Production, Reach::Children),
        };
        Ok(Injection { candidate, mode, reach, page }.variables(variables, &self.context.libraries)?)
    }

    /// Waits until the server answers, then has the load done.
    fn load(&self, server: &Server, shell: &Shell<'_>, pid: u32) -> Result<Option<Fault>> {
        let start = Instant::now();
        loop {
            let output = shell.run(&server.ready, READY_TIMEOUT)?;
            if output.ok {
                break;
            }
            if start.elapsed() > READY_TIMEOUT || has_ended(pid) {
                return Ok(Some(Fault { why: "ready", message: output.last_line().to_owned() }));
            }
            std::thread::sleep(ASK_EVERY);
        }
        let output = shell.run(&server.load, self.limits.timeout)?;
        Ok((!output.ok).then(|| Fault { why: "load", message: what(&output) }))
    }

    fn check(&self, shell: &Shell<'_>) -> Result<Option<Fault>> {
        let Some(check) = &self.program.check else { return Ok(None) };
        let output = shell.run(check, self.limits.timeout)?;
        Ok((!output.ok).then(|| Fault { why: "check", message: what(&output) }))
    }

    /// Digest of standard output and the output files, as 16 hexadecimal digits. The output of a server is a
    /// log, and is left out.
    fn digest(&self, outcome: &RunOutcome, work: &Path) -> Result<String> {
        let mut hasher = SipHasher13::new();
        if self.program.server.is_none() {
            hasher.write_u64(outcome.output_hash);
        }
        for name in &self.program.outputs {
            // A file that is not there is a difference like any other.
            hasher.write(&std::fs::read(work.join(name)).unwrap_or_default());
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

fn what(output: &ShellOutput) -> String {
    format!("{}: {}", output.how, output.last_line())
}

/// A server that we ended by a signal has done what it was asked to, and one that ends with 128 + signal for
/// it, too.
fn fault_of(outcome: &RunOutcome, is_server: bool) -> Option<Fault> {
    let by_us = |fault: &Fault| match outcome.signal {
        Some(signal) => [2, 3, 15].contains(&signal),
        None => outcome.exit >= 128 && fault.why != "crash", // a crash of a child
    };
    Fault::of(outcome).filter(|fault| !is_server || outcome.timed_out || !by_us(fault))
}

fn signal(name: &str) -> Signal {
    match name {
        "INT" => Signal::SIGINT,
        "QUIT" => Signal::SIGQUIT,
        _ => Signal::SIGTERM,
    }
}

/// Whether a process has ended: it is a zombie, because only we can reap it, and have not.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['Z', 'X']) || rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_asked_to_end_has_not_failed_and_one_that_crashed_has() {
        let why = |exit, signal| {
            let outcome = RunOutcome { exit, signal, ..RunOutcome::default() };
            fault_of(&outcome, true).map(|fault| fault.why)
        };
        assert_eq!([why(0, None), why(143, None), why(143, Some(15))], [None; 3]);
        assert_eq!([why(139, None), why(139, Some(11))], [Some("crash"); 2]);
    }
}
