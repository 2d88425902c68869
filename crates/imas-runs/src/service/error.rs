// SPDX-License-Identifier: Apache-2.0
//! Errors that prevent a run. A server that fails is not such an error: the record of its run has the
//! failure.

use std::path::PathBuf;

use imas_linux::environment::UnusablePath;
use imas_linux::measure::RunError;
use imas_linux::program::CommandError;

/// The reason why no run could be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ServiceError {
    #[error("{0}")]
    Definition(String),
    /// The server's command cannot be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The candidate's library cannot be preloaded.
    #[error(transparent)]
    Path(#[from] UnusablePath),
    /// A file or folder of the run cannot be used.
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("cannot measure: {0}")]
    System(#[from] std::io::Error),
    /// The shared library code could not make a run.
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    #[error("the set-up failed ({how}): {last}")]
    Setup { how: String, last: String },
}

impl ServiceError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}
