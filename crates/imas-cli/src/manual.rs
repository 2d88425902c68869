// SPDX-License-Identifier: Apache-2.0
//! Man pages and completions, made from the definition of a command line.

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

/// Answers a shell that asks what may follow, and ends the process then. Does nothing for any other start.
pub fn answer_completion(definition: fn() -> Command) {
    clap_complete::CompleteEnv::with_factory(definition).complete();
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
    let named = || folder.display().to_string();
    let name = command.get_name().to_owned();
    std::fs::create_dir_all(folder).with_context(named)?;
    clap_mangen::generate_to(command, folder).with_context(named)?;
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let page = entry.with_context(named)?.path();
        if page.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name)) {
            end_of_page(&page).with_context(|| page.display().to_string())?;
        }
    }
    Ok(())
}

/// Exit statuses of every verb but `imas run`, as roff.
const EXIT_STATUS: &str =
    ".SH \"EXIT STATUS\"\n0: done. 1: done, and the answer is no. 2: could not be done.\n";
/// Exit statuses of verbs that start a command.
const OF_A_COMMAND: &str = ".SH \"EXIT STATUS\"\nThe program's own. 125: imas failed. 126: the program cannot be executed. \
                            127: it was not found.\n";
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n";

/// Adds what each page of a verb ends with, unless it has it.
fn end_of_page(page: &Path) -> std::io::Result<()> {
    let text = std::fs::read_to_string(page)?;
    let file = page.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    if text.contains(SEE_ALSO) || file == "imas.1" {
        return Ok(());
    }
    let status = if file == "imas-run.1" { OF_A_COMMAND } else { EXIT_STATUS };
    std::fs::write(page, format!("{text}{status}{SEE_ALSO}imas(1), imas.toml(5)\n"))
}
