// SPDX-License-Identifier: Apache-2.0
//! One decision in the index.

use imas_abi::IndexEntry;
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
    /// Which of its programs.
    pub detail: Detail,
    /// Whose decision; `None`: everybody's.
    pub uid: Option<u32>,
    /// Id in the catalogue table for a production start ([`imas_abi::CANDIDATE_SYSTEM`]: untouched).
    pub candidate: u16,
    /// The trial that is due, if any.
    pub trial: Option<OfferedTrial>,
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
        record.trial_candidate = self.trial.map_or(0, |trial| trial.candidate);
        record.trial_token = self.trial.map_or(0, |trial| trial.token);
        record.flags = self.flags;
        record.program_id = self.program_id;
        record.check = fnv32(record.as_bytes());
        record
    }
}

/// The bytes of an entry by which it is found.
pub(super) fn key(record: &IndexEntry) -> &[u8] {
    record.as_bytes().get(..imas_abi::KEY_BYTES).unwrap_or_default()
}
