// SPDX-License-Identifier: Apache-2.0
//! The one way to standard output. Names of programs are chosen by whoever runs them: nothing that steers a terminal passes.

use std::io::Write;

use anyhow::Result;
use imas_core::printable;
use serde::Serialize;

/// Writes text, ending it with a newline.
pub(crate) fn text(text: &str) -> Result<()> {
    write(&printable::text(text))
}

/// Writes a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    write(&printable::json(&serde_json::to_string_pretty(value)?))
}

fn write(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    write!(out, "{text}")?;
    if !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
