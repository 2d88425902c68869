// SPDX-License-Identifier: Apache-2.0
//! `imas pin`, `unpin`, `exclude`, `forget`: what the operator wishes stands above what was measured.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Result;
use imas_linux::clock::now_unix_s;
use imas_linux::program::Command;
use imas_store::Store;
use imas_store::domain::Domain;
use imas_store::samples::Program;
use serde_json::json;

use crate::cli::{ExcludeAction, LiftArgs, PinArgs, ProgramArgs};
use crate::context::Context;
use crate::message::Hinted;
use crate::output;
use crate::profile::{find, resolved};

/// Exit status for "done, and the answer is no": there was nothing to undo.
const NOTHING_TO_DO: u8 = 1;

pub(crate) fn pin(args: &PinArgs, context: &Context) -> Result<ExitCode> {
    let candidate = context.candidate(&args.candidate)?;
    let store = context.open_store()?;
    if let Some(obstacle) = context.obstacle(candidate, Some(&store)) {
        return Err(Hinted::error(
            format!("{} cannot be used here: {obstacle}", candidate.name),
            "'imas list' says which candidates can",
        ));
    }
    let program = find_or_make(context, &store, &args.program.program)?;
    let now_s = now_unix_s();
    store.pin(program.id, &candidate.name, now_s)?;
    if args.lift {
        store.lift(program.id, &candidate.name, now_s)?;
    }
    // The number is one of this store.
    let undo = context.on_this_store(&format!("imas unpin {}", program.id));
    output::text(&format!("{program} is pinned to {}; undo: {undo}", candidate.name))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn unpin(args: &ProgramArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let program = find(&store, &args.program)?;
    if store.unpin(program.id)? {
        output::text(&format!("{program} is no longer pinned"))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("{program} was not pinned"))?;
    Ok(ExitCode::from(NOTHING_TO_DO))
}

pub(crate) fn exclude(action: &ExcludeAction, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let (done, line) = match action {
        ExcludeAction::Add(args) => {
            let path = resolved(&args.program)?;
            let new = store.exclude(&path, now_unix_s())?;
            (
                new,
                if new {
                    format!("{path} is left alone from now on")
                } else {
                    format!("{path} was left alone already")
                },
            )
        }
        ExcludeAction::Remove(args) => {
            let path = resolved(&args.program)?;
            let was = store.include(&path)?;
            (
                was,
                if was {
                    format!("{path} is no longer left alone")
                } else {
                    format!("{path} was not left alone")
                },
            )
        }
        ExcludeAction::List(args) => {
            let paths = store.exclusions()?;
            if args.json {
                output::json(&json!({ "schema": 1, "excluded": paths }))?;
                return Ok(ExitCode::SUCCESS);
            }
            (true, paths.join("\n"))
        }
    };
    if !line.is_empty() {
        output::text(&line)?;
    }
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NOTHING_TO_DO) })
}

pub(crate) fn forget(args: &ProgramArgs, context: &Context) -> Result<ExitCode> {
    let mut store = context.open_store()?;
    let program = find(&store, &args.program)?;
    let trials = store.forget(program.id)?;
    output::text(&format!("{program} is forgotten, with {trials} trials"))?;
    Ok(ExitCode::SUCCESS)
}

/// An allocator that hurt several programs is given another chance.
pub(crate) fn lift(args: &LiftArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let name = &args.allocator;
    if store.enable(name, now_unix_s())? {
        output::text(&format!("{name} is back in use; what it did until now is forgiven"))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("{name} was not out of use"))?;
    Ok(ExitCode::from(NOTHING_TO_DO))
}

/// A pin may come before the first start.
fn find_or_make(context: &Context, store: &Store, word: &OsStr) -> Result<Program> {
    let known = find(store, word);
    if known.is_ok() || !store.programs_at(&resolved(word)?)?.is_empty() {
        return known;
    }
    let command = Command::resolve(&[word.to_owned()], std::env::var_os("PATH").as_deref())?;
    let domain = if context.of_the_system { Domain::Everybody } else { Domain::Own };
    Ok(store.program_in(domain, &command.program.path.to_string_lossy(), &command.program.detail)?)
}
