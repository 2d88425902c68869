// SPDX-License-Identifier: Apache-2.0
//! Programs of the store: finished trials into it, and the program that the user means out of it.
//!
//! Finished trial pages into the store. Every start harvests; nothing has to run in between. Commands that only read
//! see the finished pages beside what the store holds, and leave them where they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use imas_cli::message::Hinted;
use imas_engine::context::Context;
use imas_engine::outside;
use imas_engine::pending::{self, ActivityLooks, PendingView, expected, is_finished, is_young, keep};
use imas_linux::{interpreter_target, page};
use imas_store::Store;
use imas_store::samples::StoredProgram;

use crate::command_line::man::program_names;

/// Stores every finished page of the store and removes it. A page leaves its folder only after its sample is
/// committed. Returns what is to be said of pages that could not be read and were set aside.
fn harvest(context: &Context, store: &Store) -> Result<Vec<String>> {
    let mut damaged = vec![];
    let expected = expected();
    let mut looks = ActivityLooks::default();
    for path in page::list(&context.page_folder()?)? {
        match imas_linux::ingest::read_page_file(&path, &expected) {
            Ok(page) if is_finished(&path, &page) => {
                // Counts that the process wrote between the reading and its end matter too.
                let Ok(page) = imas_linux::ingest::read_page_file(&path, &expected) else { continue };
                let Some(page) = outside::with_account(page) else { continue };
                let page = pending::with_kill(&path, page);
                keep(context, store, &page, pending::activity_of(&path))?;
                remove(&path)?;
                outside::forget(&page);
                pending::forget_activity(&path);
                pending::forget_kills(&path);
            }
            Ok(page) => looks.at(&path, &page),
            // Another imas took it between listing and reading, or its process is about to write it.
            Err(_) if !path.exists() || is_young(&path) => {}
            Err(error) => damaged.push(set_aside(&path, &error.to_string())?),
        }
    }
    Ok(damaged)
}

/// Copy in memory of the store and of what is still in pages; nothing is moved or written. A page that
/// cannot be read is a warning.
pub(super) fn view(context: &Context) -> Result<Store> {
    let view = PendingView::read(context)?;
    view.damaged.iter().for_each(|line| imas_cli::message::warning(line));
    Ok(view.store)
}

/// The harvest before a start: what ended cleanly in production may wait, since it changes nothing.
pub(super) fn harvest_when_due(context: &Context, store: &Store) {
    if imas_engine::pending::is_harvest_due(&context.page_place()) {
        harvest_quietly(context, store);
    }
}

/// Harvests into the store of the user's own folder. A failure is a warning and ends nothing.
pub(super) fn harvest_quietly(context: &Context, store: &Store) {
    if context.of_the_system {
        return; // imasd harvests, and only pages whose process it has seen
    }
    match harvest(context, store) {
        Ok(damaged) => damaged.iter().for_each(|line| imas_cli::message::warning(line)),
        Err(error) => imas_cli::message::warning(&format!("finished trials could not be stored: {error:#}")),
    }
}

/// Removes a page. Another imas may have harvested it at this very moment; the store keeps it once.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn set_aside(path: &Path, why: &str) -> Result<String> {
    let aside = path.with_extension("page.damaged");
    std::fs::rename(path, &aside)?;
    pending::forget_kills(path);
    Ok(format!("a trial page could not be read ({why}); it was kept as {}", aside.display()))
}

/// The program of the store that the user means: a number, a path, or a name found in PATH.
pub(super) fn find(store: &Store, word: &OsStr) -> Result<StoredProgram> {
    // A word that is not in PATH and no file may be mistyped.
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
    let names: Vec<_> = store.programs().ok()?.iter().flat_map(program_names).collect();
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
    let named = interpreter_target::detail(&real, &file);
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
    programs.iter().any(|program| interpreter_target::name_of_detail(&program.detail).is_some())
}

/// The path under which the store knows a program that is to be named by path or by name in PATH, installed
/// or not.
pub(super) fn resolved(word: &OsStr) -> Result<String> {
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
