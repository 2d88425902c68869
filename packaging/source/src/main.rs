// SPDX-License-Identifier: Apache-2.0
//! Reads Rust code below folders of crates with the `syn` parser. `check TABLE FOLDER...` fails where a public type name
//! stands for two types, where a test returns early and does not print that it was skipped, where a doc comment does not
//! name its noun, or where a call that reads what others own, or that looks a path up, is missing in the tables. `calls
//! FOLDER...` prints those calls.

mod file;
mod names;
mod nouns;
mod reads;
mod returns;
mod tests_of;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::reads::{ForeignNames, Kind};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", table, ref folders @ ..] if !folders.is_empty() => check(Path::new(table), folders),
        ["calls", ref folders @ ..] if !folders.is_empty() => calls(folders),
        _ => bail!("usage: imas-source check TABLE FOLDER... | calls FOLDER..."),
    }
}

#[expect(clippy::print_stdout, reason = "that is what it is asked for")]
fn calls(folders: &[&str]) -> Result<ExitCode> {
    let production = production(folders)?;
    for (file, calls) in reads::calls(Kind::Read, &production) {
        println!("| `{file}` | {calls} | | | |");
    }
    println!();
    for (file, calls) in reads::calls(Kind::Name, &production) {
        println!("| `{file}` | {calls} | | |");
    }
    Ok(ExitCode::SUCCESS)
}

fn production(folders: &[&str]) -> Result<Vec<file::SourceFile>> {
    let each = folders.iter().map(|folder| file::production(Path::new(folder)));
    Ok(each.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

#[expect(clippy::print_stdout, reason = "the figure is what the check is asked for")]
fn check(table: &Path, folders: &[&str]) -> Result<ExitCode> {
    let production = production(folders)?;
    let mut wrong: Vec<String> = names::duplicates(&production)
        .into_iter()
        .map(|(name, places)| format!("one public name, several types: {name}: {}", places.join(", ")))
        .collect();
    for folder in folders {
        let files = file::all(Path::new(folder))?;
        wrong.extend(files.iter().flat_map(returns::silent));
        wrong.extend(files.iter().flat_map(nouns::missing));
    }
    let page = std::fs::read_to_string(table).with_context(|| table.display().to_string())?;
    for kind in [Kind::Read, Kind::Name] {
        wrong.extend(reads::unlisted(&reads::calls(kind, &production), &reads::table(kind, &page)?));
    }
    let names = ForeignNames::of(&page)?;
    wrong.extend(names.faults());
    println!("{names}");
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
