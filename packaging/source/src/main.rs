// SPDX-License-Identifier: Apache-2.0
//! Reads Rust code below a folder with the `syn` parser. `check FOLDER TABLE` fails where a public type name stands for
//! two types, where a test returns early and does not print that it was skipped, or where a call that reads what others
//! own is missing in the table. `calls FOLDER` prints those calls.

mod file;
mod names;
mod reads;
mod returns;
mod tests_of;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", folder, table] => check(Path::new(folder), Path::new(table)),
        ["calls", folder] => calls(Path::new(folder)),
        _ => bail!("usage: imas-source check FOLDER TABLE | calls FOLDER"),
    }
}

#[expect(clippy::print_stdout, reason = "that is what it is asked for")]
fn calls(folder: &Path) -> Result<ExitCode> {
    for (file, calls) in reads::calls(&file::production(folder)?) {
        println!("| `{file}` | {calls} | | | |");
    }
    Ok(ExitCode::SUCCESS)
}

fn check(folder: &Path, table: &Path) -> Result<ExitCode> {
    let production = file::production(folder)?;
    let mut wrong: Vec<String> = names::duplicates(&production)
        .into_iter()
        .map(|(name, places)| format!("one public name, several types: {name}: {}", places.join(", ")))
        .collect();
    wrong.extend(file::all(folder)?.iter().flat_map(returns::silent));
    let page = std::fs::read_to_string(table).with_context(|| table.display().to_string())?;
    wrong.extend(reads::unlisted(&reads::calls(&production), &reads::table(&page)?));
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
