// SPDX-License-Identifier: Apache-2.0
//! One run of one program under one candidate.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::Hasher;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_core::latency::Latency;
use imas_linux::catalogue::Candidate;
use imas_linux::clock::now_unix_s;
use imas_linux::environment::{Injection, Mode, Reach};
use imas_linux::measure::{self, Outcome};
use imas_linux::one_cpu::steady_cpu;
use imas_suite::record::{Counts, Kind, Line};
use imas_suite::{Place, Program, Said, Server, Shell, words};
use nix::sys::signal::Signal;
use siphasher::sip::SipHasher13;

use super::fit::resolve;
use imas_engine::context::Context;
use imas_runs::counted::{Counted, Folder};
use imas_runs::run::run_of;

/// What a run is made with.
pub(super) struct Once<'a> {
    pub(super) context: &'a Context,
    pub(super) place: &'a Place,
    pub(super) program: &'a Program,
    pub(super) build_id: &'a str,
    pub(super) timeout: Duration,
    /// Free memory that is touched before the run.
    pub(super) backed_bytes: u64,
}

/// A server may take this long until it answers, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two times of asking whether it answers.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Why a run does not count, and what was said.
type Objection = (String, String);

impl Once<'_> {
    /// Makes the run. A program that fails is no error: the line says so.
    pub(super) fn run(&self, candidate: &Candidate, kind: Kind, round: u32) -> Result<Line> {
        let at_s = now_unix_s();
        let load1 = imas_linux::conditions::load1();
        let work = self.place.clear_work().map_err(super::hinted)?;
        let port = self.program.server.as_ref().map(|_| free_port()).transpose()?;
        let plain = self.place.variables(Some(self.program), port);
        let shell = Shell { folder: &work, variables: &plain };
        if let Some(prepare) = &self.program.prepare {
            let said = shell.run(prepare, self.timeout)?;
            anyhow::ensure!(said.ok, "{}: prepare: {}: {}", self.program.name, said.how, said.last_line());
        }
        let folder = (kind == Kind::Counted).then(Folder::new).transpose()?;
        let (outcome, objection) = self.measured(candidate, folder.as_ref(), &shell)?;
        let objection = objection.or_else(|| objection_to(&outcome, self.program.server.is_some()));
        let objection = match objection {
            None => self.check(&shell)?,
            found => found,
        };
        let counted = folder.and_then(|folder| folder.counted().ok());
        let counts = counted.as_ref().map(|Counted { sample, .. }| Counts {
            ns_per_op: sample.ns_per_op(),
            frag: sample.frag_virtual(),
            heap_bytes: sample.memory.heap_mean,
            live_bytes: sample.memory.live_mean,
            resident_bytes: sample.memory.resident_mean,
            ops: sample.classes().iter().map(|class| class.calls).sum(),
        });
        let mut run = run_of(&outcome, round);
        run.output = (!self.program.varies).then(|| self.digest(&outcome, &work)).transpose()?;
        let (why, said) = objection.unzip();
        Ok(Line {
            program: self.program.name.clone(),
            candidate: candidate.name.clone(),
            kind,
            at_s,
            ok: why.is_none(),
            why,
            said,
            run,
            counts,
            latency: counted.as_ref().and_then(|counted| Latency::of(&counted.sample)),
            split: counted.as_ref().and_then(|counted| counted.sample.memory.split),
            curve: counted.and_then(|counted| counted.curve),
            load1,
            cpu: self.cpu(),
        })
    }

    fn measured(
        &self,
        candidate: &Candidate,
        folder: Option<&Folder>,
        shell: &Shell<'_>,
    ) -> Result<(Outcome, Option<Objection>)> {
        let words = words(&self.program.command).context("an empty command")?;
        let command = resolve(&words, self.place)?;
        let page = folder.map(|folder| folder.first_page(&command, candidate, self.build_id)).transpose()?;
        let variables = self.injected(candidate, shell.variables, page.as_deref())?;
        let input = self.program.input.as_ref().map(|input| shell.folder.join(input));
        let run = measure::Run {
            file: &command.file,
            argv: &command.argv,
            variables: &variables,
            input: input.as_deref(),
            folder: Some(shell.folder),
            show_output: false,
            timeout: if self.program.server.is_some() { PATIENCE } else { self.timeout },
            still: None,
            cpu: self.cpu(),
            backed_bytes: self.backed_bytes,
        };
        let Some(server) = &self.program.server else {
            return Ok((run.measure()?, None));
        };
        let load = |pid| self.load(server, shell, pid);
        let (outcome, loaded) = run.measure_serving(signal(&server.stop), load)?;
        Ok((outcome, loaded?))
    }

    /// A program that does one thing at a time is measured on one CPU, which is steadier.
    fn cpu(&self) -> Option<usize> {
        if self.program.threads == 1 { steady_cpu() } else { None }
    }

    fn injected(
        &self,
        candidate: &Candidate,
        variables: &BTreeMap<OsString, OsString>,
        page: Option<&Path>,
    ) -> Result<BTreeMap<OsString, OsString>> {
        let (mode, reach) = match page {
            Some(_) => (Mode::Trial, Reach::Tree),
            None => (Mode::Production, Reach::Children),
        };
        Ok(Injection { candidate, mode, reach, page }.variables(variables, &self.context.libraries)?)
    }

    /// Waits until the server answers, then has the load done.
    fn load(&self, server: &Server, shell: &Shell<'_>, pid: u32) -> Result<Option<Objection>> {
        let start = Instant::now();
        loop {
            let said = shell.run(&server.ready, PATIENCE)?;
            if said.ok {
                break;
            }
            if start.elapsed() > PATIENCE || has_ended(pid) {
                return Ok(Some(("ready".to_owned(), said.last_line().to_owned())));
            }
            std::thread::sleep(ASK_EVERY);
        }
        let said = shell.run(&server.load, self.timeout)?;
        Ok((!said.ok).then(|| ("load".to_owned(), what(&said))))
    }

    fn check(&self, shell: &Shell<'_>) -> Result<Option<Objection>> {
        let Some(check) = &self.program.check else { return Ok(None) };
        let said = shell.run(check, self.timeout)?;
        Ok((!said.ok).then(|| ("check".to_owned(), what(&said))))
    }

    /// Of standard output (a server's is a log, and is left out) and the output files.
    fn digest(&self, outcome: &Outcome, work: &Path) -> Result<String> {
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

fn what(said: &Said) -> String {
    format!("{}: {}", said.how, said.last_line())
}

/// A server that we ended by a signal has done as told.
fn objection_to(outcome: &Outcome, server: bool) -> Option<Objection> {
    let last = outcome.stderr_tail.lines().rev().find(|line| !line.trim().is_empty());
    let said = |how: String| last.map_or_else(|| how.clone(), |last| format!("{how}: {}", last.trim()));
    if outcome.timed_out {
        return Some(("timeout".to_owned(), said("it took too long and was ended".to_owned())));
    }
    let told = server && outcome.signal.is_some_and(|signal| [2, 3, 15].contains(&signal));
    match outcome.signal {
        Some(signal) if !told => Some(("crash".to_owned(), said(format!("signal {signal}")))),
        None if outcome.exit > 128
            && !server
            && imas_core::sample::is_crash_signal(outcome.exit.unsigned_abs() - 128) =>
        {
            Some(("crash".to_owned(), said(format!("signal {} in a child", outcome.exit - 128))))
        }
        None if outcome.exit != 0 && !(server && outcome.exit >= 128) => {
            Some(("exit".to_owned(), said(format!("exit {}", outcome.exit))))
        }
        _ => None,
    }
}

fn signal(name: &str) -> Signal {
    match name {
        "INT" => Signal::SIGINT,
        "QUIT" => Signal::SIGQUIT,
        _ => Signal::SIGTERM,
    }
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// It is a zombie: only we can reap it, and have not.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['Z', 'X']) || rest.is_empty())
}
