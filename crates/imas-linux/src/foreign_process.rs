// SPDX-License-Identifier: Apache-2.0
//! Reads the files below /proc that describe the memory of other users' processes.
//!
//! The kernel takes the lock of that memory to answer, and the process can hold it for ever (a mapping of a FUSE
//! file whose server does not answer). A read that waits for it ends by SIGKILL alone. So another process reads, the
//! helper: this very program, started once more. One that is stuck is killed, and the process it looked at is left
//! alone for good. What is read is bounded, whatever the process has made of it.
//!
//! A program has a helper if its `main` begins with [`help_if_asked`]. Others, such as tests, read for themselves.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use procfs::FromRead as _;
use procfs::process::{MemoryMaps, Process, Stat};

/// First argument of a helper.
const HELPER_ARGUMENT: &str = "__read_foreign";
/// A helper that sleeps in the kernel for this time is stuck. The time is halved after each stuck helper: processes of
/// one user can be many.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Number of times that [`STUCK_AFTER`] is halved.
const MOST_HALVINGS: u32 = 5;
/// A helper that works or waits for a CPU may take so long.
const LONGEST: Duration = Duration::from_secs(20);
/// Between two looks at what a slow helper does.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Processes that are left alone; more are forgotten.
const MOST_LEFT_ALONE: usize = 4096;

/// A file of a process in /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFile {
    /// The words of the command line.
    CommandLine,
    /// The environment that it was started with.
    Environment,
    /// Mappings (`maps`).
    Maps,
    /// Mappings with their resident parts (`smaps`).
    Smaps,
    /// The sums of these.
    SmapsRollup,
}

const FILES: [ForeignFile; 5] = [
    ForeignFile::CommandLine,
    ForeignFile::Environment,
    ForeignFile::Maps,
    ForeignFile::Smaps,
    ForeignFile::SmapsRollup,
];

impl ForeignFile {
    fn name(self) -> &'static str {
        match self {
            Self::CommandLine => "cmdline",
            Self::Environment => "environ",
            Self::Maps => "maps",
            Self::Smaps => "smaps",
            Self::SmapsRollup => "smaps_rollup",
        }
    }

    /// Most bytes that are read; what has more is an error. A program is given a few hundred KiB of arguments as a
    /// rule, but a process may put both over as much memory as it likes (`PR_SET_MM_MAP`). A process may have
    /// 65,530 mappings, each with a line of maps and 25 lines of smaps.
    fn most_bytes(self) -> usize {
        match self {
            Self::CommandLine | Self::Environment => 1 << 20,
            Self::Maps => 16 << 20,
            Self::Smaps => 64 << 20,
            Self::SmapsRollup => 1 << 16,
        }
    }

    /// Each read looks at the process anew. By several, these texts would be torn where the process ends or runs
    /// another image in between, and the beginning of a name would be taken for the name.
    fn is_read_at_once(self) -> bool {
        matches!(self, Self::CommandLine | Self::Environment)
    }
}

/// Reads the file of a process.
///
/// # Errors
/// When there is no such process, or it is not ours to look at. `FileTooLarge` when there is more of it than a
/// process has; `TimedOut` for a process that does not let itself be looked at.
pub fn read(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    if !HELPS.load(Ordering::Relaxed) || pid == std::process::id() {
        return read_here(pid, file);
    }
    READER.lock().unwrap_or_else(PoisonError::into_inner).read(pid, file)
}

/// Mappings of the process, with their resident parts if `file` is smaps.
pub(crate) fn mappings(pid: u32, file: ForeignFile) -> procfs::ProcResult<MemoryMaps> {
    MemoryMaps::from_read(read(pid, file)?.as_slice())
}

/// Resident anonymous bytes of another user's process ([`crate::sampler::resident_bytes`]).
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    crate::sampler::anonymous_bytes(&mappings(pid, ForeignFile::SmapsRollup).ok()?)
}

/// Must be called first in `main`. Does a helper's work if this process was started as one, and returns true at its
/// end. Otherwise [`read`] starts a helper when it needs one.
#[must_use]
pub fn help_if_asked() -> bool {
    if std::env::args_os().nth(1).is_some_and(|word| word == HELPER_ARGUMENT) {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let _ = help(); // it ends with the program that has started it
        return true;
    }
    HELPS.store(true, Ordering::Relaxed);
    false
}

/// Whether this program can be its own helper.
static HELPS: AtomicBool = AtomicBool::new(false);
static READER: LazyLock<Mutex<ForeignReader>> = LazyLock::new(Mutex::default);

/// The helper's side: questions and answers pass through its standard input, a socket.
fn help() -> Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let mut question = [0; 8];
        socket.read_exact(&mut question)?;
        let [pid, file] = words(question);
        let file = FILES.get(file as usize).ok_or(ErrorKind::InvalidInput)?;
        let (code, bytes) = match read_here(pid, *file) {
            Ok(bytes) => (0, bytes),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => (TOO_LARGE, vec![]),
            Err(error) => (error.raw_os_error().unwrap_or(TOO_LARGE), vec![]),
        };
        let length = u32::try_from(bytes.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        socket.write_all(&pair(code.cast_unsigned(), length))?;
        socket.write_all(&bytes)?;
    }
}

