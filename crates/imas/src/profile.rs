// SPDX-License-Identifier: Apache-2.0
//! What the store and the catalogue together know of one program, made ready for the policy.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail};
use imas_core::ProfileView;
use imas_engine::candidates::Selection;
use imas_engine::state::ProgramState;
use imas_linux::clock::now_unix_s;
use imas_store::Store;
use imas_store::samples::Program;

use crate::cli::RulesArgs;
use crate::context::Context;
use crate::message::Hinted;

/// The program's state, with the candidates that this context allows. `build_id` is that of the executable as it is now.
pub(crate) fn state(
    context: &Context,
    store: &Store,
    program: Program,
    build_id: &str,
) -> Result<ProgramState> {
    let configured = context.config.candidates.as_deref();
    let state = ProgramState::read(store, program, build_id, |pinned, tried| {
        let selection = Selection { configured, pinned, tried };
        selection.of(&context.catalogue, |candidate| context.obstacle(candidate, Some(store)).is_none())
    })?;
    Ok(state)
}

/// The profile of that state at this moment, under the configured rules.
pub(crate) fn profile(state: &ProgramState, context: &Context, rules: &RulesArgs) -> ProfileView {
    let policy = context.config.policy(rules, &state.program.path, &state.program.detail);
    state.profile(&policy, context.limits, now_unix_s())
}

/// The program of the store that the user means: a number, a path, or a name found in PATH.
pub(crate) fn find(store: &Store, word: &OsStr) -> Result<Program> {
    let mut found = all_meant(store, word)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Hinted::error(
            format!("{}: nothing is known of this program", word.to_string_lossy()),
            "start it with 'imas run -- PROGRAM ...'; 'imas show' lists what is known",
        )),
        _ => {
            let lines: Vec<_> = found.iter().map(|program| format!("{:>5}  {program}", program.id)).collect();
            Err(Hinted::error(
                format!("{} runs several programs:\n{}", word.to_string_lossy(), lines.join("\n")),
                "name the script, or give the number",
            ))
        }
    }
}

fn all_meant(store: &Store, word: &OsStr) -> Result<Vec<Program>> {
    let text = word.to_string_lossy();
    if let Ok(number) = text.parse() {
        return Ok(store.program_numbered(number)?.into_iter().collect());
    }
    let mut found = store.programs_at(&resolved(word)?)?;
    if found.len() > 1 {
        // `imas show python3` with one plain python3 among its scripts still means several.
        found.sort_by_key(|program| program.id);
    }
    Ok(found)
}

/// The path under which the store knows a program that is to be named by path or by name in PATH, installed or not.
pub(crate) fn resolved(word: &OsStr) -> Result<String> {
    let found = imas_linux::program::find(word, std::env::var_os("PATH").as_deref());
    let path = match found {
        Ok(path) => path,
        // It may have been removed or lost its execute bit since; what is known of it can still be shown.
        // A script of this folder that an interpreter was given, as in `perl words.pl`, need not be in PATH or executable.
        Err(_) if word.to_string_lossy().contains('/') || Path::new(word).is_file() => {
            std::path::absolute(word)?
        }
        Err(error) => bail!(error),
    };
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    Ok(path.to_string_lossy().into_owned())
}
