// SPDX-License-Identifier: Apache-2.0
//! The C programs of a study: starts them, reads the CSV that they print, and reports progress to the caller.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::error::{StudyError, StudyResult};

/// The path of a file in the installed tree `lib/imas`. A missing file is an error that contains the path.
pub(crate) fn locate(library_dir: &Path, relative: &str) -> StudyResult<PathBuf> {
    let path = library_dir.join(relative);
    if path.is_file() { Ok(path) } else { Err(StudyError::Missing { path }) }
}

/// Runs `program` without the caller's preload and tunables. Returns the rows that it prints, each as a `T`.
pub(crate) fn rows<T: DeserializeOwned>(
    program: &Path,
    arguments: &[impl AsRef<OsStr>],
) -> StudyResult<Vec<T>> {
    let output = Command::new(program)
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES")
        .output()
        .map_err(|source| StudyError::Start { path: program.to_owned(), source })?;
    if !output.status.success() {
        return Err(failed(program, &output));
    }
    parse(&output.stdout).map_err(|e| figures(program, &e.to_string()))
}

/// The error for a program that ran but printed unusable output.
pub(crate) fn figures(program: &Path, why: &str) -> StudyError {
    StudyError::Figures { path: program.to_owned(), why: why.to_owned() }
}

fn failed(program: &Path, output: &Output) -> StudyError {
    StudyError::Failed {
        path: program.to_owned(),
        status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> csv::Result<Vec<T>> {
    csv::Reader::from_reader(text).deserialize().collect()
}

/// Called after each program run with the number of runs done and of all runs. Does nothing by default.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Report>>);

type Report = dyn Fn(u64, u64) + Send + Sync;

impl Progress {
    /// `report(done, all)`.
    pub fn new(report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    pub(crate) fn report(&self, done: u64, all: u64) {
        if let Some(report) = &self.0 {
            report(done, all);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(reported)" } else { "Progress(silent)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let error = locate(Path::new("/nowhere"), "study/freelist-driver").unwrap_err();
        assert!(error.to_string().contains("/nowhere/study/freelist-driver"));
        assert!(error.hint().is_some());
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let error = rows::<(u64,)>(Path::new("/bin/sh"), &["-c", "echo no room >&2; exit 3"]).unwrap_err();
        assert!(matches!(&error, StudyError::Failed { message, .. } if message == "no room"));
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        assert!(parse::<(u64,)>(b"a\nx\n").is_err());
        assert_eq!(parse::<(u64,)>(b"a\n7\n").unwrap(), [(7,)]);
    }
}
