// SPDX-License-Identifier: Apache-2.0
//! Messages on standard error: `imas: what: why`, then `hint: ...` on its own line.

use std::io::{ErrorKind, Write};

use imas_core::printable;
use imas_linux::program::CommandError;

/// An error with advice.
#[derive(Debug)]
pub struct Hinted {
    what: String,
    hint: String,
}

impl Hinted {
    /// An error whose message is `what` and whose way out is `hint`.
    pub fn error(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Self { what: what.into(), hint: hint.into() }.into()
    }
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Hinted {}

/// Prints the error with its causes, and the hint if it has one.
pub fn error(error: &anyhow::Error) {
    say(&format!("imas: {}", text(error)));
    if let Some(hint) = hint(error) {
        say(&format!("hint: {hint}"));
    }
}

/// The error with its causes, on one line.
#[must_use]
pub fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A library's error often repeats its source: print everything once.
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// The way out of an error, if it names one.
#[must_use]
pub fn hint(error: &anyhow::Error) -> Option<&str> {
    let hinted = error.downcast_ref::<Hinted>().map(|hinted| hinted.hint.as_str());
    hinted.or_else(|| match error.downcast_ref::<CommandError>()? {
        CommandError::Empty => Some("give the command after --"),
        CommandError::NotFound(_) => Some("check the spelling, or give the program's path"),
        CommandError::NotExecutable { .. } => Some("'ls -l' shows whether it is a file that may be executed"),
    })
}

/// A warning: the command goes on.
pub fn warning(text: &str) {
    say(&format!("imas: warning: {text}"));
}

/// One line of progress or advice.
pub fn say(line: &str) {
    // Standard error may be closed. Then the message is lost.
    let _ = writeln!(anstream::stderr(), "{}", printable::text(line));
}

/// The reader of our output went away, as in `imas list | head -1`.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    is_of_kind(error, ErrorKind::BrokenPipe)
}

/// Another user may do it: root, as a rule.
#[must_use]
pub fn is_denied(error: &anyhow::Error) -> bool {
    is_of_kind(error, ErrorKind::PermissionDenied)
}

fn is_of_kind(error: &anyhow::Error, kind: ErrorKind) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == kind)
}

/// The error of a process that cannot be looked at; `hint` is for one that belongs to another user.
#[must_use]
pub fn not_seen(pid: u32, hint: &str) -> anyhow::Error {
    if imas_linux::running::is_silent(pid) {
        return Hinted::error(
            format!(
                "process {pid} does not let itself be looked at: its memory, or a file that it names, does not answer"
            ),
            "its user has a file system that is silent (FUSE), or its processes take long to be looked at: try later",
        );
    }
    Hinted::error(
        format!("process {pid} does not exist, has ended, is the kernel's, or belongs to another user"),
        hint,
    )
}
