// SPDX-License-Identifier: Apache-2.0
//! Reads the files below /proc that describe the memory of other users' processes.
//!
//! The kernel takes the lock of that memory to answer, and the process can hold it for ever (a mapping of a FUSE
//! file whose server does not answer). A read that waits for it ends by SIGKILL alone. So another process reads, the
//! helper: this very program, started once more. One that is stuck is killed, and the process it looked at is left
//! alone for good. What is read is bounded, whatever the process has made of it, and slow reads are bounded for the
//! owner of the processes (`owner_time`).
//!
//! A program has a helper if its `main` begins with [`help_if_asked`]. Others, such as tests, read for themselves.
//! Where a read may take seconds, a thread reads by a [`ForeignReader`] of its own.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::fs::Metadata;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use procfs::FromRead as _;
use procfs::process::{MemoryMaps, Process, Stat};

use crate::executable::Executable;
use crate::living_thread;
use crate::owner_time::OwnerTimes;

/// First argument of a helper.
const HELPER_ARGUMENT: &str = "__read_foreign";
/// A helper that more looks than these, of a second all together, found asleep in the kernel is stuck.
const MOST_ASLEEP: u32 = 50;
/// A helper that works or waits for a CPU may take so long.
const LONGEST: Duration = Duration::from_secs(20);
/// The walk of a helper may take so much CPU time: page tables of 800 GB.
const MOST_CPU: Duration = Duration::from_secs(5);
/// Time between two looks at what a slow helper does.
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
    /// The sums of the mappings (`smaps_rollup`).
    SmapsRollup,
    /// Link to the file that the process runs (`exe`): a file system may be slow to say what it is.
    Executable,
    /// Activity of all threads of the process and its descendants, as [`crate::activity`] reads it (`task`).
    Activity,
    /// Figures of the process's heaps, as [`crate::heap`] reads them (`mem`, `pagemap`).
    Heaps,
    /// Counters that a JVM keeps in a file, as [`crate::jvm_heap`] reads them (`root`).
    JvmCounters,
    /// The word by which it is asked to give pages back, as [`crate::trim_word`] reads it (`mem`).
    TrimWord,
    /// Word of the process after it was asked, likewise.
    TrimRequest,
    /// Libraries whose files were replaced or removed, as `crate::replaced_libraries` reads them (`mem`).
    Libraries,
}

const FILES: [ForeignFile; 12] = [
    ForeignFile::CommandLine,
    ForeignFile::Environment,
    ForeignFile::Maps,
    ForeignFile::Smaps,
    ForeignFile::SmapsRollup,
    ForeignFile::Executable,
    ForeignFile::Activity,
    ForeignFile::Heaps,
    ForeignFile::JvmCounters,
    ForeignFile::TrimWord,
    ForeignFile::TrimRequest,
    ForeignFile::Libraries,
];

impl ForeignFile {
    fn name(self) -> &'static str {
        match self {
            Self::CommandLine => "cmdline",
            Self::Environment => "environ",
            Self::Maps => "maps",
            Self::Smaps => "smaps",
            Self::SmapsRollup => "smaps_rollup",
            Self::Executable => "exe",
            Self::Activity => "task",
            Self::Heaps | Self::TrimWord | Self::TrimRequest | Self::Libraries => "mem",
            Self::JvmCounters => "root",
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
            Self::JvmCounters => crate::jvm_heap::MOST_BYTES,
            Self::SmapsRollup
            | Self::Executable
            | Self::Activity
            | Self::Heaps
            | Self::TrimWord
            | Self::TrimRequest
            | Self::Libraries => 1 << 16,
        }
    }
}

/// Reads the file of a process.
///
/// # Errors
/// When there is no such process, or it is not ours to look at. `FileTooLarge` when there is more of it than a
/// process has; `TimedOut` for a process that does not let itself be looked at, and for one whose owner's processes
/// have taken too much time.
pub fn read(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    reader().read(pid, file, || owner_of(pid))
}

/// What the program itself finds out about a process, in a helper: `answer`, which [`help_if_asked_with`] was given as
/// well.
///
/// # Errors
/// As [`read`].
pub fn ask(pid: u32, answer: OwnAnswer) -> Result<Vec<u8>> {
    if !HELPS.load(Ordering::Relaxed) {
        return answer(pid);
    }
    reader().ask(pid, Question::Own, &|| owner_of(pid))
}

/// Function that answers for a program what it finds out about the process with this id.
pub type OwnAnswer = fn(u32) -> Result<Vec<u8>>;

