// SPDX-License-Identifier: Apache-2.0
//! Starts as the user asks for them.
//!
//! Under a candidate that is named by `--candidate`: nothing is decided, and nothing learned from it.
//!
//! With trims, `imas run --trim`: this process stays, as the parent of the program, and lets it and its descendants give free
//! pages back ([`imas_core::trimming`]). The program is started by the same command line without the option, and stays on
//! the malloc that it has where no candidate is named: in a trial of another allocator nothing could be trimmed. A parent may
//! trace its descendants where yama and a container's usual filter allow nobody else to. No helper process looks at them: it
//! would be no ancestor. Where a look never ends, trims end, and the program goes on.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::thread::{Builder, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message;
use imas_core::trimming::TrimRule;
use imas_engine::context::Context;
use imas_engine::inline_candidate::{TRIMS, inline_candidate, is_typed};
use imas_engine::inspect;
use imas_engine::runtime_command::{self, RuntimeCommand};
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::process_trim::{Trimmer, trimmable};
use imas_linux::program::Command;
use imas_linux::start_program::{ChildSetup, ProgramStart, reap_orphans};
use imas_linux::{foreign_process, sampler};
use imas_runs::interruption::HandingOn;

use super::{Request, STORE_TIMEOUT, Start, fitted, variables, words};
use crate::command_line::cli::RunArgs;

/// Why a start has the candidate.
const NAMED: &str = "named by --candidate";

/// One start under a candidate the user named; nothing is decided and nothing learned.
pub(super) fn forced(
    request: Request<'_>,
    context: &Context,
    command: &Command,
    name: &str,
) -> Result<Start> {
    let typed;
    let candidate = match is_typed(name) {
        true => {
            typed = inline_candidate(name, context)?;
            &typed
        }
        false => context.candidate(name)?,
    };
    let executable = inspect::command(command, None)?;
    let request = request.of(&executable);
    if let Some(why) =
        executable.unfit.as_ref().filter(|_| candidate.runtime.is_none() && !candidate.is_huge_pages())
    {
        return match executable.fits_musl && !candidate.is_system() {
            true => of_musl(request, context, candidate, why),
            false => Ok(Start::untouched_because(request, why)),
        };
    }
    // A library that we did not build, and settings of a runtime, are tried for a while: once, if the store can be had,
    // and not at every start.
    let is_tried = candidate.added
        || candidate.needs.is_some()
        || (candidate.runtime.is_some() && !request.args.dry_run);
    let store = is_tried.then(|| context.open_store_within(STORE_TIMEOUT).ok()).flatten();
    if let Some(obstacle) = context.obstacle(candidate, store.as_ref()) {
        anyhow::bail!("{name}: {obstacle}");
    }
    let of_runtime = RuntimeCommand {
        command,
        executable: &executable,
        environment: request.environment,
        has_files: true,
    };
    let fitted = match fitted(request.args, &of_runtime, candidate, store.as_ref()) {
        Ok(fitted) => fitted,
        Err(why) => {
            message::warning(&format!("the program is started untouched: {name} is not offered: {why}"));
            return Ok(Start::untouched_because(request, why));
        }
    };
    let defined = [executable.defines, runtime_command::defined_by_preloads(request.environment)].concat();
    if let Some(why) = runtime_command::wrapped_obstacle(candidate, &defined) {
        message::warning(&format!("the program is started untouched: {why}"));
        return Ok(Start::untouched_because(request, why));
    }
    let variables = variables(request, context, &fitted, Mode::Production, None)?;
    Ok(Start {
        candidate: name.to_owned(),
        because: NAMED.to_owned(),
        words: words(&fitted, &command.argv),
        variables,
        page: None,
    })
}

/// The start of a program of musl under a candidate that the user named. `why` nothing for glibc is loaded into it.
fn of_musl(
    request: Request<'_>,
    context: &Context,
    candidate: &CatalogueCandidate,
    why: &str,
) -> Result<Start> {
    if request.args.follow {
        // A child of glibc would not start: its loader finds no libc.so for these libraries.
        let because = format!("{why}, and its children may have another (--follow)");
        return Ok(Start::untouched_because(request, because));
    }
    if let Err(none) = runtime_command::candidate_of_musl(context, candidate) {
        return Ok(Start::untouched_because(request, format!("{why}, and {none}")));
    }
    let variables = variables_of_musl(request, context, candidate)?;
    Ok(Start {
        candidate: candidate.name.clone(),
        because: NAMED.to_owned(),
        words: None,
        variables,
        page: None,
    })
}

/// The variables of a program of musl under the candidate that is built for it.
pub(super) fn variables_of_musl(
    request: Request<'_>,
    context: &Context,
    candidate: &CatalogueCandidate,
) -> Result<Variables> {
    let candidate = &runtime_command::candidate_of_musl(context, candidate).map_err(anyhow::Error::msg)?;
    let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Program, page: None };
    Ok(injection.variables(request.environment, &runtime_command::libraries_of_musl(&context.lib_dir))?)
}

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

pub(super) fn run_with_trims(args: &RunArgs, every: Duration) -> Result<ExitCode> {
    let own = std::env::current_exe().context("the path of imas")?;
    let words = without_trim(std::env::args_os().collect(), args.command.len(), args.candidate.is_some());
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
            if is_verbose {
                message::say(&format!("imas: process {} {}", taken.identity.pid, taken.words));
            }
        }
    }
}

/// The words of this process without the option and without the end of the candidate's name, which stand before the
/// command. Where no candidate is named, `system` is.
fn without_trim(words: Vec<OsString>, command: usize, is_named: bool) -> Vec<OsString> {
    let command = words.len().saturating_sub(command);
    let is_trim = |word: &OsString| word == "--trim" || word.as_encoded_bytes().starts_with(b"--trim=");
    let plain = |word: &OsString| match word.to_str().and_then(|text| text.strip_suffix(TRIMS)) {
        Some(candidate) => candidate.into(),
        None => word.clone(),
    };
    let (options, command) = words.split_at(command);
    let (options, end) = match options.split_last() {
        Some((last, options)) if last == "--" => (options, Some(last)),
        _ => (options, None),
    };
    let untouched = ["--candidate", SYSTEM].map(OsString::from);
    let candidate = if is_named { &[] } else { untouched.as_slice() };
    let options = options.iter().filter(|word| !is_trim(word)).map(plain);
    options.chain(candidate.iter().chain(end).chain(command).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_keeps_its_own_words() {
        let of = |text: &str, command| {
            let is_named = text.contains("--candidate");
            let words = without_trim(text.split(' ').map(OsString::from).collect(), command, is_named);
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("imas run --trim -- a --trim", 2), "imas run --candidate system -- a --trim");
        let verbose = of("imas run -v --trim=5s a --trim=1s", 2);
        assert_eq!(verbose, "imas run -v --candidate system a --trim=1s");
        assert_eq!(of("imas run --candidate a+trims b+trims", 1), "imas run --candidate a b+trims");
        assert_eq!(of("imas run --candidate=a+trims b", 1), "imas run --candidate=a b");
    }
}
