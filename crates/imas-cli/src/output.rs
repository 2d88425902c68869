// SPDX-License-Identifier: Apache-2.0
//! All standard output goes through this module. Users choose the names of programs, so control characters
//! for terminals are removed.
//!
//! What is made from the definition of a command line: man pages and completions.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use imas_core::printable;
use serde::Serialize;

/// Writes text, ending it with a newline.
///
/// # Errors
/// When standard output cannot be written.
pub fn text(text: &str) -> Result<()> {
    write(&printable::text(text))
}

/// Writes text to which `colour` adds its escape sequences; where standard output is no terminal, or
/// `NO_COLOR` is set, they are left out.
///
/// # Errors
/// When standard output cannot be written.
pub fn coloured(text: &str, colour: impl Fn(&str) -> String) -> Result<()> {
    write(&colour(&printable::text(text)))
}

/// Writes a value as indented JSON.
///
/// # Errors
/// When standard output cannot be written.
pub fn json(value: &impl Serialize) -> Result<()> {
    write(&printable::json(&serde_json::to_string_pretty(value)?))
}

/// Writes a value as JSON, or else a page for people.
///
/// # Errors
/// When standard output cannot be written.
pub fn json_or(is_json: bool, value: &impl Serialize, page: impl FnOnce() -> String) -> Result<()> {
    if is_json { json(value) } else { text(&page()) }
}

/// Whether the name of a file stands for standard output.
#[must_use]
pub fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn write(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    write!(out, "{text}")?;
    if !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Prints what has a shell ask the command itself for completions: the names of candidates and programs
/// change.
///
/// # Errors
/// When the shell is not known or standard output cannot be written.
pub fn asking_completions(name: &str, shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    let shells = clap_complete::env::Shells::builtins();
    let shell = shells.completer(&shell.to_string()).with_context(|| format!("{shell}: no completions"))?;
    shell.write_registration("COMPLETE", name, name, name, &mut script).context("completions")?;
    text(&String::from_utf8_lossy(&script))
}

/// Prints the completions for a shell.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(mut command: Command, shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    text(&String::from_utf8_lossy(&script))
}

/// Writes the man page of the command and one of each verb into the folder.
///
/// # Errors
/// When the folder cannot be written.
pub fn manpages(command: Command, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    clap_mangen::generate_to(command, folder).with_context(|| folder.display().to_string())
}