fn reader() -> MutexGuard<'static, ForeignReader> {
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Real uid of a process: files in /proc of one that cannot be dumped belong to root.
#[must_use]
pub fn real_uid(pid: u32) -> Option<u32> {
    Some(Process::new(i32::try_from(pid).ok()?).ok()?.status().ok()?.ruid)
}

/// Owner of a process, by its real uid.
#[must_use]
pub fn owner_of(pid: u32) -> Option<u64> {
    real_uid(pid).map(owner_of_uid)
}

/// Who answers for the processes and files of a uid ([`set_owners`]).
#[must_use]
pub fn owner_of_uid(uid: u32) -> u64 {
    OWNER_OF.with_borrow(|owner_of| owner_of(uid))
}

/// The file that a process runs.
///
/// # Errors
/// As [`read`].
pub fn executable(pid: u32) -> Result<Executable> {
    executable_of(&read(pid, ForeignFile::Executable)?)
}

/// Says for this thread who answers for the processes of a uid; without it each uid answers for itself.
pub fn set_owners(owner_of: impl Fn(u32) -> u64 + 'static) {
    OWNER_OF.set(Box::new(owner_of));
}

/// Mappings of the process, with their resident parts if `file` is smaps.
pub(crate) fn mappings(pid: u32, file: ForeignFile) -> procfs::ProcResult<MemoryMaps> {
    crate::mapping_text::parsed(&read(pid, file)?)
}

/// Resident anonymous bytes of another user's process ([`crate::sampler::resident_bytes`]).
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    anonymous_bytes(&read(pid, ForeignFile::SmapsRollup).ok()?)
}

/// Resident anonymous bytes, from the text of smaps_rollup.
#[must_use]
pub fn anonymous_bytes(rollup: &[u8]) -> Option<u64> {
    crate::sampler::anonymous_bytes(&MemoryMaps::from_read(rollup).ok()?)
}

/// Ends the helper, which is a child of this process. The next [`read`] starts another.
pub(crate) fn end_helper() {
    let helper = reader().helper.take();
    if let Some(mut helper) = helper {
        let _ = helper.child.kill(); // it has ended, perhaps
        let _ = helper.child.wait();
    }
}

/// Must be called first in `main`. Does a helper's work if this process was started as one, and returns true at its
/// end. Otherwise [`read`] starts a helper when it needs one.
#[must_use]
pub fn help_if_asked() -> bool {
    help_if_asked_with(|_| Err(ErrorKind::Unsupported.into()))
}

/// Does a helper's work, as [`help_if_asked`], and gives this answer to [`ask`]. Must be called first in
/// `main`.
#[must_use]
pub fn help_if_asked_with(answer: OwnAnswer) -> bool {
    if std::env::args_os().nth(1).is_some_and(|word| word == HELPER_ARGUMENT) {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let _ = help(answer); // it ends with the program that has started it
        return true;
    }
    HELPS.store(true, Ordering::Relaxed);
    false
}

/// Whether this program can be its own helper.
static HELPS: AtomicBool = AtomicBool::new(false);
static READER: LazyLock<Mutex<ForeignReader>> = LazyLock::new(Mutex::default);
thread_local! {
    static OWNER_OF: RefCell<Box<dyn Fn(u32) -> u64>> = RefCell::new(Box::new(u64::from));
}

/// The helper's side: questions and answers pass through its standard input, a socket.
fn help(answer: OwnAnswer) -> Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let mut question = [0; 8];
        socket.read_exact(&mut question)?;
        let [pid, number] = words(question);
        let answered = match Question::of(number)? {
            Question::File(file) => read_here(pid, file),
            Question::Own => answer(pid),
        };
        let (code, bytes) = match answered {
            Ok(bytes) => (0, bytes),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => (TOO_LARGE, vec![]),
            Err(error) => (error.raw_os_error().unwrap_or(TOO_LARGE), vec![]),
        };
        let length = u32::try_from(bytes.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        socket.write_all(&pair(code.cast_unsigned(), length))?;
        socket.write_all(&bytes)?;
    }
}

/// What a helper is asked about a process.
#[derive(Debug, Clone, Copy)]
enum Question {
    File(ForeignFile),
    /// A question that the program itself answers.
    Own,
}

/// Most bytes of the program's own answer.
const MOST_OF_OWN: usize = 1 << 16;

