// SPDX-License-Identifier: Apache-2.0
//! A program in place of this process or as its child, with its arguments and its environment as arrays:
//! std::process sorts the environment and loses entries.
//!
//! The program that this command runs: a signal that is sent to this command is meant for it.
//!
//! A command that is run for what it prints, with a limit of time and bytes.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, waitid, waitpid,
};

use crate::huge_pages::Kept;
use crate::variables::{SIGPIPE_IGNORED, Variables};
use crate::{foreign_process, process, sampler};

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
            let _huge_pages = Kept::of(self.variables.huge_pages).ok(); // without it the program starts all the same
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
        let _huge_pages = Kept::of(self.variables.huge_pages).ok(); // without it the program starts all the same
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
        begin_foreground(pid.as_raw());
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
        end_foreground();
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

/// Pid of its first process, while it runs. One at a time does.
static PROGRAM: Mutex<Option<i32>> = Mutex::new(None);

/// The program's first process runs from now on.
fn begin_foreground(pid: i32) {
    *program() = Some(pid);
}

/// The program's first process has ended. Called before it is reaped: another process may have its pid
/// afterwards. Returns once no signal is on its way to it.
fn end_foreground() {
    *program() = None;
}

/// Calls `send` with the pid of the program's first process, which stays its pid meanwhile. Returns whether
/// there is one.
pub fn foreground_signal(send: impl FnOnce(i32)) -> bool {
    let program = program();
    program.map(send).is_some()
}

fn program() -> MutexGuard<'static, Option<i32>> {
    PROGRAM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between two questions whether it has ended, once it has closed its output.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It could not be started, or its output not be read.
    Io(std::io::Error),
    /// It took too long, and was ended.
    Late,
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the command, whose output or errors are pipes, and returns what it wrote there and how it ended.
/// Blocks, for `limit` at most; then all of its process group is killed. After `most_bytes` the pipe is closed:
/// a command that writes more ends.
///
/// # Errors
/// When it cannot be run, or takes too long.
pub(super) fn run_timed(
    command: &mut Command,
    limit: Duration,
    most_bytes: usize,
) -> Result<(String, ExitStatus), Stopped> {
    let until = Instant::now() + limit;
    let mut child = command.process_group(0).spawn()?;
    let answer = answer(&mut child, until, most_bytes);
    let status = end(&mut child);
    Ok((answer?, status?))
}

/// Output of the command, once it has ended.
fn answer(child: &mut Child, until: Instant, most_bytes: usize) -> Result<String, Stopped> {
    let text = match (child.stdout.take(), child.stderr.take()) {
        (Some(output), None) => text(output, until, most_bytes),
        // A command that fills the second pipe meanwhile waits, and is late.
        (Some(output), Some(errors)) => {
            text(output, until, most_bytes).and_then(|first| Ok(first + &text(errors, until, most_bytes)?))
        }
        (None, Some(errors)) => text(errors, until, most_bytes),
        (None, None) => Ok(String::new()),
    }?;
    while !has_ended(child)? {
        if Instant::now() >= until {
            return Err(Stopped::Late);
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
    Ok(text)
}

/// Leaves it a zombie: until it is waited for, nobody else gets its number, which its group has too.
fn has_ended(child: &Child) -> std::io::Result<bool> {
    let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = rustix::process::Pid::from_child(child);
    Ok(waitid(WaitId::Pid(pid), looks)?.is_some())
}

/// Output until it is closed, or too long.
fn text(mut output: impl Read + AsFd, until: Instant, most_bytes: usize) -> Result<String, Stopped> {
    let mut bytes = vec![];
    while bytes.len() < most_bytes {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Stopped::Late)?;
        let mut waits = [PollFd::new(&output, PollFlags::IN)];
        match poll(&mut waits, Some(&timeout)) {
            Ok(0) => return Err(Stopped::Late),
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled.map_err(std::io::Error::from)?,
        };
        let mut buffer = [0; 1024];
        match output.read(&mut buffer)? {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Nothing of the command is left running; how it ended.
fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    let _ = kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL); // it has ended, as a rule
    child.wait()
}