const TOO_LARGE: i32 = rustix::io::Errno::FBIG.raw_os_error();

fn read_here(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    let most = file.most_bytes();
    let mut opened = File::open(format!("/proc/{pid}/{}", file.name()))?;
    let mut bytes = vec![];
    if file.is_read_at_once() {
        bytes.resize(most + 1, 0);
        let got = opened.read(&mut bytes)?;
        bytes.truncate(got);
        bytes.shrink_to_fit();
    } else {
        opened.take(most as u64 + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

fn words(bytes: [u8; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// The program's side.
#[derive(Debug, Default)]
struct ForeignReader {
    helper: Option<Helper>,
    /// Killed helpers that have not ended yet.
    dying: Vec<Child>,
    /// Processes on which a helper was stuck: pid and start.
    left_alone: BTreeSet<(u32, u64)>,
    stuck: u32,
}

impl ForeignReader {
    fn read(&mut self, pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
        let start = start_ticks(pid).ok_or(ErrorKind::NotFound)?;
        self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.left_alone.contains(&(pid, start)) || self.dying.len() >= MOST_DYING {
            return Err(ErrorKind::TimedOut.into());
        }
        let stuck_after = STUCK_AFTER / 2_u32.pow(self.stuck.min(MOST_HALVINGS));
        let mut helper = match self.helper.take() {
            Some(helper) => helper,
            None => Helper::start()?,
        };
        let mut asked = helper.ask(pid, file, stuck_after);
        // The kernel ends a helper with the thread that has started it, which is noticed when it is asked.
        if asked.as_ref().is_err_and(is_of_ended) {
            helper = Helper::start()?;
            asked = helper.ask(pid, file, stuck_after);
        }
        match asked {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.give_up(helper, (pid, start));
                Err(error)
            }
            // An error of the helper itself, which was killed by somebody, is an answer too, and its last.
            Ok(Err(error)) | Err(error) if helper.has_ended() => Err(error),
            Err(error) => {
                self.dying.extend(helper.killed());
                Err(error)
            }
            Ok(answer) => {
                self.helper = Some(helper);
                answer
            }
        }
    }

    fn give_up(&mut self, helper: Helper, process: (u32, u64)) {
        self.stuck += 1;
        self.dying.extend(helper.killed());
        if self.left_alone.len() >= MOST_LEFT_ALONE {
            self.left_alone.retain(|(pid, start)| start_ticks(*pid) == Some(*start));
        }
        if self.left_alone.len() < MOST_LEFT_ALONE {
            self.left_alone.insert(process);
        }
    }
}

/// A killed helper that is in the middle of a walk through page tables goes on to its end. With so many of them
/// nothing is read.
const MOST_DYING: usize = 4;

#[derive(Debug)]
struct Helper {
    child: Child,
    socket: UnixStream,
}

impl Helper {
    fn start() -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(HELPER_ARGUMENT).env_clear().env("IMAS_DISABLE", "1");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        ours.set_read_timeout(Some(BETWEEN_LOOKS))?;
        Ok(Self { child, socket: ours })
    }

    /// The inner result is that of the read; the outer one says whether the helper is of further use.
    fn ask(&mut self, pid: u32, file: ForeignFile, stuck_after: Duration) -> Result<Result<Vec<u8>>> {
        let begin = Instant::now();
        let number = FILES.iter().position(|one| *one == file).unwrap_or_default();
        self.socket.write_all(&pair(pid, u32::try_from(number).unwrap_or_default()))?;
        let mut head = [0; 8];
        self.receive(&mut head, begin, stuck_after)?;
        let [code, length] = words(head);
        if code != 0 {
            return Ok(Err(failed(code.cast_signed())));
        }
        if length as usize > file.most_bytes() {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length as usize];
        self.receive(&mut bytes, begin, stuck_after)?;
        Ok(Ok(bytes))
    }

    fn receive(&mut self, bytes: &mut [u8], begin: Instant, stuck_after: Duration) -> Result<()> {
        let mut got = 0;
        while got < bytes.len() {
            match self.socket.read(&mut bytes[got..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.look(begin.elapsed(), stuck_after)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// On a busy machine a helper waits for a CPU: it is not stuck then.
    fn look(&self, took: Duration, stuck_after: Duration) -> Result<()> {
        let works = stat(self.child.id()).is_some_and(|stat| stat.state == 'R');
        let is_stuck = took > LONGEST || (took > stuck_after && !works);
        if is_stuck { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn killed(mut self) -> Option<Child> {
        let _ = self.child.kill(); // it has ended, perhaps
        matches!(self.child.try_wait(), Ok(None)).then_some(self.child)
    }
}

/// Whether the other end of the socket is gone.
fn is_of_ended(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

fn start_ticks(pid: u32) -> Option<u64> {
    Some(stat(pid)?.starttime)
}

fn stat(pid: u32) -> Option<Stat> {
    Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()
}

fn failed(code: i32) -> Error {
    if code == TOO_LARGE { ErrorKind::FileTooLarge.into() } else { Error::from_raw_os_error(code) }
}