impl Question {
    fn of(number: u32) -> Result<Self> {
        match FILES.get(number as usize) {
            Some(file) => Ok(Self::File(*file)),
            None if number as usize == FILES.len() => Ok(Self::Own),
            None => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn number(self) -> u32 {
        let number = match self {
            Self::File(file) => FILES.iter().position(|one| *one == file).unwrap_or_default(),
            Self::Own => FILES.len(),
        };
        u32::try_from(number).unwrap_or_default()
    }

    fn most_bytes(self) -> usize {
        match self {
            Self::File(file) => file.most_bytes(),
            Self::Own => MOST_OF_OWN,
        }
    }
}

/// Room for most command lines and environments.
const USUAL_BYTES: usize = 8192;
const GONE: i32 = rustix::io::Errno::SRCH.raw_os_error();
const TOO_LARGE: i32 = rustix::io::Errno::FBIG.raw_os_error();

fn read_here(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    let task = living_thread::of(pid);
    let path = format!("/proc/{task}/{}", file.name());
    let most = file.most_bytes();
    let mut bytes = vec![];
    match file {
        ForeignFile::Activity => {
            let text = crate::activity::text_of(pid).ok_or_else(|| failed(GONE))?;
            return Ok(text.into_bytes());
        }
        ForeignFile::Heaps => bytes = crate::heap::text_of(task)?,
        ForeignFile::JvmCounters => bytes = crate::jvm_heap::of_process(task)?,
        ForeignFile::Libraries => bytes = crate::replaced_libraries::text_of(task)?,
        ForeignFile::TrimWord | ForeignFile::TrimRequest => {
            return crate::trim_word::text_of(task, file == ForeignFile::TrimRequest);
        }
        ForeignFile::Executable => return Ok(executable_text(&std::fs::metadata(path)?)),
        // Each read looks at the process anew. By several, these texts would be torn where the process ends or runs
        // another image in between, and the beginning of a name would be taken for the name.
        ForeignFile::CommandLine | ForeignFile::Environment => {
            for room in [USUAL_BYTES, most + 1] {
                bytes.resize(room, 0);
                let got = File::open(&path)?.read(&mut bytes)?;
                bytes.truncate(got);
                if got < room {
                    break;
                }
            }
        }
        ForeignFile::Maps | ForeignFile::Smaps | ForeignFile::SmapsRollup => {
            File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        }
    }
    if bytes.len() > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Four numbers, as [`executable_of`] reads them.
fn executable_text(about: &Metadata) -> Vec<u8> {
    let Executable { dev, ino, mtime_ns, bytes } = Executable::from(about);
    format!("{dev} {ino} {mtime_ns} {bytes}").into_bytes()
}

fn executable_of(text: &[u8]) -> Result<Executable> {
    let parsed = || {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (dev, ino) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Executable {
            dev,
            ino,
            mtime_ns: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
        })
    };
    parsed().ok_or_else(|| ErrorKind::InvalidData.into())
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

fn words(bytes: [u8; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// Reads by a helper of its own.
#[derive(Debug, Default)]
pub struct ForeignReader {
    helper: Option<Helper>,
    owners: OwnerTimes,
    /// Processes on which a helper was stuck: pid and start.
    left_alone: BTreeSet<(u32, u64)>,
}

impl ForeignReader {
    /// Reads the file of a process; `owner` is who answers for it.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&mut self, pid: u32, file: ForeignFile, owner: impl Fn() -> Option<u64>) -> Result<Vec<u8>> {
        if !HELPS.load(Ordering::Relaxed) || pid == std::process::id() {
            return read_here(pid, file);
        }
        self.ask(pid, Question::File(file), &owner)
    }

    fn ask(&mut self, pid: u32, question: Question, owner: &dyn Fn() -> Option<u64>) -> Result<Vec<u8>> {
        let start = start_ticks(pid).ok_or(ErrorKind::NotFound)?;
        let begin = Instant::now();
        // Once, and while the process lives: one that ends during a slow read has no owner any more.
        let known = OnceCell::new();
        let owner = || *known.get_or_init(owner);
        if self.left_alone.contains(&(pid, start)) || !self.owners.allows(owner, begin) {
            return Err(ErrorKind::TimedOut.into());
        }
        let (answer, killed) = self.answer((pid, start), question, &|| {
            owner();
        });
        self.owners.add(owner, begin.elapsed(), killed, Instant::now());
        answer
    }

    /// Counts time that reads of the owner's processes have taken together, each of which was quick.
    pub fn charge(&mut self, owner: u64, took: Duration) {
        self.owners.add(|| Some(owner), took, None, Instant::now());
    }

    /// Answer to the question, with the helper if that was killed and has not ended. `slow` is called while a slow
    /// answer is waited for.
    fn answer(
        &mut self,
        process: (u32, u64),
        question: Question,
        slow: &dyn Fn(),
    ) -> (Result<Vec<u8>>, Option<Child>) {
        let pid = process.0;
        let started = self.helper.take().map_or_else(Helper::start, Ok);
        let asked = started.and_then(|mut helper| match helper.ask(pid, question, slow) {
            // The kernel ends a helper with the thread that has started it, which is noticed when it is asked.
            Err(error) if is_of_ended(&error) => {
                drop(helper.killed());
                let mut helper = Helper::start()?;
                Ok((helper.ask(pid, question, slow), helper))
            }
            answer => Ok((answer, helper)),
        });
        match asked {
            Err(error) => (Err(error), None),
            Ok((Err(error), helper)) => {
                if error.kind() == ErrorKind::TimedOut {
                    self.leave_alone(process);
                }
                (Err(error), helper.killed())
            }
            Ok((Ok(answer), mut helper)) => {
                // An error of the helper itself, which was killed by somebody, is an answer too, and its last.
                if answer.is_ok() || !helper.has_ended() {
                    self.helper = Some(helper);
                }
                (answer, None)
            }
        }
    }

    fn leave_alone(&mut self, process: (u32, u64)) {
        if self.left_alone.len() >= MOST_LEFT_ALONE {
            self.left_alone.retain(|(pid, start)| start_ticks(*pid) == Some(*start));
        }
        if self.left_alone.len() < MOST_LEFT_ALONE {
            self.left_alone.insert(process);
        }
    }
}

#[derive(Debug)]
struct Helper {
    child: Child,
    socket: UnixStream,
}

/// Waiting for an answer.
struct Waiting<'a> {
    begin: Instant,
    /// Looks that found the helper asleep.
    asleep: u32,
    /// CPU time of the helper at the first look.
    cpu: Option<Duration>,
    /// Called at each look.
    slow: &'a dyn Fn(),
}

impl Waiting<'_> {
    /// Whether a look that finds this is the last one. Looks are counted, not the time between them: where we get no
    /// CPU ourselves, a single look would stand for seconds.
    fn is_over(&mut self, is_asleep: bool, cpu: Duration) -> bool {
        self.asleep += u32::from(is_asleep);
        let used = cpu.saturating_sub(*self.cpu.get_or_insert(cpu));
        self.asleep > MOST_ASLEEP || self.begin.elapsed() > LONGEST || used > MOST_CPU
    }
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

    /// The inner result is the answer; the outer one says whether the helper is of further use.
    fn ask(&mut self, pid: u32, question: Question, slow: &dyn Fn()) -> Result<Result<Vec<u8>>> {
        let begin = Instant::now();
        let mut waiting = Waiting { begin, asleep: 0, cpu: None, slow };
        self.socket.write_all(&pair(pid, question.number()))?;
        let mut head = [0; 8];
        self.receive(&mut head, &mut waiting)?;
        let [code, length] = words(head);
        if code != 0 {
            return Ok(Err(failed(code.cast_signed())));
        }
        if length as usize > question.most_bytes() {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length as usize];
        self.receive(&mut bytes, &mut waiting)?;
        Ok(Ok(bytes))
    }

    fn receive(&mut self, bytes: &mut [u8], waiting: &mut Waiting<'_>) -> Result<()> {
        let mut got = 0;
        while got < bytes.len() {
            match self.socket.read(&mut bytes[got..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.look(waiting)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// On a busy machine a helper waits for a CPU, and for a moment for the disk: it is not stuck then.
    fn look(&self, waiting: &mut Waiting<'_>) -> Result<()> {
        (waiting.slow)();
        let stat = stat(self.child.id());
        let ticks = stat.as_ref().map_or(0, |stat| stat.utime + stat.stime);
        let cpu = Duration::from_millis(ticks * 1000 / procfs::ticks_per_second());
        let is_asleep = stat.is_none_or(|stat| stat.state != 'R');
        if waiting.is_over(is_asleep, cpu) { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_sleeps_now_and_then_is_waited_for_and_one_that_only_sleeps_is_not() {
        let looks_until_over = |is_asleep: fn(u32) -> bool, cpu_each: Duration| {
            let mut waiting = Waiting { begin: Instant::now(), asleep: 0, cpu: None, slow: &|| {} };
            (0..1000).position(|look| waiting.is_over(is_asleep(look), cpu_each * look))
        };
        assert_eq!(looks_until_over(|_| true, Duration::ZERO), Some(50));
        assert_eq!(looks_until_over(|look| look % 10 == 0, Duration::ZERO), Some(500));
        assert_eq!(looks_until_over(|_| false, Duration::ZERO), None, "it waits for a CPU");
        assert_eq!(looks_until_over(|_| false, Duration::from_millis(20)), Some(251), "works 5 s");
    }
}
