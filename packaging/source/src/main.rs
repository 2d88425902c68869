// SPDX-License-Identifier: Apache-2.0
//! Reads Rust code below folders of crates with the `syn` parser. `check FOLDER...` fails where a public type name stands
//! for two types, or where a test returns early and does not print that it was skipped.

mod file;
mod names;
mod returns;
mod tests_of;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", ref folders @ ..] if !folders.is_empty() => check(folders),
        _ => bail!("usage: imas-source check FOLDER..."),
    }
}

fn check(folders: &[&str]) -> Result<ExitCode> {
    let (mut all, mut production) = (vec![], vec![]);
    for folder in folders.iter().map(Path::new) {
        all.extend(file::all(folder)?);
        production.extend(file::production(folder)?);
    }
    let mut wrong: Vec<String> = names::duplicates(&production)
        .into_iter()
        .map(|(name, places)| format!("one public name, several types: {name}: {}", places.join(", ")))
        .collect();
    wrong.extend(all.iter().flat_map(returns::silent));
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { fail(&wrong.join("\nimas: ")) })
}

#[expect(clippy::print_stderr, reason = "a check reports on standard error")]
fn fail(why: &str) -> ExitCode {
    eprintln!("imas: {why}");
    ExitCode::FAILURE
}

#[cfg(test)]
fn parsed(text: &str) -> file::SourceFile {
    file::SourceFile::parse("x/src/lib.rs".into(), text).unwrap()
}
