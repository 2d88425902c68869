// SPDX-License-Identifier: Apache-2.0
//! Facts of the kernel about a process and its threads in /proc, before a thread is touched.
//!
//! The memory of a process while one of its threads stands still.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;

use procfs::process::{Process, Status};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::frame::{RED_ZONE, SIGN};
use crate::waits::{Call, Wait};

/// Threads of a process that are looked at in one round.
const MOST_THREADS: usize = 2000;

/// A thread that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) tid: i32,
    pub(crate) call: Call,
    pub(crate) wait: Wait,
}

/// A process that may be asked.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    process: Process,
    pidfd: Option<OwnedFd>,
}

impl Target {
    /// Refuses a process as a whole.
    pub(crate) fn of(pid: u32) -> Result<Self, LeftAlone> {
        let pid = i32::try_from(pid).map_err(|_| LeftAlone::Ended)?;
        let process = Process::new(pid).map_err(|_| LeftAlone::Ended)?;
        let status = process.status().map_err(|_| LeftAlone::Ended)?;
        judged(&status)?;
        // A kernel before 5.6 has none of this: limits of sockets are not known there.
        let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self { pid, process, pidfd })
    }

    /// Number of threads that wait and may be interrupted, those first that bear it best.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut waiting: Vec<Waiting> = threads.take(MOST_THREADS).filter_map(|tid| self.look(tid)).collect();
        waiting.sort_by_key(|thread| thread.wait);
        waiting
    }

    /// The thread's wait, if it is in one that is judged.
    pub(crate) fn look(&self, tid: i32) -> Option<Waiting> {
        let call = self.call(tid)?;
        let wait = call.wait()?;
        // The kernel ends a read of a socket with a limit by EINTR: it could only be begun again.
        let is_limited = wait == Wait::Again && call.socket().is_some_and(|number| self.is_limited(number));
        Some(Waiting { tid, call, wait: if is_limited { Wait::JustBegun } else { wait } })
    }

    /// The system call in which the thread is.
    pub(crate) fn call(&self, tid: i32) -> Option<Call> {
        Call::parsed(&fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?)
    }

    /// Whether the file is a socket with SO_RCVTIMEO, or may be one.
    fn is_limited(&self, number: i32) -> bool {
        let Some(pidfd) = &self.pidfd else { return true };
        let Ok(copy) = pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()) else { return true };
        let limit = rustix::net::sockopt::socket_timeout(copy.as_fd(), rustix::net::sockopt::Timeout::Recv);
        match limit {
            Ok(limit) => limit.is_some(),
            Err(error) => error != rustix::io::Errno::NOTSOCK,
        }
    }

    /// How often the thread began to wait.
    pub(crate) fn waits_begun(&self, tid: i32) -> Option<u64> {
        self.process.task_from_tid(tid).ok()?.status().ok()?.voluntary_ctxt_switches
    }

    /// The thread's own state: filters of system calls, and the reasons that hold for a process.
    pub(crate) fn has_filter(&self, tid: i32) -> Result<bool, LeftAlone> {
        let status =
            self.process.task_from_tid(tid).and_then(|task| task.status()).map_err(|_| LeftAlone::Ended)?;
        judged(&status)?;
        Ok(status.seccomp.unwrap_or(0) != 0)
    }

    /// The mapping where the address lies, if it is private memory that can be written, and whether the kernel calls it
    /// the stack of the first thread. Mappings are read one after the other: there may be a million.
    pub(crate) fn mapping(&self, address: u64) -> Option<(Range, bool)> {
        let lines = BufReader::new(File::open(format!("/proc/{}/maps", self.pid)).ok()?).split(b'\n');
        let mut maps = lines.map_while(Result::ok).filter_map(|line| mapping(&line));
        let (range, is_memory, is_first) = maps.find(|(range, ..)| range.has(address))?;
        is_memory.then_some((range, is_first))
    }

    /// Resident anonymous bytes.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        let rollup = self.process.smaps_rollup().ok()?;
        rollup.memory_map_rollup.0.first()?.extension.map.get("Anonymous").copied()
    }

    /// Whether the thread stands in the kernel's refrigerator.
    pub(crate) fn is_frozen(&self, tid: i32) -> bool {
        let place = fs::read_to_string(format!("/proc/{}/task/{tid}/wchan", self.pid)).unwrap_or_default();
        place.contains("freezer") || place.contains("refrigerator")
    }

    /// Whether its shadow stack is on, where the kernel knows such.
    pub(crate) fn has_shadow_stack(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
        features.is_some_and(|features| features.contains("shstk"))
    }
}

/// The mapping in a line of `maps`; whether it is private memory of no file that can be read and written; whether it is the
/// stack of the first thread.
fn mapping(line: &[u8]) -> Option<(Range, bool, bool)> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = Range { begin: number(begin)?, end: number(end)? };
    let is_own = words.next()?.starts_with("rw") && line.split_ascii_whitespace().nth(1)?.ends_with('p');
    let name = words.nth(3).unwrap_or_default();
    Some((range, is_own && !name.starts_with('/'), is_own && name == "[stack]"))
}

