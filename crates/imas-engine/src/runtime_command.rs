// SPDX-License-Identifier: Apache-2.0
//! A command whose program has a language runtime: which candidates of the runtime it gets, and with what
//! settings (docs/decisions/0041).

use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::control_group::memory_limit;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::runtime::{FoundRuntime, RuntimeEntry, only};
use imas_linux::runtime_start::{Fitted, StartOfProgram, asked_with, fitted, takes};
use imas_store::Store;

use crate::context::{recalled, remembered};
use crate::inspect::ExecutableFacts;

/// A command with what was found in its executable.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeCommand<'a> {
    /// The command.
    pub command: &'a Command,
    /// Facts about its executable.
    pub executable: &'a ExecutableFacts,
    /// The environment that it is to have.
    pub environment: &'a Variables,
    /// Files that it will read are there, and may be looked at. What they set wins.
    pub has_files: bool,
}

impl RuntimeCommand<'_> {
    /// The candidate with its settings as this command gets them. A runtime that can say whether it takes
    /// them is started once for that; the answer is kept in the store until the executable changes.
    ///
    /// # Errors
    /// Why the command does not get it, as a clause for people.
    pub fn fitted(&self, candidate: &CatalogueCandidate, store: Option<&Store>) -> Result<Fitted, String> {
        let start = self.start();
        let fitted = fitted(candidate, &start)?;
        let Some(kind) = question(&fitted, &start) else { return Ok(fitted) };
        match remembered(store, start.file, &kind, || takes(&fitted, &start).err()) {
            None => Ok(fitted),
            Some(why) => Err(why),
        }
    }

    /// Settings that each candidate would make for this command, whether the runtime takes it or not; `None` where the
    /// command does not get it. Commands of one program with the same answer get the same candidates.
    #[must_use]
    pub fn offers(&self, candidates: &[CatalogueCandidate]) -> Vec<Option<String>> {
        if candidates.is_empty() {
            return vec![];
        }
        let start = self.start();
        candidates.iter().map(|candidate| question(&fitted(candidate, &start).ok()?, &start)).collect()
    }

    /// Candidate as the command gets it, as far as that is known without a start of the runtime.
    ///
    /// # Errors
    /// Why the command does not get it, as a clause for people.
    pub fn fitted_unasked(
        &self,
        candidate: &CatalogueCandidate,
        store: Option<&Store>,
    ) -> Result<Fitted, String> {
        if candidate.runtime.is_none() {
            return Ok(candidate.clone());
        }
        let start = self.start();
        let fitted = fitted(candidate, &start)?;
        let known = question(&fitted, &start).and_then(|kind| recalled(store, start.file, &kind)).flatten();
        known.map_or(Ok(fitted), Err)
    }

    fn start(&self) -> StartOfProgram<'_> {
        StartOfProgram {
            found: &self.executable.runtimes,
            file: &self.command.program.path,
            words: &self.command.arguments,
            has_files: self.has_files,
            is_by_script: self.command.is_by_script(),
            unfit: self.executable.unfit.as_deref(),
            environment: self.environment,
            memory_limit: memory_limit(),
        }
    }
}

/// Why the program is not tested under the candidate, fitted to it, unless the candidate is named: its arguments are shown to
/// the program, which may start other JVMs with them. Tools of the JDK start none.
#[must_use]
pub fn seen_arguments(fitted: &Fitted, executable: &ExecutableFacts) -> Option<&'static str> {
    let has_some = fitted.runtime.as_ref().is_some_and(|settings| !settings.arguments.is_empty());
    let is_tool = || served_runtime(executable).is_some_and(|found| found.entry == RuntimeEntry::Tool);
    (has_some && !is_tool()).then_some(
        "this JVM is older than 17 or of unknown version, so it would be given arguments, which the program may hand to others: name the candidate to test it",
    )
}

/// Key under which the store keeps the runtime's answer; `None` where there is nothing to ask.
fn question(fitted: &Fitted, start: &StartOfProgram<'_>) -> Option<String> {
    let settings = fitted.runtime.as_ref()?;
    let found = only(start.found).ok().flatten();
    let version = found.and_then(|found| found.version.as_deref()).unwrap_or_default();
    let (arguments, environment) = (&settings.arguments, &fitted.environment);
    let beside = asked_with(start);
    Some(format!("takes {arguments:?} {environment:?} beside {beside:?} in '{version}'"))
}

/// The runtime whose candidates a program with these facts gets; `None` where it has none, or has it inside.
#[must_use]
pub fn served_runtime(executable: &ExecutableFacts) -> Option<&FoundRuntime> {
    only(&executable.runtimes).ok().flatten().filter(|found| found.entry != RuntimeEntry::Inside)
}

/// Whether settings of its runtime are given to the program with nothing loaded into it. Trials of them are then
/// measured from outside ([`crate::outside`]).
#[must_use]
pub fn is_served_by_settings(executable: &ExecutableFacts) -> bool {
    let is_bare = |found: &FoundRuntime| executable.unfit.is_some() || found.runtime.starts_bare();
    served_runtime(executable).is_some_and(is_bare)
}

/// Why nothing can be loaded into the program, and what serves it all the same.
#[must_use]
pub fn unfit_reason(executable: &ExecutableFacts) -> Option<String> {
    let why = executable.unfit.as_ref()?;
    Some(match served_runtime(executable) {
        Some(found) => {
            format!("{why}; served by settings of {}: 'imas run', 'imas apply'", found.runtime.name())
        }
        None => why.clone(),
    })
}

/// The candidates of the program's runtime, in the order of the catalogue.
pub fn of_program<'a>(
    catalogue: &'a Catalogue,
    executable: &ExecutableFacts,
) -> impl Iterator<Item = &'a CatalogueCandidate> {
    served_runtime(executable).into_iter().flat_map(|found| catalogue.of_runtime(found.runtime))
}
