// SPDX-License-Identifier: Apache-2.0
//! Errors before a program runs.

use std::path::{Path, PathBuf};

/// Result of the functions of this crate.
pub type SuiteResult<T> = std::result::Result<T, SuiteError>;

/// Errors of this crate. Each message has the form "what: why". [`SuiteError::hint`] returns the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The suite's file is not valid.
    #[error("{}: {why}", .path.display())]
    Definition {
        /// The file.
        path: PathBuf,
        /// Fault of the definition, with the line where it is known.
        why: String,
    },
    /// No program of that name.
    #[error("{name}: no such program in the suite")]
    NoProgram {
        /// Name that was asked for.
        name: String,
        /// Names that look like `name`.
        near: Vec<String>,
    },
    /// A command that makes an input failed.
    #[error("the input of {name} could not be made ({how}): {message}")]
    Setup {
        /// Program or shared input.
        name: String,
        /// How the command ended.
        how: String,
        /// The last line that the command wrote to standard error.
        message: String,
    },
    /// Packages could not be installed.
    #[error("{command} failed: {message}")]
    Install {
        /// Command that was run.
        command: String,
        /// The last lines of the command's output.
        message: String,
    },
    /// Another session uses the folder.
    #[error("{}: another 'imas-lab suite run' is at work there", .folder.display())]
    Busy {
        /// The folder of inputs and work.
        folder: PathBuf,
    },
    /// There is a record already, and no option selects what to do with it.
    #[error("{} has runs already", .path.display())]
    HasRuns {
        /// The record.
        path: PathBuf,
    },
}

impl SuiteError {
    /// Hint: what to do about the error.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => {
                "check that the folder exists, is yours and has room; --cache and --out name others".into()
            }
            Self::Definition { .. } => {
                "correct that line; lab/workloads/suite.toml begins with the meaning of each key".into()
            }
            Self::NoProgram { near, .. } if near.is_empty() => {
                "'imas-lab suite list' prints the names".into()
            }
            Self::NoProgram { near, .. } => {
                format!("did you mean {}? 'imas-lab suite list' prints all names", near.join(" or "))
            }
            Self::Setup { .. } => {
                "the other programs go on without it; 'imas-lab suite run --resume NAME' tries again".into()
            }
            Self::Install { .. } => "install the packages by hand, then run this again with --resume".into(),
            Self::Busy { .. } => "wait until it has ended, or name another folder with --cache".into(),
            Self::HasRuns { .. } => "add --resume to go on with it, or name another folder with --out".into(),
        }
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
