// SPDX-License-Identifier: Apache-2.0
//! Bytes of a trial page to a [`Sample`]. The page was written by the program under trial,
//! so every byte is hostile.
//!
//! ```text
//! file --file--> bytes --parse--> Page (typed, in range) --merge--> Sample
//! ```
//!
//! The bytes are copied out of the file once and each field is read once from the copy: nothing can change
//! between check and use, and a file that shrinks is an error, not a SIGBUS, since nothing is mapped.
//!
//! **Refused** ([`PageError`]): wrong size, magic, version or kind; a page that was never armed; a flag,
//! state, reason or signal out of its range; a string that is not closed, is empty where it must not be,
//! holds a control character, or a character that its kind of name has not; a counter beyond `i64::MAX` (the
//! store's largest integer), alone or summed over the slots; memory beyond 2^57 bytes (what five-level page
//! tables can address); a life of over a century; more timed calls than calls; a mean call of over ten
//! seconds; clock reads of over a million ticks.
//!
//! **Clamped or left out**, because an honest page of a process killed at a bad moment, or of a machine with
//! a bad clock, may look like that: a mean above the peak becomes the peak; a time in the future becomes now;
//! a mean call cheaper than the empty pair becomes 0; an exit status keeps its low eight bits; without a
//! usable pair of clocks no call counts as timed; a path that is not UTF-8 has the bad bytes replaced.
//!
//! A page that has been judged: every field has its type and its range.

#![forbid(unsafe_code)]

mod calls;
mod merge;
mod parse;

use std::io;

use imas_abi::OPS;
use imas_core::Sample;
use imas_core::sample::{Ended, MemoryFigures, PageKind, Usage};

use crate::taskstats::Account;
use calls::{Calls, Clock};

pub use merge::{ExpectedPage, merge, read_page_at, read_page_file};
pub(crate) use merge::{page_bytes, page_of_bytes};
pub use parse::parse;

/// Why a program is left alone that sets a filter of system calls unseen.
pub(super) const OWN_FILTER: &str = "own-filter";

/// How far the injected code came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The injected code did nothing: the page is still as the launcher left it.
    Armed,
    /// The constructor of the injected code began.
    Entered,
    /// The candidate serves, uncounted.
    Active,
    /// The candidate serves and is counted.
    Trial,
    /// The injected code stood aside.
    Pass,
}

/// The page of one process. Its identity is a claim of the page. A caller that must be certain compares pid,
/// start and uid with the kernel's.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedPage {
    /// Trial or flight.
    pub kind: PageKind,
    /// The process.
    pub pid: u32,
    /// Real uid of the process.
    pub uid: u32,
    /// Field 22 of /proc/PID/stat: with the pid and the boot id it names the process for ever.
    pub process_start_ticks: u64,
    /// The kernel's boot id.
    pub boot_id: String,
    /// When the page was made, seconds since the epoch.
    pub made_unix_s: f64,
    /// Unique per trial; pages of children repeat it.
    pub trial_id: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Resolved path of the executable; bytes that are not UTF-8 are replaced.
    pub program: String,
    /// Script, jar or main class of an interpreter; else empty.
    pub detail: String,
    /// Build-id in hex; empty when there is none.
    pub build_id: String,
    /// How far the injected code came.
    pub state: State,
    /// Why the injected code stood aside, a kebab-case word; None when it did not.
    pub pass_reason: Option<&'static str>,
    /// How the process ended. Means something only once it has.
    pub ended: Ended,
    /// `si_code` of the fatal signal, if any.
    pub fatal_code: u32,
    /// Whether the trial is in a system call that the program would not make.
    pub is_in_own_call: bool,
    /// Children made by fork.
    pub forks: u32,
    /// Made for a child of fork: its figures of live blocks begin with its parent's. After an exec a process
    /// has another page.
    pub is_forked: bool,
    /// Threads that ever allocated.
    pub threads: u32,
    /// The object whose malloc serves; empty when it was not found out.
    pub served: String,
    /// Snapshots' figures.
    pub memory: MemoryFigures,
    /// The kernel's account at exit.
    pub usage: Option<Usage>,
    pub(super) clock: Clock,
    pub(super) calls: Calls,
}

impl ParsedPage {
    /// Seconds from the hook's start to its last snapshot.
    pub fn wall_s(&self) -> f64 {
        self.clock.wall_s()
    }

    /// `CLOCK_MONOTONIC_RAW` when the injected code began its work, ns; 0 when it did not, or stood aside.
    pub fn begun_raw_ns(&self) -> u64 {
        self.clock.start_ns
    }

    /// Usable bytes in live blocks as the page has it at the moment, an estimate; 0 on a flight page.
    pub fn live_bytes_now(&self) -> u64 {
        self.calls.live_bytes
    }

    /// A page from the future was made with a clock that has since been set back: it is taken for made now,
    /// so that no wait is reckoned from a time that is yet to come.
    pub fn not_after(mut self, now_unix_s: f64) -> Self {
        self.made_unix_s = self.made_unix_s.min(now_unix_s);
        self
    }

