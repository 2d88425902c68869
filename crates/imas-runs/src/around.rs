// SPDX-License-Identifier: Apache-2.0
//! Shell lines around runs: what a run needs before it, and what it leaves.

use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;

use crate::executor::{Execution, Executor, RunLimits};
use crate::record::last_line;
use crate::schedule::Step;

/// A line for `sh -c`, and the option that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellLine {
    /// Named in errors.
    pub option: &'static str,
    /// Line that the shell runs.
    pub line: String,
}

impl ShellLine {
    /// Runs it to its end, without input; what it prints is dropped.
    ///
    /// # Errors
    /// When it cannot be started or does not succeed.
    pub fn run(&self) -> Result<()> {
        let option = self.option;
        // A file, not a pipe: a process that the line leaves running could hold a pipe open without end.
        let mut errors = tempfile::tempfile()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&self.line).stdin(Stdio::null()).stdout(Stdio::null());
        let status = shell.stderr(errors.try_clone()?).status();
        let status = status.with_context(|| format!("{option}: sh cannot be started"))?;
        if status.success() {
            return Ok(());
        }
        let mut bytes = vec![];
        errors.rewind()?;
        errors.read_to_end(&mut bytes)?;
        let errors = String::from_utf8_lossy(&bytes);
        let message = last_line(&errors).map_or_else(String::new, |line| format!(": {line}"));
        Err(Hinted::error(
            format!("the line of {option} failed ({status}){message}"),
            "run it by hand with sh -c; every such line must succeed",
        ))
    }
}

/// Makes each run between two lines. They are not part of what is measured.
pub struct Around<'a> {
    /// Executor that makes the runs.
    pub inner: &'a mut dyn Executor,
    /// The line that is run before each run.
    pub before: Option<ShellLine>,
    /// The line that is run after each run.
    pub after: Option<ShellLine>,
}

impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Around")
            .field("before", &self.before)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Executor for Around<'_> {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        self.before.as_ref().map_or(Ok(()), ShellLine::run)?;
        let run = self.inner.execute(step, limits)?;
        self.after.as_ref().map_or(Ok(()), ShellLine::run)?;
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str) -> ShellLine {
        ShellLine { option: "--prepare", line: line.to_owned() }
    }

    #[test]
    fn a_failing_line_is_reported_with_the_end_of_its_output() {
        assert!(line("cat >/dev/null; echo unseen").run().is_ok());
        let error = line("echo no such disk >&2; exit 3").run().unwrap_err().to_string();
        assert!(error.contains("--prepare failed") && error.ends_with(": no such disk"), "{error}");
    }

    #[test]
    fn a_process_that_a_line_leaves_running_is_not_waited_for() {
        let began = std::time::Instant::now();
        assert!(line("sleep 60 &").run().is_ok());
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }
}
