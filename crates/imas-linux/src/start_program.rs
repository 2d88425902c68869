// SPDX-License-Identifier: Apache-2.0
//! A program in place of this process or as its child, with its arguments and its environment as arrays:
//! std::process sorts the environment and loses entries.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, waitpid};

use crate::variables::{SIGPIPE_IGNORED, Variables};

/// A program that does not begin with anything that the kernel knows is a script for it, as for execvp.
const SHELL: &str = "/bin/sh";

/// A program with its arguments and environment, before its start.
#[derive(Debug, Clone, Copy)]
pub struct ProgramStart<'a> {
    /// The file to exec.
    pub file: &'a Path,
    /// Arguments from `argv[0]` on.
    pub argv: &'a [OsString],
    /// The whole environment.
    pub variables: &'a Variables,
}

/// Standard input and outputs of a child; its parent's where there is none.
#[derive(Debug, Default)]
pub struct Streams {
    /// Standard input.
    pub input: Option<OwnedFd>,
    /// Standard output.
    pub output: Option<OwnedFd>,
    /// Standard error.
    pub errors: Option<OwnedFd>,
}

impl ProgramStart<'_> {
    /// Puts the program in the place of this process. Returns only when that fails.
    #[must_use]
    pub fn exec(&self) -> io::Error {
        let exec = || -> Result<Infallible, io::Error> {
            if !sigpipe_was_ignored() {
                // Rust ignores SIGPIPE. A signal that has a handler has its default again after exec.
                signal_hook::flag::register(signal_hook::consts::SIGPIPE, Arc::default())?;
            }
            Ok(nix::unistd::execvpe(&self.path()?, &self.words()?, &self.variables.array()?)?)
        };
        let Err(error) = exec();
        error
    }

    /// Starts the program as a child.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn spawn(&self, streams: &Streams) -> io::Result<StartedProgram> {
        let mut attributes = PosixSpawnAttr::init()?;
        if !sigpipe_was_ignored() {
            attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
            attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        }
        let actions = actions(streams)?;
        let (path, words, environment) = (self.path()?, self.words()?, self.variables.array()?);
        let start = |path: &CString, words: &[CString]| {
            posix_spawn(path.as_c_str(), &actions, &attributes, words, &environment)
        };
        let started = match start(&path, &words) {
            Err(nix::Error::ENOEXEC) => {
                let mut for_shell = vec![CString::new(SHELL)?, path];
                for_shell.extend(words.into_iter().skip(1));
                start(&CString::new(SHELL)?, &for_shell)
            }
            started => started,
        };
        Ok(StartedProgram { pid: started? })
    }

    fn path(&self) -> io::Result<CString> {
        Ok(CString::new(self.file.as_os_str().as_bytes())?)
    }

    fn words(&self) -> io::Result<Vec<CString>> {
        Ok(self.argv.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?)
    }
}

fn sigpipe_was_ignored() -> bool {
    std::env::var_os(SIGPIPE_IGNORED).is_some()
}

fn actions(streams: &Streams) -> nix::Result<PosixSpawnFileActions> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, stream) in [&streams.input, &streams.output, &streams.errors].into_iter().enumerate() {
        if let (Some(stream), Ok(number)) = (stream, i32::try_from(number)) {
            actions.add_dup2(stream.as_raw_fd(), number)?;
        }
    }
    Ok(actions)
}

/// A child that was started.
#[derive(Debug)]
pub struct StartedProgram {
    pid: Pid,
}

impl StartedProgram {
    /// Process id of the child.
    #[must_use]
    pub fn id(&self) -> Pid {
        self.pid
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When there is nothing to wait for.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
        loop {
            match waitpid(pid, WaitOptions::empty()) {
                Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
