// SPDX-License-Identifier: Apache-2.0
//! Shell lines around the server: set-up, readiness tests, loads; and words with variables, which no shell reads.

use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use imas_linux::environment::Variables;
use imas_linux::process::signal_name;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::record::last_line;
use crate::service::cpus::KeptOn;

/// How a line ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineEnd {
    pub(crate) is_ok: bool,
    /// Whether the line failed by itself, with an exit status other than 0 or by a signal.
    pub(crate) failed_by_itself: bool,
    /// "exit 1", "signal 9", "took longer than 20 s", or the reason why it was ended.
    pub(crate) how: String,
    /// Standard output of the line. Of a very long one it is the end.
    pub(crate) output: String,
    /// The end of its standard error.
    pub(crate) errors: String,
    pub(crate) wall_s: f64,
}

impl LineEnd {
    /// The last line that is not empty: of standard error, or of standard output if that has none.
    pub(crate) fn last_line(&self) -> &str {
        last_line(&self.errors).or_else(|| last_line(&self.output)).unwrap_or("it printed nothing")
    }
}

const MOST_OUTPUT: u64 = 4 << 20;
const MOST_ERRORS: u64 = 8 << 10;
const SHORTEST_GAP: Duration = Duration::from_millis(2);
const LONGEST_GAP: Duration = Duration::from_millis(50);

/// A line that is to be run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShellLine<'a> {
    pub(crate) line: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) variables: &'a Variables,
    pub(crate) timeout: Duration,
    /// The CPUs for it; empty: all that are allowed.
    pub(crate) cpus: &'a [usize],
}

impl ShellLine<'_> {
    /// Runs the line by `sh -eu`. `spawned` gets its pid. The process group is ended when it takes too long,
    /// or as soon as `give_up` returns a reason.
    ///
    /// # Errors
    /// When no shell can be started.
    pub(crate) fn run(
        &self,
        spawn: impl FnOnce(&mut dyn FnMut() -> std::io::Result<Child>) -> std::io::Result<Child>,
        mut give_up: impl FnMut() -> Option<String>,
    ) -> std::io::Result<LineEnd> {
        // Files, not pipes: a process that the line leaves running could hold a pipe open without end.
        let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut start = || self.start(&output, &errors);
        let began = Instant::now();
        let mut child = spawn(&mut start)?;
        let ended = self.wait(&mut child, began, &mut give_up)?;
        let wall_s = began.elapsed().as_secs_f64();
        let (is_ok, failed_by_itself, how) = match ended {
            Ok(status) => (status.success(), !status.success(), exit_text(status)),
            Err(why) => (false, false, why),
        };
        let output = tail(&mut output, MOST_OUTPUT)?;
        let errors = tail(&mut errors, MOST_ERRORS)?;
        Ok(LineEnd { is_ok, failed_by_itself, how, output, errors, wall_s })
    }

    /// Runs the line without registering its pid and without a reason to end it early.
    pub(crate) fn run_plain(&self) -> std::io::Result<LineEnd> {
        self.run(|start| start(), || None)
    }

    fn start(&self, output: &std::fs::File, errors: &std::fs::File) -> std::io::Result<Child> {
        let _kept = KeptOn::new(self.cpus);
        Command::new("/bin/sh")
            .args(["-euc", self.line])
            .current_dir(self.folder)
            .env_clear()
            .envs(self.variables.iter())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .process_group(0)
            .spawn()
    }

    fn wait(
        &self,
        child: &mut Child,
        began: Instant,
        give_up: &mut dyn FnMut() -> Option<String>,
    ) -> std::io::Result<Result<ExitStatus, String>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ok(status));
            }
            let elapsed = began.elapsed();
            let too_long = || format!("took longer than {:.0} s", self.timeout.as_secs_f64());
            let reason = if elapsed > self.timeout { Some(too_long()) } else { give_up() };
            if let Some(why) = reason {
                end_group(child.id());
                child.wait()?;
                return Ok(Err(why));
            }
            std::thread::sleep((elapsed / 50).clamp(SHORTEST_GAP, LONGEST_GAP));
        }
    }
}

fn end_group(leader: u32) {
    if let Ok(group) = i32::try_from(leader) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL); // the group may have ended in the meantime
    }
}

/// "exit 1", or the name of the signal.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => signal_name(signal.unwrap_or(0)),
    }
}

/// The end of a file, as text.
pub(crate) fn tail(file: &mut std::fs::File, most: u64) -> std::io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with `$NAME` and `${NAME}` replaced for each name in `names`. All else stays.
pub(crate) fn expand(text: &str, variables: &Variables, names: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, length) = name_at(after);
        let value = names.contains(&name).then(|| variables.get(OsStr::new(name))).flatten();
        match value {
            Some(value) => out.push_str(&value.to_string_lossy()),
            None => out.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    out + rest
}

/// The name at the beginning, and its length in the text with the braces.
fn name_at(text: &str) -> (&str, usize) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inner) = text.strip_prefix('{')
        && let Some(end) = inner.find('}')
    {
        return (&inner[..end], end + 2);
    }
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    (&text[..end], end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, timeout_ms: u64, give_up: impl FnMut() -> Option<String>) -> LineEnd {
        let folder = tempfile::tempdir().unwrap();
        let variables = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let timeout = Duration::from_millis(timeout_ms);
        let line = ShellLine { line, folder: folder.path(), variables: &variables, timeout, cpus: &[] };
        line.run(|start| start(), give_up).unwrap()
    }

    #[test]
    fn the_first_failure_ends_the_line() {
        let end = run("echo a; echo b >&2; false; echo not reached", 60_000, || None);
        assert_eq!((end.is_ok, end.how.as_str(), end.last_line()), (false, "exit 1", "b"));
        assert!(end.failed_by_itself);
        assert_eq!(end.output, "a\n");
        assert_eq!(run("true", 60_000, || None).last_line(), "it printed nothing");
    }

    #[test]
    fn a_line_is_ended_with_its_children() {
        let end = run("sleep 1000 & sleep 1000", 200, || None);
        assert!(!end.is_ok && end.how.starts_with("took longer"), "{end:?}");
        let end = run("sleep 1000 & sleep 1000", 60_000, || Some("the server has ended".into()));
        assert_eq!((end.failed_by_itself, end.how.as_str()), (false, "the server has ended"));
    }

    #[test]
    fn only_our_names_are_replaced() {
        let variables = Variables::from([("PORT".into(), "80".into()), ("HOME".into(), "/h".into())]);
        let of = |text: &str| expand(text, &variables, &["PORT", "WORK"]);
        assert_eq!(of("--port=$PORT"), "--port=80");
        assert_eq!(of("a${PORT}b $HOME $PORTS ${WORK} $ 5$"), "a80b $HOME $PORTS ${WORK} $ 5$");
    }
}
