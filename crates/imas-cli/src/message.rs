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

/// The error of a process that cannot be looked at; `hint` is for one that belongs to another user, where root asks less.
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
    match Unseen::of(pid) {
        Unseen::Absent => {
            Hinted::error(format!("process {pid} does not exist"), "'imas top --once' lists the processes")
        }
        Unseen::Ended => Hinted::error(
            format!("process {pid} has ended"),
            "its parent has not asked yet how: it has no memory any more",
        ),
        Unseen::Kernel => Hinted::error(
            format!("process {pid} is a thread of the kernel"),
            "it has no memory of its own, and no malloc",
        ),
        Unseen::Other(uid) => {
            Hinted::error(format!("process {pid} belongs to another user (uid {uid})"), hint)
        }
        Unseen::Refused if rustix::process::geteuid().is_root() => Hinted::error(
            format!("process {pid} may not be looked at, by root neither"),
            "root lacks a right here that the process has (CAP_SYS_PTRACE in a container, a security module)",
        ),
        Unseen::Refused => Hinted::error(
            format!("process {pid} may not be looked at"),
            format!("it cannot be dumped (prctl(2)), is about to end or starts another program; {hint}"),
        ),
    }
}

/// Reason why a process cannot be looked at.
#[derive(Debug, PartialEq, Eq)]
enum Unseen {
    Absent,
    Ended,
    Kernel,
    Other(u32),
    Refused,
}

impl Unseen {
    fn of(pid: u32) -> Self {
        let Some(stat) = imas_linux::process::stat(pid) else { return Self::Absent };
        let Some(owner) = imas_linux::process::owner(pid) else { return Self::Absent };
        match owner {
            _ if matches!(stat.state, 'Z' | 'X') => Self::Ended,
            _ if stat.flags & PF_KTHREAD != 0 => Self::Kernel,
            owner
                if owner != rustix::process::geteuid().as_raw() && !rustix::process::geteuid().is_root() =>
            {
                Self::Other(owner)
            }
            _ => Self::Refused,
        }
    }
}

/// Flag of a thread of the kernel (linux/sched.h).
const PF_KTHREAD: u32 = 0x0020_0000;