fn judged(status: &Status) -> Result<(), LeftAlone> {
    match u32::try_from(status.tracerpid) {
        Ok(0) | Err(_) => {}
        Ok(tracer) => return Err(LeftAlone::Traced(tracer)),
    }
    if status.state.starts_with(['T', 't', 'Z', 'X']) {
        return Err(LeftAlone::Standing);
    }
    // malloc_trim's calls would fail and change errno, which the program may look at.
    if status.vmlck.unwrap_or(0) > 0 {
        return Err(LeftAlone::Locked);
    }
    Ok(())
}

// Whether there is room below a thread's stack pointer that nobody else uses.
//
// What lies below a stack pointer is free only on a stack: a goroutine, a fiber or a coroutine may have its stack
// between other data, and in a signal handler the stack may be an array of the program. Two stacks are known: the
// kernel's own for the first thread (`[stack]`), and the one that glibc's record of the thread names. The record
// begins or ends at the thread pointer, and has the stack's begin, size and guard side by side.

/// Room that malloc_trim itself may use. It has a few small frames.
const FOR_TRIM: u64 = 16 << 10;
/// Most bytes from the thread pointer to the end of its stack: the record, variables of threads, an alignment.
const MOST_ABOVE: u64 = 4 << 20;
/// Most bytes of a stack that are searched for a signal frame.
const MOST_SEARCHED: u64 = 1 << 20;

/// Addresses from the first to the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Range {
    pub(super) fn has(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }
}

/// A thread that stands still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// Its stack pointer.
    pub(super) pointer: u64,
    /// Its thread pointer.
    pub(super) thread: u64,
    /// Words of its record.
    pub(super) record: &'a [u64],
    /// Private writable mapping in which the stack pointer lies.
    pub(super) mapping: Range,
    /// Whether the kernel calls that mapping the stack of the first thread, and this is the first thread.
    pub(super) is_first: bool,
}

impl Standing<'_> {
    /// The stack on which the thread runs.
    pub(super) fn stack(&self) -> Result<Range, Unfit> {
        if self.is_first {
            return Ok(self.mapping);
        }
        let page = rustix::param::page_size() as u64;
        let named = self.record.windows(3).find_map(|words| {
            let [begin, bytes, guard] = words.try_into().ok()?;
            let end = begin.checked_add(bytes)?;
            let is_stack = begin.is_multiple_of(16)
                && begin <= self.pointer
                && self.pointer < self.thread
                && self.thread < end
                && end - self.thread <= MOST_ABOVE
                && guard < bytes
                && guard.is_multiple_of(page);
            is_stack.then(|| Range { begin: begin + guard, end })
        });
        let stack = named.ok_or(Unfit::UnknownStack)?;
        // The record's claim counts as far as memory is mapped there.
        let begin = stack.begin.max(self.mapping.begin);
        let stack = Range { begin, end: stack.end.min(self.mapping.end) };
        if stack.has(self.pointer) { Ok(stack) } else { Err(Unfit::UnknownStack) }
    }

    /// Whether `frame` bytes and malloc_trim have room below the stack pointer.
    pub(super) fn has_room(&self, stack: Range, frame: u64) -> bool {
        self.pointer.checked_sub(RED_ZONE + frame + FOR_TRIM).is_some_and(|lowest| lowest >= stack.begin)
    }

    /// The part of the stack that is in use, as far as it is searched for signal frames.
    pub(super) fn in_use(&self, stack: Range) -> Range {
        Range { begin: self.pointer, end: stack.end.min(self.pointer.saturating_add(MOST_SEARCHED)) }
    }
}

/// Whether words of a stack have a signal frame, so that the thread may be in a handler. A handler may have
/// interrupted malloc, and a process of one thread takes no lock in malloc.
pub(super) fn has_signal_frame(words: &[u64]) -> bool {
    words.contains(&SIGN)
}

/// Why no thread of a process was made to call `malloc_trim`. Nothing was changed then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LeftAlone {
    #[error("it has ended")]
    Ended,
    #[error("it did not stand still when asked: it is stopped, frozen or gets no processor")]
    Standing,
    #[error("process {0} traces it: a debugger, strace or a container's sandbox")]
    Traced(u32),
    #[error("it has locked its memory (mlock): the kernel takes no locked page back")]
    Locked,
    #[error("it runs with a shadow stack")]
    ShadowStack,
    #[error(
        "it may not be traced: that takes root, a parent, or its owner where kernel.yama.ptrace_scope is 0"
    )]
    NotAllowed,
    #[error("it has a filter of system calls (seccomp) that root alone may read")]
    FilterUnread,
    #[error("its filter of system calls (seccomp) does not let malloc_trim do {0}")]
    Filter(String),
    #[error("it runs another program by now")]
    OtherProgram,
    #[error("no thread of it waits in a call in which it may be interrupted: {0}")]
    NoThread(String),
    #[error("the kernel refused: {0}")]
    Kernel(String),
}

impl LeftAlone {
    /// Whether a later try may find it otherwise: threads come to wait, and locks become free.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoThread(_) | Self::Standing)
    }

    pub(super) fn of_errno(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Ended,
            Some(libc::EPERM | libc::EACCES) => Self::NotAllowed,
            _ => Self::Kernel(error.to_string()),
        }
    }
}

