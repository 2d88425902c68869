// SPDX-License-Identifier: Apache-2.0
//! The program that the user means.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use imas_linux::started_name;
use imas_store::Store;
use imas_store::samples::StoredProgram;

use crate::command_line::program_names::names;
use imas_cli::message::Hinted;

/// The program of the store that the user means: a number, a path, or a name found in PATH.
pub(crate) fn find(store: &Store, word: &OsStr) -> Result<StoredProgram> {
    // What is not in PATH and no file may be mistyped.
    let mut found = all_meant(store, word).map_err(|error| match meant(store, word) {
        Some(_) => unknown(store, word),
        None => error,
    })?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(unknown(store, word)),
        _ => {
            let lines: Vec<_> = found.iter().map(|program| format!("{:>5}  {program}", program.id)).collect();
            Err(Hinted::error(
                format!("{} runs several programs:\n{}", word.to_string_lossy(), lines.join("\n")),
                "name the script, or give the number",
            ))
        }
    }
}

fn unknown(store: &Store, word: &OsStr) -> anyhow::Error {
    let start = "start it with 'imas run -- PROGRAM ...'; 'imas show' lists what is known";
    let hint = match meant(store, word) {
        Some(meant) => format!("did you mean {meant}? Else {start}"),
        None => start.to_owned(),
    };
    Hinted::error(format!("{}: nothing is known of this program", word.to_string_lossy()), hint)
}

/// The name of a known program that is much like the word.
fn meant(store: &Store, word: &OsStr) -> Option<String> {
    let names: Vec<_> = store.programs().ok()?.iter().flat_map(names).collect();
    let word = Path::new(word).file_name()?.to_string_lossy().into_owned();
    let others = names.iter().map(String::as_str).filter(|name| *name != word);
    imas_engine::candidates::nearest(&word, others).map(str::to_owned)
}

fn all_meant(store: &Store, word: &OsStr) -> Result<Vec<StoredProgram>> {
    let text = word.to_string_lossy();
    if let Ok(number) = text.parse() {
        return Ok(store.program_numbered(number)?.into_iter().collect());
    }
    let file = file_of(word)?;
    let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
    let mut found = store.programs_at(&real.to_string_lossy())?;
    let named = started_name::detail(&real, &file);
    // By the name alone; a program that is known by its file only is meant as well.
    for detail in [named.as_str(), ""] {
        if found.iter().any(|program| program.detail == detail) && is_multi_call(&found) {
            found.retain(|program| program.detail == detail);
        }
    }
    if found.len() > 1 {
        // `imas show python3` with one plain python3 among its scripts still means several.
        found.sort_by_key(|program| program.id);
    }
    Ok(found)
}

/// Whether one of the programs is known by the name it is started by.
fn is_multi_call(programs: &[StoredProgram]) -> bool {
    programs.iter().any(|program| started_name::name_of_detail(&program.detail).is_some())
}

/// The path under which the store knows a program that is to be named by path or by name in PATH, installed
/// or not.
pub(crate) fn resolved(word: &OsStr) -> Result<String> {
    let path = file_of(word)?;
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    Ok(path.to_string_lossy().into_owned())
}

/// The file that the word names, links not followed.
fn file_of(word: &OsStr) -> Result<PathBuf> {
    let found = imas_linux::program::find(word, std::env::var_os("PATH").as_deref());
    match found {
        Ok(path) => Ok(path),
        // It may have been removed or lost its execute bit since; what is known of it can still be shown. A
        // script of this folder that an interpreter was given, as in `perl words.pl`, need not be in PATH or
        // executable.
        Err(_) if word.to_string_lossy().contains('/') || Path::new(word).is_file() => {
            Ok(std::path::absolute(word)?)
        }
        Err(error) => bail!(error),
    }
}
