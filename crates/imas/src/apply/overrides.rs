// SPDX-License-Identifier: Apache-2.0
//! `imas pin`, `unpin`, `exclude`, `forget`: the operator's overrides stand above what was measured.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_engine::inline_candidate::is_typed;
use imas_linux::host::now_unix_s;
use imas_linux::program::Command;
use imas_store::Store;
use imas_store::samples::{Domain, StoredProgram};
use serde_json::{Value, json};

use crate::command_line::cli::{ExcludeAction, ForgetArgs, JsonArgs, PinArgs, ProgramJsonArgs, UnblockArgs};
use crate::stored::{find, resolved};
use imas_cli::message::Hinted;
use imas_cli::output;
use imas_engine::context::Context;

/// Exit status for "done, and the answer is no": there was nothing to undo.
const NOTHING_TO_DO: u8 = 1;

pub(crate) fn pin(args: &PinArgs, context: &Context) -> Result<ExitCode> {
    if is_typed(&args.candidate) {
        return Err(Hinted::error(
            format!("{}: a pin takes a candidate of the catalogue", args.candidate),
            "give the settings a name in your catalogue (docs/adding-an-allocator.md), or use them once: imas run \
             --candidate, imas apply --candidate",
        ));
    }
    let candidate = context.candidate(&args.candidate)?;
    if context.of_the_system && candidate.huge_pages.is_some() {
        return Err(Hinted::error(
            format!(
                "{}: imasd starts programs by their environment alone, and gives no huge pages",
                candidate.name
            ),
            "imas apply UNIT --candidate, or imas run --candidate",
        ));
    }
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
    if args.unblock {
        store.unblock(program.id, &candidate.name, now_s)?;
    }
    // The number is one of this store.
    let undo = context.on_this_store(&format!("imas unpin {}", program.id));
    let line = format!("{program} is pinned to {}; undo: {undo}", candidate.name);
    answer(args.json, true, line, json!({ "program": program, "pinned": candidate.name, "undo": undo }))
}

pub(crate) fn unpin(args: &ProgramJsonArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let program = find(&store, &args.program.program)?;
    let done = store.unpin(program.id)?;
    let line = if done { "is no longer pinned" } else { "was not pinned" };
    answer(args.json, done, format!("{program} {line}"), json!({ "program": program }))
}

/// Prints what was done, or that there was nothing to do.
fn answer(json: JsonArgs, done: bool, line: String, mut facts: Value) -> Result<ExitCode> {
    if json.json {
        facts["schema"] = json!(1);
        facts["done"] = json!(done);
        output::json(&facts)?;
    } else if !line.is_empty() {
        output::text(&line)?;
    }
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NOTHING_TO_DO) })
}

pub(crate) fn exclude(action: &ExcludeAction, context: &Context) -> Result<ExitCode> {
    match action {
        ExcludeAction::Add(args) => {
            let store = context.open_store()?;
            let path = resolved(&args.program.program)?;
            let new = store.exclude(&path, now_unix_s())?;
            let line = if new { "is left alone from now on" } else { "was left alone already" };
            answer(args.json, new, format!("{path} {line}"), json!({ "path": path }))
        }
        ExcludeAction::Remove(args) => {
            let store = context.open_store()?;
            let path = resolved(&args.program.program)?;
            let was = store.include(&path)?;
            let line = if was { "is no longer left alone" } else { "was not left alone" };
            answer(args.json, was, format!("{path} {line}"), json!({ "path": path }))
        }
        ExcludeAction::List(args) => {
            let paths = context.view_store()?.exclusions()?;
            answer(*args, true, paths.join("\n"), json!({ "excluded": paths }))
        }
    }
}

pub(crate) fn forget(args: &ForgetArgs, context: &Context) -> Result<ExitCode> {
    let mut store = context.open_store()?;
    // Trials that have ended are forgotten too: they would come back otherwise.
    crate::stored::harvest_quietly(context, &store);
    let programs = match &args.program {
        Some(word) => vec![find(&store, word)?],
        None => store.programs()?,
    };
    let (mut trials, mut lines) = (0, vec![]);
    for program in &programs {
        let its = store.forget(program.id)?;
        lines.push(format!("{program} is forgotten, with {}", counted(its, "start")));
        trials += its;
    }
    if programs.is_empty() {
        lines.push("nothing is known, so nothing is forgotten".to_owned());
    }
    let facts = json!({ "programs": programs, "trials": trials });
    answer(args.json, !programs.is_empty(), lines.join("\n"), facts)
}

/// An allocator that harmed several programs is given another chance.
pub(crate) fn unblock(args: &UnblockArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let name = &args.allocator;
    let done = store.enable(name, now_unix_s())?;
    if !done {
        context.candidate(name)?; // a name that is mistyped was not disabled either
    }
    let line = match done {
        true => format!("{name} is back in use; what it did until now is cleared"),
        false => format!("{name} was not disabled"),
    };
    answer(args.json, done, line, json!({ "allocator": name }))
}

/// A pin may come before the first start.
fn find_or_make(context: &Context, store: &Store, word: &OsStr) -> Result<StoredProgram> {
    let known = find(store, word);
    if known.is_ok() || !store.programs_at(&resolved(word)?)?.is_empty() {
        return known;
    }
    let command = Command::resolve(&[word.to_owned()], std::env::var_os("PATH").as_deref())?;
    let domain = if context.of_the_system { Domain::Everybody } else { Domain::Own };
    Ok(store.program_in(domain, &command.program.path.to_string_lossy(), &command.program.detail)?)
}
