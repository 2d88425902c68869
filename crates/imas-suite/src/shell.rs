// SPDX-License-Identifier: Apache-2.0
//! Shell lines that are not measured: set-ups, checks, loads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where and how lines run.
#[derive(Debug, Clone, Copy)]
pub struct Shell<'a> {
    /// Working folder.
    pub folder: &'a Path,
    /// The whole environment.
    pub variables: &'a BTreeMap<OsString, OsString>,
}

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// It exited with 0.
    pub ok: bool,
    /// "exit 1", "signal 9" or "took longer than 20 s".
    pub how: String,
    /// The end of standard output and standard error.
    pub text: String,
}

impl Said {
    /// The last line that is not empty.
    #[must_use]
    pub fn last_line(&self) -> &str {
        self.text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim()
    }
}

const LONGEST_TEXT: u64 = 8192;
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Shell<'_> {
    /// Runs the line with `set -eu`; all that it started is ended when it takes longer than `patience`.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn run(&self, line: &str, patience: Duration) -> std::io::Result<Said> {
        // A file, not a pipe: what the line leaves running could hold a pipe open for ever.
        let mut output = unnamed_file(self.folder)?;
        let mut child = Command::new("/bin/sh")
            .args(["-euc", line])
            .current_dir(self.folder)
            .env_clear()
            .envs(self.variables)
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
            if start.elapsed() > patience {
                end_group(child.id());
                child.wait()?;
                break None;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let how = match status {
            None => format!("took longer than {:.0} s", patience.as_secs_f64()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or(0)),
            },
        };
        Ok(Said { ok: status.is_some_and(|status| status.success()), how, text: tail(&mut output)? })
    }
}

/// `kill` of the shell takes a negative number for a whole group.
fn end_group(leader: u32) {
    let line = format!("kill -KILL -{leader}");
    let _ = Command::new("/bin/sh").args(["-c", &line]).stderr(Stdio::null()).status(); // it may have ended this instant
}

fn unnamed_file(folder: &Path) -> std::io::Result<std::fs::File> {
    let path = folder.join(format!(".said-{}", std::process::id()));
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

    fn run(line: &str, patience: Duration) -> Said {
        let folder = tempfile::tempdir().unwrap();
        let variables = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let shell = Shell { folder: folder.path(), variables: &variables };
        shell.run(line, patience).unwrap()
    }

    #[test]
    fn the_first_failure_ends_the_line() {
        let patience = Duration::from_secs(120);
        let said = run("false; echo not reached", patience);
        assert_eq!((said.ok, said.how.as_str(), said.last_line()), (false, "exit 1", "it said nothing"));
        assert!(run("echo a; echo b >&2", patience).text.ends_with("b\n"));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let said = run("sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert!(!said.ok && said.how.starts_with("took longer"), "{said:?}");
    }
}
