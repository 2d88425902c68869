// SPDX-License-Identifier: Apache-2.0
//! Why a study could not be made.

use std::path::PathBuf;

/// Result of the functions of this crate.
pub type StudyResult<T> = std::result::Result<T, StudyError>;

/// Errors of this crate. Each message has the form "what: why". [`StudyError::hint`] returns the remedy, if
/// there is one.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A program or library of the study is not where it should be.
    #[error("cannot find '{}': the textbook allocators are not built or not installed", path.display())]
    Missing {
        /// The path that was searched.
        path: PathBuf,
    },
    /// An option sets the number of runs to 0.
    #[error("cannot make a study of no runs: '{option}' is 0")]
    NoRuns {
        /// The field of the options.
        option: &'static str,
    },
    /// A program of the study did not start.
    #[error("cannot run '{}'", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program of the study ended with an error.
    #[error("'{}' failed ({status}): {message}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Exit code or signal, in words.
        status: String,
        /// Message of the program on standard error.
        message: String,
    },
    /// A program of the study printed something that is not its format.
    #[error("cannot read the figures of '{}': {why}", path.display())]
    Figures {
        /// The program.
        path: PathBuf,
        /// Fault of the output.
        why: String,
    },
    /// A file of raw runs could not be read.
    #[error("cannot read the runs in '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The raw runs are not enough for a judgement.
    #[error("cannot judge a selector on these runs: {why}")]
    NoPrograms {
        /// Lack of the runs.
        why: String,
    },
    /// The folder has samples of an earlier session, and `--resume` was not given.
    #[error("'{}' has samples of an earlier session", path.display())]
    HasSamples {
        /// The file.
        path: PathBuf,
    },
    /// The files hold no samples of the mobile study.
    #[error("cannot make the mobile study: the files hold no samples ({lines} lines are something else)")]
    NoSamples {
        /// Number of lines that are not samples.
        lines: usize,
    },
    /// No program has both predictions and live runs.
    #[error(
        "no program has both predictions and live runs with enough rounds ({lines} predictions, {runs} runs)"
    )]
    NoPredictions {
        /// Number of predictions.
        lines: usize,
        /// Number of live runs.
        runs: usize,
    },
    /// A table could not be turned into CSV.
    #[error("cannot write a table")]
    Csv(#[from] csv::Error),
    /// A file could not be written.
    #[error("cannot write '{}'", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl StudyError {
    /// Hint: what the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } => {
                Some("build them with 'make -C lab/textbook', or name the library folder")
            }
            Self::Failed { .. } => Some("the study needs a pseudo-terminal (/dev/ptmx) and 64 MB of memory"),
            Self::NoRuns { .. } => Some("20 seeds and more give a band; one gives a single run"),
            Self::Read { .. } | Self::NoPrograms { .. } => Some(
                "give --data files that 'imas-lab suite run' or 'imas bench --export-runs' wrote, with 4 measured rounds or more of system \
                 and another candidate",
            ),
            Self::HasSamples { .. } => {
                Some("add --resume to go on with it, or name another folder with --out")
            }
            Self::NoSamples { .. } => Some(
                "give the mobile.jsonl of an 'imas-lab study mobile'; without --data it makes runs of its own",
            ),
            Self::NoPredictions { .. } => Some(
                "give --data a replay.jsonl of an earlier 'imas-lab study replay', or none to make one, and --live raw runs of the same \
                 programs",
            ),
            _ => None,
        }
    }
}
