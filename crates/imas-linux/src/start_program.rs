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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, waitid, waitpid};

use crate::foreground;
use crate::foreign_process;
use crate::variables::{SIGPIPE_IGNORED, Variables};
use crate::{process, sampler};

/// A program that does not begin with anything that the kernel knows is a script for it, as for execvp.
const SHELL: &str = "/bin/sh";

/// Time after which a wait that a stop has ended is begun again.
const BETWEEN_STOPS: Duration = Duration::from_millis(1);

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

/// Settings of a child that differ from its parent's.
#[derive(Debug, Default)]
pub struct ChildSetup<'a> {
    /// Standard input.
    pub input: Option<OwnedFd>,
    /// Standard output.
    pub output: Option<OwnedFd>,
    /// Standard error.
    pub errors: Option<OwnedFd>,
    /// Working folder.
    pub folder: Option<&'a Path>,
    /// The child leads a process group of its own.
    pub leads_group: bool,
}

impl ProgramStart<'_> {
    /// Puts the program in the place of this process. Returns only when that fails.
    #[must_use]
    pub fn exec(&self) -> io::Error {
        let exec = || -> Result<Infallible, io::Error> {
            foreign_process::end_helper(); // it would be a child of the program
            if !sigpipe_was_ignored() {
                // Rust ignores SIGPIPE. A signal that has a handler has its default again after exec.
                signal_hook::flag::register(signal_hook::consts::SIGPIPE, Arc::default())?;
            }
            Ok(nix::unistd::execvpe(&self.path()?, &self.words()?, &self.variables.array()?)?)
        };
        let Err(error) = exec();
        error
    }

    /// Starts the program as a child, in the foreground: from now on signals to this process are meant for it.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn spawn(&self, setup: &ChildSetup<'_>) -> io::Result<StartedProgram> {
        let (attributes, actions) = (attributes(setup)?, actions(setup)?);
        let (path, words, environment) = (self.path()?, self.words()?, self.variables.array()?);
        let start = |path: &CString, words: &[CString]| {
            posix_spawn(path.as_c_str(), &actions, &attributes, words, &environment)
        };
        let _there = setup.folder.map(InFolder::enter).transpose()?;
        let started = match start(&path, &words) {
            Err(nix::Error::ENOEXEC) => {
                let mut for_shell = vec![CString::new(SHELL)?, path];
                for_shell.extend(words.into_iter().skip(1));
                start(&CString::new(SHELL)?, &for_shell)
            }
            started => started,
        };
        let pid = started?;
        foreground::begin(pid.as_raw());
        Ok(StartedProgram { pid })
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

fn attributes(setup: &ChildSetup<'_>) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    let mut flags = PosixSpawnFlags::empty();
    if !sigpipe_was_ignored() {
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    }
    if setup.leads_group {
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
        attributes.set_pgroup(Pid::from_raw(0))?;
    }
    attributes.set_flags(flags)?;
    Ok(attributes)
}

fn actions(setup: &ChildSetup<'_>) -> nix::Result<PosixSpawnFileActions> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, stream) in [&setup.input, &setup.output, &setup.errors].into_iter().enumerate() {
        if let (Some(stream), Ok(number)) = (stream, i32::try_from(number)) {
            actions.add_dup2(stream.as_raw_fd(), number)?;
        }
    }
    Ok(actions)
}

/// While it exists, this process is in that folder, and a child begins there: nix has no other way to tell
/// posix_spawn. One at a time.
struct InFolder {
    was: OwnedFd,
    _alone: MutexGuard<'static, ()>,
}

impl InFolder {
    fn enter(folder: &Path) -> io::Result<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let was = rustix::fs::open(".", flags, Mode::empty())?;
        std::env::set_current_dir(folder)?;
        Ok(Self { was, _alone: alone })
    }
}

impl Drop for InFolder {
    fn drop(&mut self) {
        let _ = rustix::process::fchdir(&self.was); // a folder that was entered once
    }
}

/// A child that was started. It stays in the foreground until it has ended.
#[derive(Debug)]
pub struct StartedProgram {
    pid: Pid,
}

impl StartedProgram {
    /// Process id of the child.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// When there is nothing to wait for.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status(WaitIdOptions::empty())? {
                return Ok(status);
            }
            std::thread::sleep(BETWEEN_STOPS);
        }
    }

    /// Exit status of the program, if it has ended.
    ///
    /// # Errors
    /// When there is nothing to wait for.
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitIdOptions::NOHANG)
    }

    fn status(&self, options: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
        let id = pid.map_or(WaitId::All, WaitId::Pid);
        let ended = waitid(id, options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        // A thread of ours that traces the child (`process_trim`) waits for its stops, which are shown here as well.
        let is_stop = |status: &WaitIdStatus| !status.exited() && !status.killed() && !status.dumped();
        if matches!(&ended, Ok(None) | Err(rustix::io::Errno::INTR))
            || matches!(&ended, Ok(Some(status)) if is_stop(status))
        {
            return Ok(None);
        }
        foreground::end();
        let reaped = waitpid(pid, WaitOptions::empty())?;
        Ok(reaped.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

/// Reaps, from now on, what ends as a child of this process beside the program: as the first process of a container it is
/// given every orphan. A stop of a process that is traced is left to the thread that traces it.
///
/// # Errors
/// When no handler can be installed.
pub fn reap_orphans(program: u32) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGCHLD])?;
    let reap = move || signals.forever().for_each(|_| reap_ended(program));
    std::thread::Builder::new().name("reaper".to_owned()).spawn(reap)?;
    reap_ended(program);
    Ok(())
}

fn reap_ended(program: u32) {
    let has_ended = |pid: &u32| process::stat(*pid).is_some_and(|stat| stat.state == 'Z');
    let orphans = sampler::children(std::process::id()).into_iter().filter(|pid| *pid != program);
    let ended = orphans.filter(has_ended).filter_map(|pid| i32::try_from(pid).ok());
    for pid in ended.filter_map(rustix::process::Pid::from_raw) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG); // another thread of it still runs
    }
}