/// Why one thread was let go; another one may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It went on before it stood still.
    WentOn,
    /// The address of its stack is in no stack that is known: a coroutine, a fiber, an alternative signal stack.
    UnknownStack,
    /// There is no room below its stack pointer.
    NoRoom,
    /// A signal frame lies on its stack.
    InHandler,
    /// The lock of an arena was never seen free.
    LockHeld,
    /// Its wait did not end in time, and has a limit that only the kernel knows.
    TimeLimit,
    /// It entered the kernel in another way than by the instruction for system calls.
    OtherEntry,
}

impl Unfit {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::WentOn => "its threads are busy",
            Self::UnknownStack => {
                "the thread is on no stack of its own (a coroutine, a fiber, a signal handler)"
            }
            Self::NoRoom => "the thread's stack has no room",
            Self::InHandler => "the thread is in a signal handler",
            Self::LockHeld => "the lock of an arena was never seen free",
            Self::TimeLimit => "the thread's wait has a time limit, and did not end meanwhile",
            Self::OtherEntry => "the thread entered the kernel in an unknown way",
        }
    }
}

/// Memory that can be read and written at addresses.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// The memory that the thread has now. Its program cannot become another one while the thread stands still.
    pub(super) fn of_thread(tid: i32) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(format!("/proc/{tid}/mem"))?))
    }

    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, address).ok()
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    #[test]
    fn private_memory_of_no_file_is_told_from_the_rest() {
        let of = |line: &str| mapping(line.as_bytes()).map(|(_, is_memory, is_stack)| (is_memory, is_stack));
        assert_eq!(of("7f00-7fff rw-p 00000000 00:00 0                 [stack]"), Some((true, true)));
        assert_eq!(of("7f00-7fff rw-p 00000000 00:00 0 "), Some((true, false)));
        assert_eq!(of("7f00-7fff rw-p 00000000 00:00 0 [anon: a b]"), Some((true, false)));
        assert_eq!(of("7f00-7fff rw-s 00000000 00:00 0 [stack]"), Some((false, false)));
        assert_eq!(of("7f00-7fff r--p 00000000 00:00 0 "), Some((false, false)));
        assert_eq!(of("7f00-7fff rw-p 00000000 08:01 5 /a [stack]"), Some((false, false)));
        assert_eq!(of("no mapping"), None);
        let here = Target::of(std::process::id()).unwrap();
        let local = 1u8;
        let (range, _) = here.mapping(&raw const local as u64).unwrap();
        assert!(range.has(&raw const local as u64) && here.mapping(0x10).is_none());
    }

    const MAPPING: Range = Range { begin: 0x7f00_0000_1000, end: 0x7f00_0080_1000 };
    const THREAD: u64 = MAPPING.end - 0x900;

    fn standing(pointer: u64, record: &[u64]) -> Standing<'_> {
        Standing { pointer, thread: THREAD, record, mapping: MAPPING, is_first: false }
    }

    #[test]
    fn the_stack_is_the_one_that_the_record_of_the_thread_names() {
        let guard = rustix::param::page_size() as u64;
        let begin = MAPPING.begin - guard;
        let record = [7, 0, begin, MAPPING.end - begin, guard, guard];
        let pointer = THREAD - 0x2000;
        assert_eq!(standing(pointer, &record).stack(), Ok(MAPPING));
        assert!(standing(pointer, &record).has_room(MAPPING, 4096));
        assert!(!standing(MAPPING.begin + 0x2000, &record).has_room(MAPPING, 4096), "too deep");
        for other in [begin - 0x10_0000, THREAD + 8] {
            assert_eq!(standing(other, &record).stack(), Err(Unfit::UnknownStack), "not on its own stack");
        }
        assert_eq!(standing(pointer, &[1, 2, 3]).stack(), Err(Unfit::UnknownStack), "no such record");
        let first = Standing { is_first: true, ..standing(pointer, &[]) };
        assert_eq!(first.stack(), Ok(MAPPING));
    }

    #[test]
    fn a_signal_frame_is_seen() {
        assert!(!has_signal_frame(&[1, 2, 3]));
        assert!(has_signal_frame(&[1, SIGN, 3]));
    }

    proptest! {
        #[test]
        fn whatever_a_record_claims_the_room_is_in_the_mapping(
            record in proptest::collection::vec(any::<u64>(), 0..40),
            near in proptest::collection::vec(0u64..0x100_0000, 3),
            offset in 0u64..0x80_0000,
        ) {
            let mut record = record;
            record.extend([MAPPING.begin.wrapping_sub(near[0]) & !15, near[1], near[2] & !0xfff]);
            let standing = standing(MAPPING.begin + offset, &record);
            if let Ok(stack) = standing.stack() {
                prop_assert!(MAPPING.begin <= stack.begin && stack.end <= MAPPING.end && stack.has(standing.pointer));
                prop_assert!(!standing.has_room(stack, 3000) || standing.pointer - 3000 > MAPPING.begin);
            }
        }
    }
}
