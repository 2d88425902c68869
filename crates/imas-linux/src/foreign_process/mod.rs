// SPDX-License-Identifier: Apache-2.0
//! Reads what other users' processes are: the files below /proc that describe their memory, and the files that they
//! name.
//!
//! The kernel takes the lock of that memory to answer, and the process can hold it for ever (a mapping of a FUSE
//! file whose server does not answer). A path that a process names, as its arguments or by what it has mapped, may lead
//! to such a file system, or into /proc itself. What waits there ends by SIGKILL alone, and a thread that waits keeps its
//! process from ending. So another process looks, the helper: this very program, started once more. One that is stuck is
//! killed, and the process it looked at is left alone for good. What is read is bounded, whatever the process has made
//! of it, and slow reads are bounded for the owner of the processes (`owner_time`).
//!
//! A program has a helper if its `main` begins with [`crate::foreign_file::help_if_asked`]. Others, such as tests, read for
//! themselves. Where a read may take seconds, a thread reads by a [`ForeignReader`] of its own.
//!
//! Answers of a helper. Each may have to wait for a file system, or for the lock of a process's memory: it
//! runs in the helper, and in programs that have none.

mod question;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use procfs::FromRead as _;
use procfs::process::{MemoryMaps, Process, Stat};

use crate::container::{self, Container};
use crate::files::Executable;
use crate::in_time::{OwnerTimes, ROOT};
use crate::mapping_text;
use question::{Asked, HELPER_ARGUMENT, Helper, Question, help, is_of_ended};

pub use question::ForeignFile;
pub(crate) use question::{Finding, LONGEST_SEARCH, MOST_OF_MAPPED_FILES, NamedFile};

/// Processes that are left alone; more are forgotten.
const MOST_LEFT_ALONE: usize = 4096;
/// Processes that are counted as not looked at.
const MOST_UNSEEN: usize = 1 << 16;
/// Most killed helpers that have not ended and that looked at files of root or of the caller, on a network file system that
/// does not answer, for example. At this number no such file is looked at.
const MOST_OF_OWN_FILES: usize = 4;

/// Reads the file of a process.
///
/// # Errors
/// When there is no such process, or it is not ours to look at. `FileTooLarge` when there is more of it than a
/// process has; `TimedOut` for a process that does not let itself be looked at, and for one whose owner's processes
/// have taken too much time.
pub fn read(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    // An answer that is made here may read in turn.
    if is_read_here(pid) {
        return answer_of(pid, file);
    }
    reader().read(pid, file, || owner_of(pid))
}

/// Runs a question of the program itself about a process in a helper: `answer`, which
/// [`crate::foreign_file::help_if_asked_with`] was given as well.
///
/// # Errors
/// As [`read`].
pub fn ask(pid: u32, answer: OwnAnswer) -> Result<Vec<u8>> {
    if !HELPS.load(Ordering::Relaxed) {
        return answer(pid);
    }
    reader().ask(pid, Question::Own, &|| owner_of(pid))
}

/// Findings about a process by the files that it names. A program without a helper finds it out `here`.
///
/// # Errors
/// As [`read`].
pub(crate) fn find_out(pid: u32, finding: Finding, here: OwnAnswer) -> Result<Vec<u8>> {
    if is_read_here(pid) {
        return here(pid);
    }
    reader().ask(pid, Question::Finding(finding), &|| owner_of(pid))
}

/// Facts about a file whose path somebody else has named. `owner` answers for that path, `uid` is whose page
/// it has to be. A program without a helper finds it out `here`.
///
/// # Errors
/// When it is not there, or may not be read; `TimedOut` as for [`read`].
pub(crate) fn ask_named(
    file: NamedFile,
    path: &Path,
    (owner, uid): (u64, u32),
    here: fn(NamedFile, &Path, u32) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    if !HELPS.load(Ordering::Relaxed) {
        return here(file, path, uid);
    }
    reader().ask_named(&Asked { question: Question::Named(file), subject: uid, path }, owner)
}

/// Function that answers for a program what it finds out about the process with this id.
pub type OwnAnswer = fn(u32) -> Result<Vec<u8>>;

fn reader() -> MutexGuard<'static, ForeignReader> {
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who answers for a process: its pod or container, for pods of one cluster run as the same users. Else its real uid:
/// files in /proc of a process that cannot be dumped belong to root.
#[must_use]
pub fn owner_of(pid: u32) -> Option<u64> {
    if let Some(container) = CONTAINER_OF.with_borrow(|container_of| container_of(pid)) {
        return Some(container.account());
    }
    real_uid(pid).map(owner_of_uid)
}

