// SPDX-License-Identifier: Apache-2.0
//! Errors of writing and reading an index.

use std::path::PathBuf;

use super::entry::Entry;

/// Why an index could not be written or is not one.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file system refused.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// Two decisions for one program and user.
    #[error("two entries have the same key: {0:?}")]
    Twice(Box<Entry>),
    /// An entry without a candidate.
    #[error("an entry names no candidate: {0:?}")]
    NoCandidate(Box<Entry>),
    /// More than fits.
    #[error("{0} entries do not fit an index")]
    TooMany(usize),
    /// The boot id does not fit.
    #[error("'{0}' is not a boot id")]
    BootId(String),
    /// What is read is not a sound index.
    #[error("not a sound index: {0}")]
    Unsound(&'static str),
}
