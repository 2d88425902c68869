// SPDX-License-Identifier: Apache-2.0
//! Whether a program of the suite is here, and whether another malloc can be put under it, or settings of its
//! runtime be given to it.

use std::ffi::OsString;

use imas_engine::inspect::{self, ExecutableFacts};
use imas_engine::runtime_command::{RuntimeCommand, served_runtime};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::runtime::Runtime;
use imas_linux::runtime_start::Fitted;
use imas_store::Store;
use imas_suite::{Place, SuiteProgram, words};

/// Whether a program can be measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The program can be measured.
    Yes(Box<Measurable>),
    /// The program cannot be measured, for this reason.
    No(String),
    /// The program is not in the PATH of the suite.
    Absent,
}

/// A program that can be measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurable {
    /// Facts about the executable that does the work.
    pub(crate) executable: ExecutableFacts,
    /// The command, with facts about the program that it starts. That program gets settings of its runtime; what a
    /// shell starts in turn does not.
    started: Option<(Command, ExecutableFacts)>,
}

impl Measurable {
    /// Facts about the program that gets settings of its runtime; `None` where there is no such program.
    pub(crate) fn with_runtime(&self) -> Option<&ExecutableFacts> {
        self.started.as_ref().map(|(_, facts)| facts).filter(|facts| served_runtime(facts).is_some())
    }

    /// The runtime whose settings it gets.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        Some(served_runtime(self.with_runtime()?)?.runtime)
    }

    /// The candidate as the program gets it in this environment, or why it does not.
    pub(crate) fn fitted(
        &self,
        candidate: &CatalogueCandidate,
        environment: &Variables,
        store: Option<&Store>,
    ) -> Result<Fitted, String> {
        match (&self.started, &self.executable.unfit) {
            _ if candidate.is_system() => Ok(candidate.clone()),
            (Some((command, executable)), _) if candidate.runtime.is_some() => {
                // Its inputs are not made yet.
                let of_command = RuntimeCommand { command, executable, environment, has_files: false };
                of_command.fitted(candidate, store)
            }
            (None, _) if candidate.runtime.is_some() => Err("its command cannot be read".to_owned()),
            (_, Some(why)) => Err(why.clone()),
            (_, None) => Ok(candidate.clone()),
        }
    }
}

/// Program that cannot be measured: its name and why.
pub(crate) type NotRunHere = (String, String);

/// Looks at the executable itself, as `imas run` would.
pub(crate) fn fit(program: &SuiteProgram, place: &Place) -> Fit {
    if let Some(why) = &program.excluded {
        return Fit::No(why.clone());
    }
    let Ok(working) = resolve(&[program.executable()], place) else { return Fit::Absent };
    let executable = match inspect::command(&working, None) {
        Ok(executable) => executable,
        Err(error) => return Fit::No(format!("{error:#}")),
    };
    let started = started(program, place, (&working, &executable));
    let measurable = Measurable { executable, started };
    match &measurable.executable.unfit {
        Some(why) if measurable.runtime().is_none() => Fit::No(why.clone()),
        _ => Fit::Yes(Box::new(measurable)),
    }
}

/// The command, with facts about its program. Mostly the program that does the work is meant, and is not read again.
fn started(
    program: &SuiteProgram,
    place: &Place,
    (working, known): (&Command, &ExecutableFacts),
) -> Option<(Command, ExecutableFacts)> {
    let command = resolve(&words(&program.command)?, place).ok()?;
    let is_known = (&command.program.path, command.privileged) == (&working.program.path, working.privileged);
    let facts = if is_known { known.clone() } else { inspect::command(&command, None).ok()? };
    Some((command, facts))
}

/// The command that these words name in the suite's PATH.
pub(crate) fn resolve(words: &[String], place: &Place) -> Result<Command, imas_linux::program::CommandError> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let variables = place.variables(None, None);
    Command::resolve(&words, variables.get(std::ffi::OsStr::new("PATH")).map(OsString::as_os_str))
}
