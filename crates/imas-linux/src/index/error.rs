// SPDX-License-Identifier: Apache-2.0
//! Errors of writing and reading an index.

use std::path::PathBuf;

use super::entry::Entry;

/// Why an index could not be written or is not one.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum IndexError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("two entries have the same key: {0:?}")]
    Twice(Box<Entry>),
    #[error("an entry names no candidate: {0:?}")]
    NoCandidate(Box<Entry>),
    #[error("{0} entries do not fit an index")]
    TooMany(usize),
    #[error("'{0}' is not a boot id")]
    BootId(String),
    #[error("not a sound index: {0}")]
    Unsound(&'static str),
}