    /// The page of a process into which nothing was loaded, with the kernel's account of it. One that was asked to end
    /// has no usage: it would have used more.
    #[must_use]
    pub fn accounted(self, account: &Account) -> Self {
        let ended = account.ended();
        let before_s = self.usage.as_ref().map_or(0.0, |used| used.user_s);
        let usage = matches!(ended, Ended::Clean { .. }).then(|| account.usage(before_s));
        let clock = Clock { start_ns: 0, last_ns: account.wall_us.saturating_mul(1000), ..self.clock };
        Self { state: State::Active, ended, memory: account.memory(), usage, clock, ..self }
    }

    /// The page of such a process without an account: nothing is known of it, and the candidate is not to
    /// blame.
    #[must_use]
    pub fn unaccounted(self) -> Self {
        let pass_reason = Some("no-account");
        Self { state: State::Pass, pass_reason, ended: Ended::Unknown, usage: None, ..self }
    }

    /// The page of a process that has ended, by `signal` where the kernel reported that. A trial that ended in a system
    /// call of ours was ended by a filter which the program set unseen: that is neither its fault nor the candidate's.
    #[must_use]
    pub fn of_ended(mut self, signal: Option<u32>) -> Self {
        const SIGSYS: u32 = 31;
        const SYS_SECCOMP: u32 = 1;
        let by_filter = match (self.ended, signal) {
            (Ended::Signal { signal: SIGSYS }, _) => self.fatal_code == SYS_SECCOMP,
            (Ended::Unknown, Some(signal)) => signal == SIGSYS,
            (Ended::Unknown, None) => self.is_in_own_call,
            _ => false,
        };
        if self.kind == PageKind::Trial && self.pass_reason.is_none() && by_filter {
            self.pass_reason = Some(OWN_FILTER);
        }
        self
    }

    /// The sample of a trial of this one process.
    pub fn to_sample(&self) -> Sample {
        let Calls { op, bytes_requested, refused, rounding_bytes, size_histogram, live_dropped, .. } =
            self.calls.clone();
        let [malloc, realloc, memalign, free]: [_; OPS] = op;
        Sample {
            trial_id: self.trial_id.clone(),
            candidate: self.candidate.clone(),
            made_unix_s: self.made_unix_s,
            ended: self.ended,
            pass_reason: self.pass_reason.map(str::to_owned),
            served: self.served.clone(),
            malloc,
            realloc,
            memalign,
            free,
            bytes_requested,
            refused,
            rounding_bytes,
            size_histogram,
            live_dropped,
            threads: self.threads,
            forks: self.forks,
            processes: 1,
            memory: self.memory.clone(),
            usage: self.usage.clone(),
            wall_s: self.wall_s(),
            activity: None,
            machine: String::new(),
            kind: self.kind,
            life: None,
        }
    }
}

/// Why the bytes are not a valid page.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum PageError {
    #[error("trial page has {0} bytes; a page has 4096 or 16384")]
    Size(usize),
    #[error("not a trial page: it starts with {0:#018x}")]
    Magic(u64),
    #[error("trial page has version {0}; this imas reads version {expected}", expected = imas_abi::PAGE_VERSION)]
    Version(u32),
    #[error("trial page says it has {header} bytes but has {file}")]
    SizeField {
        /// Size in the header, bytes.
        header: u32,
        /// Size of the file, bytes.
        file: usize,
    },
    #[error("trial page was never armed: the program was not started")]
    NotArmed,
    #[error("trial page field {field} cannot be {value}")]
    Range { field: &'static str, value: u64 },
    #[error("trial page field {field} {problem}")]
    Text { field: &'static str, problem: TextProblem },
    #[error("trial page is contradictory: {0}")]
    Contradiction(&'static str),
}

/// Fault of a string.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum TextProblem {
    #[error("is not closed")]
    Unterminated,
    #[error("is empty")]
    Empty,
    #[error("holds a control character")]
    Control,
    #[error("holds a character that such a name cannot have")]
    Charset,
    #[error("is not an absolute path")]
    NotAbsolute,
}

/// Why a file does not give a page.
#[derive(thiserror::Error, Debug)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ReadError {
    /// The file cannot be opened or read; a symbolic link is refused with ELOOP.
    #[error("cannot read the trial page: {0}")]
    Io(#[from] io::Error),
    #[error("the name of a trial page holds no slash")]
    Name,
    #[error("trial page is not a regular file")]
    NotRegular,
    #[error("trial page has {0} hard links; it must have one")]
    Links(u64),
    #[error("trial page belongs to uid {found}, not to uid {expected}")]
    Owner { found: u32, expected: u32 },
    /// The content of the file is not a page.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Why pages do not add up.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum MergeError {
    #[error("no trial page to sum up")]
    Empty,
    #[error("trial page of {found} among those of {expected}")]
    OtherTrial { expected: String, found: String },
    #[error("trial pages of {0} contradict each other in candidate, kind or boot")]
    Contradiction(String),
    #[error("trial pages add up to more than can be")]
    Overflow,
}
