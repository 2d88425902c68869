// SPDX-License-Identifier: Apache-2.0
//! Asking a process that somebody else may own to give its free pages back ([`crate::trim_word`]).

use std::io::Result;

use crate::foreign_process::{self, ForeignFile};
use crate::trim_word::{Asked, parsed};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_has_no_word() {
        assert_eq!(look(std::process::id()).unwrap(), None);
        assert_eq!(ask(std::process::id()).unwrap(), None);
    }
}
