// SPDX-License-Identifier: Apache-2.0
//! Whether a program of the suite is here, and whether another malloc can be put under it.

use std::ffi::OsString;

use imas_linux::program::Command;
use imas_suite::{Place, SuiteProgram};

/// Whether a program can be measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The program can be measured.
    Yes {
        /// Build id of the executable, hexadecimal; empty if it has none.
        build_id: String,
    },
    /// The program cannot be measured, for this reason.
    No(String),
    /// The program is not in the PATH of the suite.
    Absent,
}

/// Looks at the executable itself, as `imas run` would.
pub(crate) fn fit(program: &SuiteProgram, place: &Place) -> Fit {
    if let Some(why) = &program.excluded {
        return Fit::No(why.clone());
    }
    let Ok(command) = resolve(&[program.executable()], place) else { return Fit::Absent };
    match command.inspect() {
        Ok((_, Some(unfit))) => Fit::No(unfit.why().to_owned()),
        Ok((elf, None)) => Fit::Yes { build_id: elf.build_id.unwrap_or_default() },
        Err(error) => Fit::No(error.to_string()),
    }
}

/// The command that these words name in the suite's PATH.
pub(crate) fn resolve(words: &[String], place: &Place) -> Result<Command, imas_linux::program::CommandError> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let variables = place.variables(None, None);
    Command::resolve(&words, variables.get(std::ffi::OsStr::new("PATH")).map(OsString::as_os_str))
}
