// SPDX-License-Identifier: Apache-2.0
//! From a command to the module that does it.
//!
//! Verbs that are programs of their own beside `imas`: what they need (a terminal, a web server) would make every start
//! of `imas` slower.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use anyhow::{Context as _, Result};
use imas_cli::manual;
use imas_cli::message::Hinted;
use imas_engine::context::Context;

use crate::apply::{self, bundle, env, overrides, trim, watch};
use crate::command_line::cli::{Cli, Command, Places};
use crate::look::{advise, doctor, explain, list, report, show, status};
use crate::measure::bench;
use crate::{start, system};

/// Where the shell says which word it completes.
const COMPLETED_WORD: &str = "_CLAP_COMPLETE_INDEX";

/// Does what was asked.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Run(args) => start::run(&args, places),
        Command::Bench(args) => bench::run(&args, &Context::new(places)?),
        Command::List(args) => list::run(&args, &Context::new(places)?),
        Command::Show(args) => show::run(&args, places, &Context::new(places)?),
        Command::Explain(args) => explain::run(&args, &Context::new(places)?),
        Command::Pin(args) => overrides::pin(&args, &Context::new(places)?),
        Command::Unpin(args) => overrides::unpin(&args, &Context::new(places)?),
        Command::Exclude(args) => overrides::exclude(&args.action, &Context::new(places)?),
        Command::Forget(args) => overrides::forget(&args, &Context::new(places)?),
        Command::Unblock(args) => overrides::unblock(&args, &Context::new(&places.of_the_system())?),
        Command::Status(args) => {
            status::run(&args, &Context::beside(&places.of_the_system(), &args.run_dir)?)
        }
        Command::Advise(args) => advise::run(args, &Context::new(places)?),
        Command::Apply(args) => apply::apply(&args, places, &Context::new(places)?),
        Command::Unapply(args) => apply::unapply::unapply(&args),
        Command::Trim(args) => trim::run(&args, &Context::new(places)?),
        Command::WatchUnit { unit } => watch::run(&crate::apply::unit::full_name(&unit)?),
        Command::Env(args) => env::run(&args, places, &Context::new(places)?),
        Command::Bundle(args) => bundle::run(&args, &Context::new(places)?),
        Command::Doctor(args) if args.noise => {
            crate::measure::noise::run(&args.command, args.pairs, args.json.json)
        }
        Command::Doctor(args) => doctor::run(args.json, &cli.places),
        Command::System(args) => system::run(&args, places),
        Command::Report(args) => report::run(&args, places),
        Command::Top(args) => match run_external("top", places, &args.words)? {},
        Command::Fleet(args) => match run_external("fleet", &Places::default(), &args.words)? {},
        Command::Serve(args) => match run_external("serve", places, &args.words)? {},
        Command::Kube(args) => match run_external("kube", places, &args.words)? {},
        Command::Completions { shell } => completions(shell),
        Command::Manpages { folder } => manpages(&folder),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    manual::asking_completions("imas", shell)?;
    Ok(ExitCode::SUCCESS)
}

fn manpages(folder: &std::path::Path) -> Result<ExitCode> {
    manual::manpages(Cli::definition(), folder)?;
    crate::command_line::man::write(folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Verbs that are programs of their own.
const EXTERNAL: [&str; 4] = ["top", "serve", "fleet", "kube"];

/// Has the program of such a verb answer a shell that asks what may follow `imas VERB`. Returns when nobody asks that, or
/// it cannot answer.
pub(crate) fn complete_elsewhere() {
    if std::env::var_os("COMPLETE").is_none_or(|shell| shell.is_empty()) {
        return;
    }
    let typed: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    // The verb itself is completed here.
    let [_, verb, following @ ..] = typed.as_slice() else { return };
    let Some(verb) = EXTERNAL.into_iter().find(|one| verb == one && !following.is_empty()) else { return };
    let Ok(own) = std::env::current_exe() else { return };
    let name = format!("imas-{verb}");
    let mut program = process::Command::new(beside(&own, &name));
    program.arg("--").arg(&name).args(following);
    let index = std::env::var(COMPLETED_WORD).ok().and_then(|index| index.parse::<usize>().ok());
    program.envs(index.map(|index| (COMPLETED_WORD, index.saturating_sub(1).to_string())));
    let _ = program.exec(); // it is not there: nothing is proposed
}

/// Runs the program of that verb that lies beside `imas`, in place of this process. The words of the command
/// line that name store and libraries go before `words`.
fn run_external(verb: &str, places: &Places, words: &[OsString]) -> Result<Infallible> {
    let own = std::env::current_exe().context("cannot find out where imas itself is")?;
    let name = format!("imas-{verb}");
    let program = beside(&own, &name);
    let error = process::Command::new(&program).args(options(places)).args(words).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => Hinted::error(
            format!("{name} is missing: there is no {}", program.display()),
            "it belongs to the package imas: install that again, or in the source tree run 'make build'",
        ),
        _ => Hinted::error(
            format!("{}: {error}", program.display()),
            "it belongs to the package imas: installing that again puts it right",
        ),
    })
}

fn beside(own: &Path, name: &str) -> PathBuf {
    own.with_file_name(name)
}

/// The options given before the verb. Variables of the environment are inherited as they are.
fn options(places: &Places) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec![];
    let mut add = |option: &str, value: Option<OsString>| {
        options.extend(value.map(|value| [OsString::from(option), value]).into_iter().flatten());
    };
    add("--lib-dir", places.lib_dir.clone().map(PathBuf::into_os_string));
    add("--store", places.store.clone().filter(|_| places.store_named).map(PathBuf::into_os_string));
    add("--retest", places.retest.map(|seconds| seconds.to_string().into()));
    options.extend(places.system.then(|| "--system".into()));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_verb_are_passed_on_and_the_environment_is_not_repeated() {
        let places = Places {
            lib_dir: Some("/l".into()),
            store: Some("/s.db".into()),
            retest: Some(0.5),
            ..Places::default()
        };
        assert_eq!(options(&places), ["--lib-dir", "/l", "--retest", "0.5"]);
        let named = Places { store_named: true, system: true, lib_dir: None, retest: None, ..places };
        assert_eq!(options(&named), ["--store", "/s.db", "--system"]);
        assert_eq!(beside(Path::new("/usr/bin/imas"), "imas-top"), Path::new("/usr/bin/imas-top"));
    }
}
