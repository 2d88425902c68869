// SPDX-License-Identifier: Apache-2.0
//! Free pages of a process that somebody else may own are given back: by the process, which is asked
//! ([`crate::trim_word`]), or from outside ([`imas_trim`]).

use std::io::{ErrorKind, Result};
use std::time::Duration;

use imas_trim::TrimTime;
pub use imas_trim::{Done, LeftAlone};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding, ForeignFile, ForeignReader};
use crate::heap;
use crate::heap::figures::NotReadable;
use crate::living_thread;
use crate::trim_word::{Asked, parsed};

/// Time until a thread that may be interrupted was found, and then until it is back.
const TIME: TrimTime = TrimTime { find: Duration::from_secs(2), end: Duration::from_secs(8) };

/// What came of a trim from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromOutside {
    /// One of its threads called malloc_trim.
    Done(Done),
    /// It was left alone.
    LeftAlone(LeftAlone),
    /// Its heaps are not glibc's, or cannot be read.
    NotReadable(NotReadable),
}

/// The word of the process; None where it has none: it runs without `libimas-giveback.so`.
///
/// # Errors
/// When it may not be looked at.
pub fn look(pid: u32) -> Result<Option<Asked>> {
    parsed(&foreign_process::read(pid, ForeignFile::TrimWord)?)
}

/// Asks the process to give its free pages back now, unless it is asked already. The answer is in a later [`look`], where
/// `answered` is at least this `request`.
///
/// # Errors
/// When it may not be asked: by a user who is neither its owner nor root.
pub fn ask(pid: u32) -> Result<Option<Asked>> {
    parsed(&foreign_process::read(pid, ForeignFile::TrimRequest)?)
}

/// Lets one waiting thread of a process call `malloc_trim(0)`: the process needs to know nothing of IMAS. It takes as
/// long as `TIME` at most.
///
/// # Errors
/// When it may not be looked at.
pub fn from_outside(pid: u32) -> Result<FromOutside> {
    parsed_outside(&foreign_process::find_out(pid, Finding::TrimFromOutside, outside_text_of)?)
}

/// Does the same by this reader; `owner` is who answers for the process.
///
/// # Errors
/// The trim of [`from_outside`].
pub(crate) fn from_outside_by(reader: &mut ForeignReader, pid: u32, owner: u64) -> Result<FromOutside> {
    let what = (Finding::TrimFromOutside, outside_text_of as foreign_process::OwnAnswer);
    parsed_outside(&reader.find_out(pid, what, || Some(owner))?)
}

fn parsed_outside(text: &[u8]) -> Result<FromOutside> {
    serde_json::from_slice(text).map_err(|_| ErrorKind::InvalidData.into())
}

/// What came of it, as a text that [`from_outside`] reads. Done in this very process.
pub(crate) fn outside_text_of(pid: u32) -> Result<Vec<u8>> {
    let pid = living_thread::of(pid);
    let answer = match heap::trim_site(pid)? {
        Err(reason) => FromOutside::NotReadable(reason),
        Ok(site) => match imas_trim::trim(pid, &site, TIME) {
            Ok(done) => FromOutside::Done(done),
            Err(reason) => FromOutside::LeftAlone(reason),
        },
    };
    Ok(serde_json::to_vec(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_has_no_word() {
        assert_eq!(look(std::process::id()).unwrap(), None);
        assert_eq!(ask(std::process::id()).unwrap(), None);
    }
}
