// SPDX-License-Identifier: Apache-2.0
//! All standard output goes through this module. Users choose the names of programs, so control characters
//! for terminals are removed.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
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
