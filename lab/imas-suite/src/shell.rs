// SPDX-License-Identifier: Apache-2.0
//! Shell lines that are not measured: set-ups, checks, loads.

use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use imas_linux::environment::Variables;

/// Folder and environment in which lines run.
#[derive(Debug, Clone, Copy)]
pub struct Shell<'a> {
    /// Working folder.
    pub folder: &'a Path,
    /// The whole environment.
    pub variables: &'a Variables,
}

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOutput {
    /// The line exited with 0.
    pub ok: bool,
    /// "exit 1", "signal 9" or "took longer than 20 s".
    pub how: String,
    /// The end of standard output and standard error.
    pub text: String,
}

impl ShellOutput {
    /// The last line that is not empty.
    #[must_use]
    pub fn last_line(&self) -> &str {
        self.text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").trim()
    }
}

const LONGEST_TEXT: u64 = 8192;
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Shell<'_> {
    /// Runs the line with `set -eu`. After `timeout`, ends every process that the line started.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn run(&self, line: &str, timeout: Duration) -> std::io::Result<ShellOutput> {
        // A file, not a pipe: a process that the line leaves running could hold a pipe open without end.
        let mut output = unnamed_file(self.folder)?;
        let mut child = Command::new("/bin/sh")
            .args(["-euc", line])
            .current_dir(self.folder)
            .env_clear()
            .envs(self.variables.iter())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() > timeout {
                end_group(child.id());
                child.wait()?;
                break None;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let how = match status {
            None => format!("took longer than {:.0} s", timeout.as_secs_f64()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or(0)),
            },
        };
        Ok(ShellOutput { ok: status.is_some_and(|status| status.success()), how, text: tail(&mut output)? })
    }
}

/// The shell's `kill` accepts a negative number, which means a process group.
fn end_group(leader: u32) {
    let line = format!("kill -KILL -{leader}");
    // The group may have ended in the meantime.
    let _ = Command::new("/bin/sh").args(["-c", &line]).stderr(Stdio::null()).status();
}

fn unnamed_file(folder: &Path) -> std::io::Result<std::fs::File> {
    let path = folder.join(format!(".output-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn tail(file: &mut std::fs::File) -> std::io::Result<String> {
    let length = file.seek(std::io::SeekFrom::End(0))?;
    file.seek(std::io::SeekFrom::Start(length.saturating_sub(LONGEST_TEXT)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, timeout: Duration) -> ShellOutput {
        let folder = tempfile::tempdir().unwrap();
        let variables = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let shell = Shell { folder: folder.path(), variables: &variables };
        shell.run(line, timeout).unwrap()
    }

    #[test]
    fn the_first_failure_ends_the_line() {
        let timeout = Duration::from_secs(120);
        let output = run("false; echo not reached", timeout);
        assert_eq!((output.ok, output.how.as_str(), output.last_line()), (false, "exit 1", "no output"));
        assert!(run("echo a; echo b >&2", timeout).text.ends_with("b\n"));
    }

    #[test]
    fn a_line_over_its_timeout_is_ended_with_its_children() {
        let output = run("sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert!(!output.ok && output.how.starts_with("took longer"), "{output:?}");
    }
}
