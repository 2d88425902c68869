// SPDX-License-Identifier: Apache-2.0
//! The one way to standard output.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

/// Writes text, ending it with a newline.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    write!(out, "{text}")?;
    if !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Writes a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    text(&serde_json::to_string_pretty(value)?)
}
