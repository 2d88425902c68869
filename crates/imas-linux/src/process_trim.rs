// SPDX-License-Identifier: Apache-2.0
//! Free pages of a process that somebody else may own are given back from outside ([`imas_trim`]).
//!
//! Contents of the heaps of another process, read beside this one.
//!
//! Processes are looked at and trimmed as the rule says (`imas_core::trimming`).

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use imas_core::trimming::{TrimEnd, TrimHistory, TrimIdentity, TrimRule, TrimSums, TrimTurn, Trimmable};
use imas_trim::TrimTime;
use procfs::process::{Process, Status};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding, ForeignFile, ForeignReader};
use crate::heap::figures::{HeapAnswer, HeapFigures, NotReadable};
use crate::{heap, mapping_text, process};

pub use imas_trim::{Done, LeftAlone};

/// Time until a thread that may be interrupted was found, and then until it is back.
const TIME: TrimTime = TrimTime { find: Duration::from_secs(2), end: Duration::from_secs(8) };

/// Outcome of a trim from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromOutside {
    /// One of its threads called malloc_trim.
    Done(Done),
    /// It was left alone.
    LeftAlone(LeftAlone),
    /// Its heaps are not glibc's, or cannot be read.
    NotReadable(NotReadable),
}

/// Lets one waiting thread of a process call `malloc_trim(0)`: the process needs to know nothing of IMAS. It takes as
/// long as `TIME` at most.
///
/// # Errors
/// When it may not be looked at.
pub fn from_outside(pid: u32) -> io::Result<FromOutside> {
    parsed_outside(&foreign_process::find_out(pid, Finding::TrimFromOutside, outside_text_of)?)
}

/// Does the same by this reader; `owner` is who answers for the process.
///
/// # Errors
/// The trim of [`from_outside`].
fn from_outside_by(reader: &mut ForeignReader, pid: u32, owner: u64) -> io::Result<FromOutside> {
    let what = (Finding::TrimFromOutside, outside_text_of as foreign_process::OwnAnswer);
    parsed_outside(&reader.find_out(pid, what, || Some(owner))?)
}

fn parsed_outside(text: &[u8]) -> io::Result<FromOutside> {
    serde_json::from_slice(text).map_err(|_| ErrorKind::InvalidData.into())
}

/// Outcome of the trim, as a text that [`from_outside`] reads. Done in this very process.
pub(crate) fn outside_text_of(pid: u32) -> io::Result<Vec<u8>> {
    let pid = mapping_text::living_thread(pid);
    let answer = match heap::trim_site(pid)? {
        Err(reason) => FromOutside::NotReadable(reason),
        Ok(site) => match imas_trim::trim(pid, &site, TIME) {
            Ok(done) => FromOutside::Done(done),
            Err(reason) => FromOutside::LeftAlone(reason),
        },
    };
    Ok(serde_json::to_vec(&answer)?)
}

/// Result of the turn of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnTaken {
    /// Identity of the process.
    pub identity: TrimIdentity,
    /// How the turn ended.
    pub end: TrimEnd,
    /// Time that the look took, and the trim: no less than their CPU time.
    pub took: (Duration, Duration),
    /// Words for a log, without the process.
    pub words: String,
    /// Whether a log needs them: not where there was nothing to do yet.
    pub is_news: bool,
}

/// Returns how the process is now; None where it has ended.
#[must_use]
pub fn trimmable(pid: u32, owner: u64) -> Option<Trimmable> {
    let stat = process::stat(pid)?;
    let ticks = stat.utime.saturating_add(stat.stime);
    let cpu = Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64);
    let identity = TrimIdentity { pid, start_ticks: stat.starttime };
    Some(Trimmable { identity, owner, bytes: process::anonymous_bytes(pid).unwrap_or(0), cpu })
}