/// Returns the real uid of a process: files in /proc of one that cannot be dumped belong to root.
#[must_use]
pub fn real_uid(pid: u32) -> Option<u32> {
    Some(Process::new(i32::try_from(pid).ok()?).ok()?.status().ok()?.ruid)
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

/// Says for this thread in which container a process is; without it groups are as in most clusters.
pub fn set_containers(container_of: impl Fn(u32) -> Option<Container> + 'static) {
    CONTAINER_OF.set(Box::new(container_of));
}

/// Takes the ids of the processes that [`read`] has not looked at since this was called last, or not at all of them:
/// their owner's have taken too much time, or there is more than a process has.
#[must_use]
pub fn take_unseen() -> BTreeSet<u32> {
    std::mem::take(&mut reader().unseen)
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

/// From here on this program reads by itself. Under yama a process may look at its descendants alone, and the helper is
/// none of their ancestors.
pub fn read_without_helper() {
    HELPS.store(false, Ordering::Relaxed);
}

/// Ends the helper, which is a child of this process. The next [`read`] starts another.
pub(crate) fn end_helper() {
    let helper = reader().helper.take();
    if let Some(helper) = helper {
        helper.end();
    }
}

/// Does a helper's work if this process was started as one, and returns true at its end. Otherwise [`read`] starts a
/// helper when it needs one.
pub(crate) fn help_if_asked_with(answers: &Answers) -> bool {
    if std::env::args_os().nth(1).is_some_and(|word| word == HELPER_ARGUMENT) {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let _ = help(answers); // it ends with the program that has started it
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
    static CONTAINER_OF: RefCell<Box<dyn Fn(u32) -> Option<Container>>> = RefCell::new(Box::new(container::of_process));
}

const GONE: i32 = rustix::io::Errno::SRCH.raw_os_error();
const TOO_LARGE: i32 = rustix::io::Errno::FBIG.raw_os_error();

/// Reads by a helper of its own.
#[derive(Debug, Default)]
pub struct ForeignReader {
    helper: Option<Helper>,
    owners: OwnerTimes,
    /// Processes on which a helper was stuck: pid and start.
    left_alone: BTreeSet<(u32, u64)>,
    /// Processes that were not looked at ([`take_unseen`]).
    unseen: BTreeSet<u32>,
    /// Killed helpers that have not ended, on files of root and of the caller.
    of_own_files: Vec<Child>,
}

impl ForeignReader {
    /// Reads the file of a process; `owner` is who answers for it.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&mut self, pid: u32, file: ForeignFile, owner: impl Fn() -> Option<u64>) -> Result<Vec<u8>> {
        if is_read_here(pid) {
            return answer_of(pid, file);
        }
        self.ask(pid, Question::File(file), &owner)
    }

    /// Returns what the function [`find_out`] does, by this reader.
    pub(crate) fn find_out(
        &mut self,
        pid: u32,
        (finding, here): (Finding, OwnAnswer),
        owner: impl Fn() -> Option<u64>,
    ) -> Result<Vec<u8>> {
        if is_read_here(pid) { here(pid) } else { self.ask(pid, Question::Finding(finding), &owner) }
    }

    fn ask(&mut self, pid: u32, question: Question, owner: &dyn Fn() -> Option<u64>) -> Result<Vec<u8>> {
        let answer = self.ask_in_time(pid, question, owner);
        let is_unseen = |error: &Error| matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::FileTooLarge);
        if answer.as_ref().is_err_and(is_unseen) && self.unseen.len() < MOST_UNSEEN {
            self.unseen.insert(pid);
        }
        answer
    }

    fn ask_in_time(
        &mut self,
        pid: u32,
        question: Question,
        owner: &dyn Fn() -> Option<u64>,
    ) -> Result<Vec<u8>> {
        let start = start_ticks(pid).ok_or(ErrorKind::NotFound)?;
        let begin = Instant::now();
        // Once, and while the process lives: one that ends during a slow read has no owner any more.
        let known = OnceCell::new();
        let owner = || *known.get_or_init(owner);
        if self.left_alone.contains(&(pid, start)) || !self.owners.allows(owner, begin) {
            return Err(ErrorKind::TimedOut.into());
        }
        let (answer, killed) = self.answer(&Asked::about(pid, question), &|| {
            owner();
        });
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            self.leave_alone((pid, start));
        }
        let is_quick = question.is_waited_for() && killed.is_none();
        let took = if is_quick { Duration::ZERO } else { begin.elapsed() };
        self.owners.add(owner, took, killed, Instant::now());
        answer
    }

    /// A slow disk makes reads of root's and of the caller's own files slow: they are not bounded, but for those that never
    /// end.
    fn ask_named(&mut self, asked: &Asked<&Path>, owner: u64) -> Result<Vec<u8>> {
        let begin = Instant::now();
        let is_own = owner == ROOT || owner == owner_of_uid(rustix::process::getuid().as_raw());
        self.of_own_files.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let is_allowed = match is_own {
            true => self.of_own_files.len() < MOST_OF_OWN_FILES,
            false => self.owners.allows(|| Some(owner), begin),
        };
        if !is_allowed {
            return Err(ErrorKind::TimedOut.into());
        }
        let (answer, killed) = self.answer(asked, &|| {});
        match is_own {
            true => self.of_own_files.extend(killed),
            false => self.owners.add(|| Some(owner), begin.elapsed(), killed, Instant::now()),
        }
        answer
    }

    /// Counts time that reads of the owner's processes have taken together, though each was quick.
    pub fn charge(&mut self, owner: u64, took: Duration) {
        self.owners.add(|| Some(owner), took, None, Instant::now());
    }

    /// Answer to the question, with the helper if that was killed and has not ended. `slow` is called while a slow
    /// answer is waited for.
    fn answer(&mut self, asked: &Asked<&Path>, slow: &dyn Fn()) -> (Result<Vec<u8>>, Option<Child>) {
        let started = self.helper.take().map_or_else(Helper::start, Ok);
        let answered = started.and_then(|mut helper| match helper.ask(asked, slow) {
            // The kernel ends a helper with the thread that has started it, which is noticed when it is asked.
            Err(error) if is_of_ended(&error) => {
                drop(helper.killed());
                let mut helper = Helper::start()?;
                Ok((helper.ask(asked, slow), helper))
            }
            answer => Ok((answer, helper)),
        });
        match answered {
            Err(error) => (Err(error), None),
            Ok((Err(error), helper)) => (Err(error), helper.killed()),
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

/// Whether no helper is asked: the program has none, or it is this very process.
fn is_read_here(pid: u32) -> bool {
    !HELPS.load(Ordering::Relaxed) || pid == std::process::id()
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

/// Room for most command lines and environments.
const USUAL_BYTES: usize = 8192;

/// Answers of modules that ask in turn: a helper is given them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    /// To the program's own question.
    pub(super) own: OwnAnswer,
    /// Findings about a process by the files that it names.
    pub(super) finding: fn(Finding, u32) -> Result<Vec<u8>>,
    /// Facts about a file that somebody has named, for this user.
    pub(super) named: fn(NamedFile, &Path, u32) -> Result<Vec<u8>>,
}

/// Returns the answer to the question, found out by this very process.
fn answer(asked: &Asked<impl AsRef<Path>>, answers: &Answers) -> Result<Vec<u8>> {
    let bytes = match asked.question {
        Question::File(file) => answer_of(asked.subject, file)?,
        Question::Own => (answers.own)(asked.subject)?,
        Question::Finding(finding) => (answers.finding)(finding, asked.subject)?,
        Question::Named(file) => (answers.named)(file, asked.path.as_ref(), asked.subject)?,
    };
    if bytes.len() > asked.question.most_bytes() { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Returns what the file of the process has.
fn answer_of(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    let task = mapping_text::living_thread(pid);
    let path = format!("/proc/{task}/{}", file.name());
    let most = file.most_bytes();
    match file {
        ForeignFile::Activity => {
            let text = crate::activity::text_of(pid).ok_or_else(|| failed(GONE))?;
            Ok(text.into_bytes())
        }
        ForeignFile::Heaps => crate::heap::text_of(task),
        ForeignFile::JvmCounters => crate::jvm_heap::of_process(task),
        ForeignFile::Executable => Ok(executable_text(&std::fs::metadata(path)?)),
        // Each read looks at the process anew. By several, these texts would be torn where the process ends or runs
        // another image in between, and the beginning of a name would be taken for the name.
        ForeignFile::CommandLine | ForeignFile::Environment => {
            let mut bytes = vec![];
            for room in [USUAL_BYTES, most + 1] {
                bytes.resize(room, 0);
                let got = File::open(&path)?.read(&mut bytes)?;
                bytes.truncate(got);
                if got < room {
                    break;
                }
            }
            bounded(bytes, most)
        }
        ForeignFile::SmapsRollup => {
            let mut bytes = vec![];
            File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
            bounded(bytes, most)
        }
    }
}

fn bounded(bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
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
    parsed().ok_or_else(|| Error::from(ErrorKind::InvalidData))
}
