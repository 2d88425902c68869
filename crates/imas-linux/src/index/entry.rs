// SPDX-License-Identifier: Apache-2.0
//! One decision in the index.

use imas_abi::{IndexEntry, MORE_TRIALS, MoreTrial};
use zerocopy::{FromZeros, IntoBytes};

use super::detail::Detail;
use crate::executable::Executable;
use crate::fnv::fnv32;

/// A trial that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferedTrial {
    /// Id in the catalogue table.
    pub candidate: u16,
    /// Names the page, `<16 hex digits>.page`: who creates it runs the trial, everybody else starts in
    /// production.
    pub token: u64,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The executable.
    pub executable: Executable,
    /// Detail that tells which of the executable's programs it is.
    pub detail: Detail,
    /// User whose decision it is; `None`: everybody's.
    pub uid: Option<u32>,
    /// Id in the catalogue table for a production start ([`imas_abi::CANDIDATE_SYSTEM`]: untouched).
    pub candidate: u16,
    /// The trials that are due: each start takes the first that no other process has taken. Of those beyond
    /// the first, as many as the record has room for, up to the first whose token does not follow the first
    /// one's within 65,535.
    pub trials: Vec<OfferedTrial>,
    /// [`imas_abi::entry_flag`] bits.
    pub flags: u32,
    /// The daemon's number of the program, which is in the page's trial id.
    pub program_id: u64,
}

impl Entry {
    pub(super) fn record(&self) -> IndexEntry {
        let (kind, detail) = self.detail.key();
        let mut record = IndexEntry::new_zeroed();
        record.exe_dev = self.executable.dev;
        record.exe_ino = self.executable.ino;
        record.detail = detail;
        record.detail_kind = kind;
        record.uid = self.uid.unwrap_or(imas_abi::ANY_UID);
        record.exe_mtime_ns = self.executable.mtime_ns;
        record.exe_bytes = self.executable.bytes;
        record.candidate = self.candidate;
        if let Some((first, more)) = self.trials.split_first() {
            (record.trial_candidate, record.trial_token) = (first.candidate, first.token);
            record.more_trials = more_trials(first.token, more);
        }
        record.flags = self.flags;
        record.program_id = self.program_id;
        record.check = fnv32(record.as_bytes());
        record
    }
}

fn more_trials(first: u64, more: &[OfferedTrial]) -> [MoreTrial; MORE_TRIALS] {
    let fits = |trial: &OfferedTrial| {
        let after = u16::try_from(trial.token.wrapping_sub(first)).ok().filter(|after| *after > 0)?;
        (trial.candidate != 0).then_some(MoreTrial { candidate: trial.candidate, after })
    };
    let mut trials = [MoreTrial::default(); MORE_TRIALS];
    for (place, trial) in trials.iter_mut().zip(more.iter().map_while(fits)) {
        *place = trial;
    }
    trials
}

/// The trials that a record offers, as a start takes them in turn.
pub fn offered(record: &IndexEntry) -> impl Iterator<Item = OfferedTrial> {
    let first = OfferedTrial { candidate: record.trial_candidate, token: record.trial_token };
    let beside = |more: &MoreTrial| OfferedTrial {
        candidate: more.candidate,
        token: first.token.wrapping_add(u64::from(more.after)),
    };
    let all = std::iter::once(first).chain(record.more_trials.iter().map(beside));
    all.take_while(|trial| trial.candidate != 0).collect::<Vec<_>>().into_iter()
}

/// The bytes of an entry by which it is found.
pub(super) fn key(record: &IndexEntry) -> &[u8] {
    record.as_bytes().get(..imas_abi::KEY_BYTES).unwrap_or_default()
}
