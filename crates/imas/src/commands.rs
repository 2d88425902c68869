// SPDX-License-Identifier: Apache-2.0
//! From a command to the module that does it, and what several of them need.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory;
use imas_linux::elf::Unfit;
use imas_linux::program::Command as ProgramCommand;
use imas_store::Store;
use serde::{Deserialize, Serialize};

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::{
    advise, apply, bench, doctor, env, explain, list, report, show, simulate, start, status, study, suite,
    system, wishes,
};

/// Does what was asked.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Run(args) => start::run(&args, places),
        Command::Bench(args) => bench::run(&args, &Context::new(places)?),
        Command::List(args) => list::run(&args, &Context::new(places)?),
        Command::Show(args) => show::run(&args, &Context::new(places)?),
        Command::Explain(args) => explain::run(&args, &Context::new(places)?),
        Command::Pin(args) => wishes::pin(&args, &Context::new(places)?),
        Command::Unpin(args) => wishes::unpin(&args, &Context::new(places)?),
        Command::Exclude(args) => wishes::exclude(&args.action, &Context::new(places)?),
        Command::Forget(args) => wishes::forget(&args, &Context::new(places)?),
        Command::Lift(args) => wishes::lift(&args, &Context::new(&places.of_the_system())?),
        Command::Status(args) => {
            status::run(&args, &Context::beside(&places.of_the_system(), &args.run_dir)?)
        }
        Command::Advise(args) => advise::run(args, &Context::new(places)?),
        Command::Apply(args) => apply::apply(&args, &Context::new(places)?),
        Command::Unapply(args) => apply::unapply(&args),
        Command::Env(args) => env::run(&args, &Context::new(places)?),
        Command::Doctor(args) if args.noise => crate::noise::run(&args.command, args.pairs, args.json.json),
        Command::Doctor(args) => doctor::run(args.json, &cli.places),
        Command::Suite(args) => suite::run(&args.action, places),
        Command::System(args) => system::run(&args, places),
        Command::Report(args) => report::run(&args, places),
        Command::Study(args) => study::run(&args, places),
        Command::Simulate(args) => simulate::run(&args, places),
        Command::Completions { shell } => completions(shell),
        Command::Manpages { folder } => manpages(&folder),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "imas", &mut script);
    crate::output::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

fn manpages(folder: &std::path::Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(|| folder.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// What was found in an executable; remembered in the store until the file changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Executable {
    /// Why nothing may be preloaded into it, as a sentence.
    pub(crate) unfit: Option<String>,
    /// Hexadecimal; empty if it has none.
    pub(crate) build_id: String,
}

/// Reads the executable, or remembers what was read.
pub(crate) fn inspect(command: &ProgramCommand, store: Option<&Store>) -> Result<Executable> {
    const KIND: &str = "executable, its allocator's interface";
    let file = &command.program.path;
    // Privileges hang on the script as well as on the interpreter: not a fact of one file.
    if command.privileged {
        return Ok(Executable { unfit: Some(Unfit::Privileged.why().to_owned()), build_id: String::new() });
    }
    if let Some(known) = store.and_then(|store| store.recall(file, KIND).ok().flatten()) {
        return Ok(known);
    }
    let (elf, unfit) = command.inspect().with_context(|| file.display().to_string())?;
    let found = Executable {
        unfit: unfit.map(|unfit| unfit.why().to_owned()),
        build_id: elf.build_id.unwrap_or_default(),
    };
    if let Some(store) = store {
        let _ = store.remember(file, KIND, &found); // only costs reading it again
    }
    Ok(found)
}
