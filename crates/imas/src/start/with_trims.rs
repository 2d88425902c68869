// SPDX-License-Identifier: Apache-2.0
//! `imas run --trim`: this process stays, as the parent of the program, and lets it and its descendants give free pages
//! back ([`imas_core::trimming`]). The program is started by the same command line without the option.
//!
//! A parent may trace its descendants where yama and a container's usual filter allow nobody else to. No helper process
//! looks at them: it would be no ancestor. Where a look never ends, trims end, and the program goes on.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::thread::{Builder, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message;
use imas_core::trimming::TrimRule;
use imas_engine::inline_candidate::TRIMS;
use imas_linux::environment::Variables;
use imas_linux::process_trim::{Trimmer, trimmable};
use imas_linux::start_program::{ChildSetup, ProgramStart, reap_orphans};
use imas_linux::{foreign_process, sampler};
use imas_runs::interruption::HandingOn;

use crate::command_line::cli::RunArgs;

/// Fewest free bytes for which a thread is disturbed.
const LEAST: u64 = 32 << 20;
/// The first process of a container, which is given every orphan.
const FIRST: u32 = 1;

/// Time between two trims of a process where the option names none.
const USUAL: Duration = Duration::from_secs(60);

/// Time between two trims of a process, where the option or the name of the candidate asks for trims.
pub(super) fn asked_by(args: &RunArgs) -> Option<Duration> {
    let is_named = args.candidate.as_ref().is_some_and(|name| name.ends_with(TRIMS));
    args.trim.or_else(|| is_named.then_some(USUAL))
}

pub(super) fn run(args: &RunArgs, every: Duration) -> Result<ExitCode> {
    let own = std::env::current_exe().context("the path of imas")?;
    let words = without_trim(std::env::args_os().collect(), args.command.len());
    let handing_on = HandingOn::begin(&[])?;
    let start = ProgramStart { file: &own, argv: &words, variables: &Variables::inherited() };
    let child = start.spawn(&ChildSetup::default()).with_context(|| own.display().to_string())?;
    if std::process::id() == FIRST {
        reap_orphans(child.id())?;
    }
    foreign_process::read_without_helper();
    let (program, is_verbose) = (child.id(), args.verbose);
    let trims = Builder::new().name("trims".to_owned()).spawn(move || trim(program, every, is_verbose));
    if let Err(error) = trims {
        message::warning(&format!("nothing is trimmed: no thread can be started: {error}"));
    }
    let status = child.wait()?;
    drop(handing_on);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code & 0xFF).unwrap_or(1)))
}

/// Trims the program and its descendants as long as this process lives.
fn trim(program: u32, every: Duration, is_verbose: bool) {
    let mut trimmer = Trimmer::new(TrimRule { every, at_least: LEAST });
    loop {
        sleep(trimmer.pause());
        let family: Vec<_> = sampler::tree(program).into_iter().filter_map(|pid| trimmable(pid, 0)).collect();
        for taken in trimmer.round(&family) {
            if let Some(words) = taken.words.filter(|_| is_verbose) {
                message::say(&format!("imas: process {} {words}", taken.identity.pid));
            }
        }
    }
}

/// The words of this process without the option and without the end of the candidate's name. Both stand before the
/// command.
fn without_trim(words: Vec<OsString>, command: usize) -> Vec<OsString> {
    let options = words.len().saturating_sub(command);
    let is_trim = |word: &OsString| word == "--trim" || word.as_encoded_bytes().starts_with(b"--trim=");
    let kept = words.into_iter().enumerate().filter(|(at, word)| *at >= options || !is_trim(word));
    let plain = |word: OsString| match word.to_str().and_then(|text| text.strip_suffix(TRIMS)) {
        Some(candidate) => candidate.into(),
        None => word,
    };
    kept.map(|(at, word)| if at < options { plain(word) } else { word }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_keeps_its_own_words() {
        let of = |text: &str, command| {
            let words = without_trim(text.split(' ').map(OsString::from).collect(), command);
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("imas run --trim -- a --trim", 2), "imas run -- a --trim");
        assert_eq!(of("imas run -v --trim=5s a --trim=1s", 2), "imas run -v a --trim=1s");
        assert_eq!(of("imas run --candidate a+trims b+trims", 1), "imas run --candidate a b+trims");
        assert_eq!(of("imas run --candidate=a+trims b", 1), "imas run --candidate=a b");
    }
}
