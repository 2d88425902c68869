// SPDX-License-Identifier: Apache-2.0
//! Settled starts: what was decided for a program's next starts, in one small file, so that such a start reads that
//! file alone and opens no store (docs/decisions/0036).
//!
//! A start is settled when it is asked for without options, the file is this user's and unchanged, its basis holds, and
//! no page waits for a harvest. The command line and the environment may differ, unless the candidates of the program's
//! runtime would set something else for them. Every other start goes the long way and writes the file anew.

pub(crate) mod basis;
mod settled_file;
mod settled_start;

use std::ffi::OsStr;

use imas_core::decision::RestsOn;
use imas_engine::folders;
use imas_engine::pending;
use imas_engine::runtime_command::{RuntimeCommand, of_program};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::page;
use imas_linux::program::Command;
use imas_linux::runtime_start::Fitted;

use crate::command_line::cli::{Places, RunArgs};
use basis::{Asked, Basis};
use imas_engine::context::Context;
pub(crate) use settled_start::SettledStart;

/// Variables that load something of the user's into the program. Such a start is looked at anew each time.
const LOADING: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"];

/// The settled start of the command's program, where one holds now, and its candidate as this command gets it.
pub(crate) fn find(
    args: &RunArgs,
    places: &Places,
    command: &Command,
    environment: &Variables,
) -> Option<(SettledStart, Fitted)> {
    if !args.is_plain || loads_something(environment) {
        return None;
    }
    let store = folders::real_store(&folders::store_path(places.store.as_deref()).ok()?);
    let pages = page::place_of_store(&store);
    page::check_private(&page::place()).and_then(|()| page::check_private(&pages)).ok()?;
    let settled = settled_file::read(&pages, &command.program)?;
    let holds = settled.is_of(&command.program) && settled.basis.holds(&Asked::of(args, places));
    let fitted = holds.then(|| settled.fitted(command, environment)).flatten()?;
    (!pending::is_harvest_due(&pages)).then_some((settled, fitted))
}

fn loads_something(environment: &Variables) -> bool {
    LOADING.iter().any(|name| environment.get(OsStr::new(name)).is_some_and(|value| !value.is_empty()))
}

/// A decision that may be kept: what it is, and for which command it was made.
pub(crate) struct Kept<'a> {
    pub(crate) of_command: &'a RuntimeCommand<'a>,
    /// The candidate as the catalogue has it. If it is settings of a runtime, that is known to take them.
    pub(crate) candidate: &'a CatalogueCandidate,
    pub(crate) rests_on: RestsOn,
}

/// Keeps the decision for the next starts. `basis` was read before the decision was made: what changed meanwhile makes
/// the file stale. A failure costs the next start its speed, nothing else.
pub(crate) fn keep(context: &Context, basis: Option<Basis>, kept: &Kept<'_>) {
    let Some(basis) = basis.filter(|_| kept.rests_on != RestsOn::Moment) else { return };
    let (libraries, candidate) = (&context.libraries, kept.candidate);
    let give_back = candidate.give_back.then_some(&libraries.give_back);
    let settings = candidate.runtime.is_some().then_some(&libraries.settings);
    let ours = [Some(&libraries.guard), give_back, settings];
    let used = ours.into_iter().chain([candidate.library.as_ref(), candidate.needs.as_ref()]);
    let basis = basis.under(kept.rests_on).with(used.flatten());
    let of_runtime = of_program(&context.catalogue, kept.of_command.executable).cloned().collect();
    let settled = SettledStart::new(kept.of_command, candidate, of_runtime, libraries, basis);
    let _ = context.page_folder().map(|pages| settled_file::write(&pages, &settled)); // the next start goes the long way
}
