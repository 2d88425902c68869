// SPDX-License-Identifier: Apache-2.0
//! Questions to a helper, and how a question passes through its socket.
//!
//! The helper: this very program, started once more. Both sides of its socket.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Read, Result, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Answers, TOO_LARGE, failed, stat};

/// A file of a process in /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFile {
    /// The words of the command line.
    CommandLine,
    /// The environment that it was started with.
    Environment,
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
}

const FILES: [ForeignFile; 7] = [
    ForeignFile::CommandLine,
    ForeignFile::Environment,
    ForeignFile::SmapsRollup,
    ForeignFile::Executable,
    ForeignFile::Activity,
    ForeignFile::Heaps,
    ForeignFile::JvmCounters,
];

impl ForeignFile {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CommandLine => "cmdline",
            Self::Environment => "environ",
            Self::SmapsRollup => "smaps_rollup",
            Self::Executable => "exe",
            Self::Activity => "task",
            Self::Heaps => "mem",
            Self::JvmCounters => "root",
        }
    }

    /// Most bytes that are read; what has more is an error. A program is given a few hundred KiB of arguments as a
    /// rule, but a process may put both over as much memory as it likes (`PR_SET_MM_MAP`).
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::CommandLine | Self::Environment => 1 << 20,
            Self::JvmCounters => crate::jvm_heap::MOST_BYTES,
            Self::SmapsRollup | Self::Executable | Self::Activity | Self::Heaps => 1 << 16,
        }
    }
}

/// Findings about a process by the files that it names, and by its mappings. Of these it may have a million:
/// the helper makes sums, and the answer is a few numbers or the names of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The program that it runs (`crate::running`).
    Program,
    /// Who chose its allocator (`crate::serving::chooser`).
    Chooser,
    /// The language runtime of its executable (`crate::running_runtime`).
    Runtime,
    /// Outcome of a trim from outside (`crate::process_trim`).
    TrimFromOutside,
    /// Files that are mapped (`crate::mapped_files`).
    MappedFiles,
    /// Sums of the mappings by kind (`crate::resident`).
    Resident,
    /// Heaps of glibc's malloc (`crate::arenas`).
    Arenas,
    /// Resident and swapped bytes by owner (`crate::memory_parts`).
    Parts,
    /// Heaps of runtimes (`crate::object_heaps`).
    ObjectHeaps,
    /// Heaps of allocators beside glibc's (`crate::other_heaps`).
    OtherHeaps,
    /// First look of a search for leaks, and the next ones (`crate::reach`).
    LeaksBegin,
    LeaksGoOn,
}

const FINDINGS: [Finding; 12] = [
    Finding::Program,
    Finding::Chooser,
    Finding::Runtime,
    Finding::TrimFromOutside,
    Finding::MappedFiles,
    Finding::Resident,
    Finding::Arenas,
    Finding::Parts,
    Finding::ObjectHeaps,
    Finding::OtherHeaps,
    Finding::LeaksBegin,
    Finding::LeaksGoOn,
];

/// Questions about a file whose path somebody else has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedFile {
    /// Its identity, size and times.
    Stamp,
    /// Its facts as an executable.
    Image,
    /// Its bytes, where it is a page of the user.
    Page,
}

const NAMED: [NamedFile; 3] = [NamedFile::Stamp, NamedFile::Image, NamedFile::Page];

/// Questions to a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    File(ForeignFile),
    /// A question that the program itself answers.
    Own,
    Finding(Finding),
    Named(NamedFile),
}

/// Most bytes of the program's own answer.
const MOST_OF_OWN: usize = 1 << 16;
/// Most bytes of the names of mapped files, and of the sizes of heaps.
pub(crate) const MOST_OF_MAPPED_FILES: usize = 1 << 20;
const MOST_OF_ARENAS: usize = 1 << 20;
/// Most bytes of an answer about an executable.
const MOST_OF_IMAGE: usize = 1 << 18;
/// The kernel takes no longer path.
const LONGEST_PATH: usize = 4096;

impl Question {
    /// All questions, by their number.
    fn all() -> impl Iterator<Item = Self> {
        let files = FILES.into_iter().map(Self::File).chain([Self::Own]);
        files.chain(FINDINGS.into_iter().map(Self::Finding)).chain(NAMED.into_iter().map(Self::Named))
    }

