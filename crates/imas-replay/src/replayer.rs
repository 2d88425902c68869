// SPDX-License-Identifier: Apache-2.0
//! Runs `imas-replayer` under a candidate, like any program.

use std::ffi::OsString;
use std::io::{BufWriter, Read, Seek};
use std::path::PathBuf;
use std::time::Duration;

use crate::trace::file::Trace;
use crate::trace::program::{self, ReplayProgram};
use crate::trace::result::{self, Replay};
use crate::trace::touching::{self, TouchingLook, TouchingShares, WHOLE};
use anyhow::{Context as _, Result, anyhow};
use imas_engine::context::Context;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::measure::RunRequest;

const FILE: &str = "imas-replayer";
/// Time limit. A replay takes about as long as the program's calls did.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// A program that is ready for replays.
#[derive(Debug)]
pub struct Replayer<'a> {
    /// The installation.
    pub context: &'a Context,
    folder: tempfile::TempDir,
    /// What was written.
    pub program: ReplayProgram,
    shares: TouchingShares,
}

impl<'a> Replayer<'a> {
    /// Writes the program of one process of the trace.
    ///
    /// # Errors
    /// When the trace is damaged, or the program cannot be written.
    pub fn prepare(trace: &mut Trace<impl Read + Seek>, number: u32, context: &'a Context) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("imas-replay-").tempdir()?;
        let process = trace.header.processes.iter().find(|process| process.number == number);
        let wall_ns = process.map_or(0, |process| process.counts.wall_ns);
        let ends = program::last_events(trace.events(number)?)?;
        let out = BufWriter::new(std::fs::File::create(folder.path().join("program"))?);
        let program = program::write(trace.events(number)?, &ends, wall_ns, out)?;
        Ok(Self { context, folder, program, shares: TouchingShares([WHOLE, WHOLE, WHOLE, WHOLE]) })
    }

    /// Replays under `system` to find how much of its large blocks the program wrote.
    ///
    /// # Errors
    /// When that replay fails.
    pub fn calibrated(mut self) -> Result<Self> {
        let system = self.context.candidate(SYSTEM)?;
        let whole = self.replay(system)?.map_err(|why| anyhow!("the replay under system failed: {why}"))?;
        let looks = self.program.looks.iter().zip(&whole.looks);
        let looks: Vec<TouchingLook> = looks
            .map(|(recorded, replayed)| TouchingLook {
                recorded: recorded.bytes as f64,
                replayed: replayed.bytes as f64,
                live: replayed.untouched.map(|bytes| bytes as f64),
            })
            .collect();
        self.shares = touching::fit(&looks);
        Ok(self)
    }

    /// One replay. The inner error is the reason why the candidate failed.
    ///
    /// # Errors
    /// When no replay can be made.
    pub fn replay(&self, candidate: &CatalogueCandidate) -> Result<Result<Replay, String>> {
        let file = self.context.lib_dir.join(FILE);
        let result = self.folder.path().join("result");
        let inherited = Variables::inherited();
        let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Program, page: None };
        let variables = injection.variables(&inherited, &self.context.libraries)?;
        let run = RunRequest {
            file: &file,
            argv: &self.words(&result),
            variables: &variables,
            input: None,
            folder: None,
            show_output: false,
            timeout: TIMEOUT,
            still: None,
            most: None,
            cpu: None,
            prefault_bytes: 0,
        };
        let outcome = run.run().with_context(|| file.display().to_string())?;
        if outcome.timed_out || outcome.exit != 0 {
            let how = if outcome.timed_out { "took too long".to_owned() } else { ended(&outcome) };
            return Ok(Err(how));
        }
        let bytes = std::fs::read(&result).context("the replay's result")?;
        Ok(result::parse(&bytes).ok_or_else(|| "left no result".to_owned()))
    }

    fn words(&self, result: &std::path::Path) -> Vec<OsString> {
        let program: PathBuf = self.folder.path().join("program");
        let shares = self.shares.0.iter().map(|share| OsString::from(share.to_string()));
        [FILE.into(), program.into(), result.into()].into_iter().chain(shares).collect()
    }
}

fn ended(outcome: &imas_linux::measure::RunOutcome) -> String {
    let how =
        outcome.signal.map_or_else(|| format!("exit {}", outcome.exit), |signal| format!("signal {signal}"));
    match outcome.stderr_tail.trim() {
        "" => how,
        text => format!("{how}: {text}"),
    }
}
