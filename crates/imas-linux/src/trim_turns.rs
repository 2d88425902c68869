// SPDX-License-Identifier: Apache-2.0
//! Processes are looked at and trimmed as the rule says ([`imas_core::trimming`]).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use imas_core::trimming::{TrimEnd, TrimHistory, TrimIdentity, TrimRule, TrimSums, TrimTurn, Trimmable};

use crate::foreign_process::ForeignReader;
use crate::process_trim::{Done, FromOutside, from_outside_by};
use crate::{process, process_heaps};

/// Result of the turn of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnTaken {
    /// Identity of the process.
    pub identity: TrimIdentity,
    /// How the turn ended.
    pub end: TrimEnd,
    /// Time that the look took, and the trim: no less than their CPU time.
    pub took: (Duration, Duration),
    /// Words for a log, without the process; None where too little was free.
    pub words: Option<String>,
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
pub fn take(reader: &mut ForeignReader, rule: &TrimRule, turn: &TrimTurn) -> TurnTaken {
    let TrimTurn { identity, owner, budget } = *turn;
    let begun = Instant::now();
    let heaps = process_heaps::by(reader, identity.pid, || Some(owner));
    let look = begun.elapsed();
    let ended = |end, trim, words: Option<String>| TurnTaken { identity, end, took: (look, trim), words };
    let left_alone = |words: String| ended(TrimEnd::LeftAlone, Duration::ZERO, Some(words));
    match heaps {
        Err(reason) => return left_alone(format!("is left alone: {reason}")),
        Ok(heaps) if !rule.is_worth_it(heaps.bytes.returnable, budget.saturating_sub(look)) => {
            return ended(TrimEnd::NotNow, Duration::ZERO, None);
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
            ended(TrimEnd::Gave { returned, left }, trim, Some(words(&done, returned)))
        }
        Ok(FromOutside::LeftAlone(reason)) if reason.may_pass() => {
            ended(TrimEnd::NotNow, Duration::ZERO, Some(format!("is left alone for now: {reason}")))
        }
        Ok(FromOutside::LeftAlone(reason)) => left_alone(format!("is left alone: {reason}")),
        Ok(FromOutside::NotReadable(reason)) => left_alone(format!("is left alone: {reason}")),
        Err(error) if error.kind() == ErrorKind::TimedOut => left_alone("took too long".to_owned()),
        Err(error) => left_alone(format!("is left alone: {error}")),
    }
}

fn words(done: &Done, returned: u64) -> String {
    let mib = returned as f64 / f64::from(1 << 20);
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
            let done = take(&mut self.reader, &self.rule, &turn);
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