    fn of(number: u32) -> Result<Self> {
        Self::all().nth(number as usize).ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    fn number(self) -> u32 {
        let number = Self::all().position(|one| one == self);
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX)
    }

    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::File(file) => file.most_bytes(),
            Self::Finding(Finding::Program) => ForeignFile::CommandLine.most_bytes() + LONGEST_PATH,
            Self::Finding(Finding::MappedFiles) => MOST_OF_MAPPED_FILES,
            Self::Finding(Finding::Arenas) => MOST_OF_ARENAS,
            Self::Own | Self::Finding(_) => MOST_OF_OWN,
            Self::Named(NamedFile::Stamp) => 1 << 10,
            Self::Named(NamedFile::Image) => MOST_OF_IMAGE,
            Self::Named(NamedFile::Page) => imas_abi::TRIAL_PAGE_BYTES,
        }
    }

    /// Whether the helper works or waits by its own will, within bounds of its own: a user has asked for it.
    pub(super) fn is_waited_for(self) -> bool {
        self == Self::Finding(Finding::TrimFromOutside) || self.is_search()
    }

    fn is_search(self) -> bool {
        matches!(self, Self::Finding(Finding::LeaksBegin | Finding::LeaksGoOn))
    }

    /// Most CPU time of the helper. A search bounds its own by the size of the process.
    fn most_cpu(self) -> Duration {
        if self.is_search() { Duration::MAX } else { MOST_CPU }
    }

    fn longest(self) -> Duration {
        if self.is_search() { 2 * LONGEST_SEARCH } else { LONGEST }
    }
}

/// A question with what it is about.
#[derive(Debug, Clone)]
pub(super) struct Asked<P> {
    pub(super) question: Question,
    /// Id of the process; of a file that somebody has named, the user.
    pub(super) subject: u32,
    /// Path of the file; empty where a process is asked about.
    pub(super) path: P,
}

impl Asked<&Path> {
    /// A question about a process.
    pub(super) fn about(subject: u32, question: Question) -> Self {
        Self { question, subject, path: Path::new("") }
    }

    /// The bytes that pass through the socket.
    ///
    /// # Errors
    /// When the path is longer than the kernel takes one.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let path = self.path.as_os_str().as_bytes();
        if path.len() > LONGEST_PATH {
            return Err(Error::from(ErrorKind::InvalidFilename));
        }
        let length = u32::try_from(path.len()).unwrap_or_default();
        let head = [self.subject, self.question.number(), length].map(u32::to_be_bytes);
        Ok([head.as_flattened(), path].concat())
    }
}

impl Asked<std::path::PathBuf> {
    /// Reads a question from the socket.
    ///
    /// # Errors
    /// When it ends, or what came is none.
    pub(super) fn read(socket: &mut impl Read) -> Result<Self> {
        let mut head = [[0; 4]; 3];
        socket.read_exact(head.as_flattened_mut())?;
        let [subject, number, length] = head.map(u32::from_be_bytes);
        let question = Question::of(number)?;
        let mut path = vec![0; (length as usize).min(LONGEST_PATH)];
        socket.read_exact(&mut path)?;
        Ok(Self { question, subject, path: OsStr::from_bytes(&path).into() })
    }
}

/// First argument of a helper.
pub(super) const HELPER_ARGUMENT: &str = "__read_foreign";
/// A helper that more looks than these, of a second all together, found asleep in the kernel is stuck.
const MOST_ASLEEP: u32 = 50;
/// Number of such looks for a helper that waits for another process by its own will, and has bounds of its own.
const MOST_ASLEEP_AT_WORK: u32 = 600;
/// A helper that works or waits for a CPU may take so long.
const LONGEST: Duration = Duration::from_secs(20);
/// The walk of a helper may take so much CPU time: page tables of 800 GB.
const MOST_CPU: Duration = Duration::from_secs(5);
/// One look of a search for leaks may take so long, by its own bounds.
pub(crate) const LONGEST_SEARCH: Duration = Duration::from_secs(30);
/// Time between two looks at what a slow helper does.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The helper's side: questions and answers pass through its standard input, a socket.
pub(super) fn help(answers: &Answers) -> Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let asked = Asked::read(&mut socket)?;
        let (code, bytes) = match super::answer(&asked, answers) {
            Ok(bytes) => (0, bytes),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => (TOO_LARGE, vec![]),
            Err(error) => (error.raw_os_error().unwrap_or(TOO_LARGE), vec![]),
        };
        let length = u32::try_from(bytes.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        socket.write_all([code.cast_unsigned(), length].map(u32::to_be_bytes).as_flattened())?;
        socket.write_all(&bytes)?;
    }
}

