// SPDX-License-Identifier: Apache-2.0
//! What is made from the definition of a command line: man pages and completions.

use std::path::Path;

use crate::output;
use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

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
    output::text(&String::from_utf8_lossy(&script))
}

/// Prints the completions for a shell.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(mut command: Command, shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

/// Writes the man page of the command and one of each verb into the folder.
///
/// # Errors
/// When the folder cannot be written.
pub fn manpages(command: Command, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    clap_mangen::generate_to(command, folder).with_context(|| folder.display().to_string())
}
