// SPDX-License-Identifier: Apache-2.0
//! The language runtime of a program, by what it was seen, and which of its candidates the program gets.

use std::fmt::Write as _;

use imas_engine::context::Context;
use imas_engine::inspect::{self, ExecutableFacts};
use imas_engine::program_view::stored_command;
use imas_engine::runtime_command::{RuntimeCommand, of_program};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::runtime::{Delivery, FoundRuntime, RuntimeEntry, only};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde::Serialize;

/// Facts about a program's runtime; the shape of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct RuntimeView {
    /// More than one: then no settings are offered.
    found: Vec<FoundRuntime>,
    /// Why nothing can be loaded into the program, if that is so.
    unfit: Option<String>,
    /// Why none of the candidates is offered.
    why_none: Option<String>,
    candidates: Vec<OfferedCandidate>,
}

/// A candidate that is settings of the runtime.
#[derive(Debug, Serialize)]
struct OfferedCandidate {
    name: String,
    /// Why this program, in this environment, does not get it.
    why_not: Option<String>,
    summary: String,
}

/// The runtime of the command's program; `None` where it has none. Nothing is started.
pub(crate) fn view(command: &Command, context: &Context, store: Option<&Store>) -> Option<RuntimeView> {
    of(command, inspect::command(command, store).ok()?, context, (store, true))
}

/// The runtime of a stored program, likewise. Files of a program that somebody else has started are not looked at, nor
/// what was found of them.
pub(crate) fn view_stored(program: &StoredProgram, context: &Context, store: &Store) -> Option<RuntimeView> {
    let command = stored_command(program);
    let executable = inspect::stored(program, &command, store).ok()?;
    of(&command, executable, context, (Some(store), program.domain.is_own()))
}

/// `has_files`: files of the program may be looked at.
fn of(
    command: &Command,
    executable: ExecutableFacts,
    context: &Context,
    (store, has_files): (Option<&Store>, bool),
) -> Option<RuntimeView> {
    if executable.runtimes.is_empty() {
        return None;
    }
    let environment = Variables::inherited();
    let of_runtime =
        RuntimeCommand { command, executable: &executable, environment: &environment, has_files };
    let offered = |candidate: &CatalogueCandidate| OfferedCandidate {
        name: candidate.name.clone(),
        why_not: of_runtime
            .fitted_unasked(candidate, store.filter(|_| has_files))
            .err()
            .or_else(|| context.obstacle(candidate, store)),
        summary: candidate.summary.clone(),
    };
    let candidates = of_program(&context.catalogue, &executable).map(offered).collect();
    let why_none = why_none(&executable);
    Some(RuntimeView { found: executable.runtimes, unfit: executable.unfit, why_none, candidates })
}

fn why_none(executable: &ExecutableFacts) -> Option<String> {
    match only(&executable.runtimes) {
        Err(why) => Some(why),
        Ok(Some(found)) if found.entry == RuntimeEntry::Inside => {
            Some(format!("the program has {} inside and gives it settings of its own", found.runtime.name()))
        }
        Ok(_) => None,
    }
}

/// Text for people: the runtimes and what each candidate gets.
pub(crate) fn text(view: &RuntimeView) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for found in &view.found {
        let version = found.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let _ = writeln!(text, "runtime: {}{version} ({})", found.runtime.name(), found.by);
    }
    if let Some(why) = &view.why_none {
        let _ = writeln!(text, "  no settings of it are offered: {why}");
        return text;
    }
    let is_open = view.found.iter().any(|found| found.runtime.delivery() == Delivery::Open);
    if let Some(why) = &view.unfit {
        let _ = writeln!(text, "  served by its settings alone: {why}");
        let _ = writeln!(
            text,
            "  'imas run' tries them where imasd can measure from outside, 'imas bench' measures them at once, and \
             'imas pin' gives it one"
        );
    }
    if is_open || view.unfit.is_some() {
        let _ = writeln!(text, "  its children inherit what is set in the environment");
    }
    for one in &view.candidates {
        let _ = match &one.why_not {
            None => writeln!(text, "  {}: {}", one.name, one.summary),
            Some(why) => writeln!(text, "  {} is not offered: {why}", one.name),
        };
    }
    text
}