/// Looks into the heaps of the process, and trims it from outside if that is worth it.
pub fn take_turns(reader: &mut ForeignReader, rule: &TrimRule, turn: &TrimTurn) -> TurnTaken {
    let TrimTurn { identity, owner, budget } = *turn;
    let begun = Instant::now();
    let heaps = heaps_by(reader, identity.pid, || Some(owner));
    let look = begun.elapsed();
    let ended = |end, trim, words| TurnTaken { identity, end, took: (look, trim), words, is_news: true };
    let left_alone = |words: String| ended(TrimEnd::LeftAlone, Duration::ZERO, words);
    match heaps {
        Err(reason) => return left_alone(format!("is left alone: {reason}")),
        Ok(heaps) if !rule.is_worth_it(heaps.bytes.returnable, budget.saturating_sub(look)) => {
            let waits = ended(TrimEnd::NotNow, Duration::ZERO, waits(rule, heaps.bytes.returnable));
            return TurnTaken { is_news: false, ..waits };
        }
        Ok(_) => {}
    }
    if process::start_ticks(identity.pid).ok() != Some(identity.start_ticks) {
        return left_alone("has ended".to_owned());
    }
    let begun = Instant::now();
    match from_outside_by(reader, identity.pid, owner) {
        Ok(FromOutside::Done(done)) => {
            let returned = done.resident.map_or(0, |(before, after)| before.saturating_sub(after));
            let left = process::anonymous_bytes(identity.pid).unwrap_or(0);
            let trim = done.trim_ms.map_or_else(|| begun.elapsed(), |ms| Duration::from_secs_f64(ms / 1e3));
            ended(TrimEnd::Gave { returned, left }, trim, words(&done, returned))
        }
        Ok(FromOutside::LeftAlone(reason)) if reason.may_pass() => {
            ended(TrimEnd::NotNow, Duration::ZERO, format!("is left alone for now: {reason}"))
        }
        Ok(FromOutside::LeftAlone(reason)) => left_alone(format!("is left alone: {reason}")),
        Ok(FromOutside::NotReadable(reason)) => left_alone(format!("is left alone: {reason}")),
        Err(error) if error.kind() == ErrorKind::TimedOut => left_alone("took too long".to_owned()),
        Err(error) => left_alone(format!("is left alone: {error}")),
    }
}

/// Reason why a process that could be trimmed is not, for a log.
fn waits(rule: &TrimRule, free: u64) -> String {
    let (free, least) = (in_mib(free), in_mib(rule.at_least));
    match free < least {
        true => format!("has {free:.1} MiB to give back, and is left alone below {least:.0} MiB"),
        false => {
            format!("has {free:.1} MiB to give back, and has used too little CPU for the cost of a trim yet")
        }
    }
}

fn in_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn words(done: &Done, returned: u64) -> String {
    let mib = in_mib(returned);
    let Done { thread, stood_ms, .. } = done;
    format!("gave {mib:.1} MiB back: thread {thread} stood still for {stood_ms:.1} ms")
}

/// Trims processes round by round, with a memory of what came of each.
#[derive(Debug)]
pub struct Trimmer {
    rule: TrimRule,
    history: TrimHistory,
    reader: ForeignReader,
    /// The rule's clock begins here.
    begun: Instant,
}

impl Trimmer {
    /// Returns one that knows no process yet.
    #[must_use]
    pub fn new(rule: TrimRule) -> Self {
        let (history, reader) = (TrimHistory::default(), ForeignReader::default());
        Self { rule, history, reader, begun: Instant::now() }
    }

    /// Takes the turns that are due among these processes.
    pub fn round(&mut self, all: &[Trimmable]) -> Vec<TurnTaken> {
        let now = self.begun.elapsed();
        self.history.look(&self.rule, all, now);
        let mut taken = vec![];
        for turn in self.history.due(&self.rule, all, now) {
            let done = take_turns(&mut self.reader, &self.rule, &turn);
            self.history.ended(&self.rule, done.identity, done.end, done.took, self.begun.elapsed());
            taken.push(done);
        }
        taken
    }

    /// Time after which the next round may find something to do.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.rule.look_back()
    }

    /// Sums over all rounds.
    #[must_use]
    pub fn sums(&self) -> TrimSums {
        self.history.sums()
    }
}

/// Reason why a process may refuse a trim, as far as the kernel shows one to everybody.
#[must_use]
pub fn doubt(pid: u32) -> Option<&'static str> {
    doubt_in(&Process::new(i32::try_from(pid).ok()?).ok()?.status().ok()?)
}

fn doubt_in(status: &Status) -> Option<&'static str> {
    match status {
        _ if status.tracerpid != 0 => Some("another process traces it"),
        _ if status.vmlck.unwrap_or(0) > 0 => Some("it has locked memory"),
        _ if status.seccomp.unwrap_or(0) != 0 => Some("it has a filter of system calls"),
        _ => None,
    }
}

/// Figures of the heaps of a process.
///
/// # Errors
/// When they cannot be read, with the reason.
pub fn heaps_of(pid: u32) -> Result<HeapFigures, NotReadable> {
    let text = foreign_process::read(pid, ForeignFile::Heaps).map_err(|error| NotReadable::of(&error))?;
    HeapAnswer::from_text(&text).0
}

/// Figures of the heaps of a process, by this reader; `owner` is who answers for it.
///
/// # Errors
/// As [`heaps_of`].
pub fn heaps_by(
    reader: &mut ForeignReader,
    pid: u32,
    owner: impl Fn() -> Option<u64>,
) -> Result<HeapFigures, NotReadable> {
    let text = reader.read(pid, ForeignFile::Heaps, owner).map_err(|error| NotReadable::of(&error))?;
    HeapAnswer::from_text(&text).0
}
