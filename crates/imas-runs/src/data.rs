// SPDX-License-Identifier: Apache-2.0
//! Reads the runs of files of raw runs, to replay or show them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_cli::message::{self, Hinted};
use imas_core::raw_runs::data;

/// The runs of all files; other lines are reported.
///
/// # Errors
/// When a file cannot be read.
pub fn read_data(files: &[PathBuf]) -> Result<data::Data> {
    let texts = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    let data = data::read_all(texts.iter().map(String::as_str));
    if let [first, others @ ..] = data.unreadable.as_slice() {
        let and = if others.is_empty() { String::new() } else { format!("; {} more lines", others.len()) };
        let file = files[first.text].display();
        message::warning(&format!(
            "{file}: line {} is no run and is skipped: {}{and}",
            first.line, first.why
        ));
    }
    Ok(data)
}

/// The text of one, packed or not.
///
/// # Errors
/// When it cannot be read; the error has a hint.
pub fn read(file: &Path) -> Result<String> {
    crate::packed::read(file).map_err(|error| {
        Hinted::error(
            format!("{} cannot be read: {error}", file.display()),
            "--data names files of runs, as 'imas bench --export-runs' writes them",
        )
    })
}