/// A helper, as the program sees it that has started it.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    socket: UnixStream,
}

/// Waiting for an answer.
struct Waiting<'a> {
    begin: Instant,
    /// Looks that found the helper asleep.
    asleep: u32,
    /// More of them, and it is stuck.
    most_asleep: u32,
    /// CPU time of the helper at the first look.
    cpu: Option<Duration>,
    /// More of it, or of time, and it is stuck.
    most_cpu: Duration,
    longest: Duration,
    /// Called at each look.
    slow: &'a dyn Fn(),
}

impl Waiting<'_> {
    /// Whether a look that finds this is the last one. Looks are counted, not the time between them: where we get no
    /// CPU ourselves, a single look would stand for seconds.
    fn is_over(&mut self, is_asleep: bool, cpu: Duration) -> bool {
        self.asleep += u32::from(is_asleep);
        let used = cpu.saturating_sub(*self.cpu.get_or_insert(cpu));
        self.asleep > self.most_asleep || self.begin.elapsed() > self.longest || used > self.most_cpu
    }
}

impl Helper {
    pub(super) fn start() -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(HELPER_ARGUMENT).env_clear().env("IMAS_DISABLE", "1");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        ours.set_read_timeout(Some(BETWEEN_LOOKS))?;
        Ok(Self { child, socket: ours })
    }

    /// The inner result is the answer; the outer one says whether the helper is of further use.
    pub(super) fn ask(&mut self, asked: &Asked<&Path>, slow: &dyn Fn()) -> Result<Result<Vec<u8>>> {
        let begin = Instant::now();
        let most_asleep = if asked.question.is_waited_for() { MOST_ASLEEP_AT_WORK } else { MOST_ASLEEP };
        let (most_cpu, longest) = (asked.question.most_cpu(), asked.question.longest());
        let mut waiting = Waiting { begin, asleep: 0, most_asleep, cpu: None, most_cpu, longest, slow };
        self.socket.write_all(&asked.bytes()?)?;
        let mut head = [[0; 4]; 2];
        self.receive(head.as_flattened_mut(), &mut waiting)?;
        let [code, length] = head.map(u32::from_be_bytes);
        if code != 0 {
            return Ok(Err(failed(code.cast_signed())));
        }
        if length as usize > asked.question.most_bytes() {
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

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, and waits for its end.
    pub(super) fn end(mut self) {
        let _ = self.child.kill(); // it has ended, perhaps
        let _ = self.child.wait();
    }

    /// Kills it; returned where it has not ended.
    pub(super) fn killed(mut self) -> Option<Child> {
        let _ = self.child.kill(); // it has ended, perhaps
        matches!(self.child.try_wait(), Ok(None)).then_some(self.child)
    }
}

/// Whether the other end of the socket is gone.
pub(super) fn is_of_ended(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        assert_eq!(Question::all().count(), FILES.len() + 1 + FINDINGS.len() + NAMED.len());
        for question in Question::all() {
            let asked = Asked { question, subject: 7, path: Path::new("/a b") };
            let read = Asked::read(&mut asked.bytes().unwrap().as_slice()).unwrap();
            assert_eq!((read.question, read.subject, read.path.as_path()), (question, 7, asked.path));
        }
        let long = "x".repeat(LONGEST_PATH + 1);
        assert!(Asked { question: Question::Own, subject: 1, path: Path::new(&long) }.bytes().is_err());
        assert!(Asked::read(&mut [0xff; 12].as_slice()).is_err());
    }

    #[test]
    fn a_helper_that_sleeps_now_and_then_is_waited_for_and_one_that_only_sleeps_is_not() {
        let looks_until_over = |is_asleep: fn(u32) -> bool, cpu_each: Duration| {
            let begin = Instant::now();
            let (most_cpu, longest) = (MOST_CPU, LONGEST);
            let mut waiting = Waiting {
                begin,
                asleep: 0,
                most_asleep: MOST_ASLEEP,
                cpu: None,
                most_cpu,
                longest,
                slow: &|| {},
            };
            (0..1000).position(|look| waiting.is_over(is_asleep(look), cpu_each * look))
        };
        assert_eq!(looks_until_over(|_| true, Duration::ZERO), Some(50));
        assert_eq!(looks_until_over(|look| look % 10 == 0, Duration::ZERO), Some(500));
        assert_eq!(looks_until_over(|_| false, Duration::ZERO), None, "it waits for a CPU");
        assert_eq!(looks_until_over(|_| false, Duration::from_millis(20)), Some(251), "works 5 s");
    }
}
