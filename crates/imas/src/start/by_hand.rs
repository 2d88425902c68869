// SPDX-License-Identifier: Apache-2.0
//! A start under a candidate that the user chose: named by `--candidate`, or the pin of a program that policies do not
//! decide about. Nothing is learned from it.

use anyhow::Result;
use imas_abi::page_kind;
use imas_core::sample::MEASURED_OUTSIDE;
use imas_engine::context::Context;
use imas_engine::inline_candidate::{has_settings, inline_candidate};
use imas_engine::inspect;
use imas_engine::outside;
use imas_engine::runtime_command::{self, RuntimeCommand, is_served_by_settings};
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::page::{self, Ticket};
use imas_linux::program::Command;
use imas_store::Store;

use super::{Request, STORE_TIMEOUT, Start, fitted, make_page, started_program, variables, words};
use imas_cli::message;

/// One start under a candidate the user named; nothing is decided and nothing learned.
pub(super) fn forced(
    request: Request<'_>,
    context: &Context,
    command: &Command,
    name: &str,
) -> Result<Start> {
    let typed;
    let candidate = match has_settings(name) {
        true => {
            typed = inline_candidate(name, context)?;
            &typed
        }
        false => context.candidate(name)?,
    };
    let executable = inspect::command(command, None)?;
    let request = request.of(&executable);
    if let Some(why) = executable.unfit.as_ref().filter(|_| candidate.runtime.is_none()) {
        return match executable.fits_musl && !candidate.is_system() {
            true => of_musl(request, context, candidate, (why, "named by --candidate")),
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
        because: "named by --candidate".to_owned(),
        words: words(&fitted, &command.argv),
        variables,
        page: None,
    })
}

/// The start of a program of musl under a candidate that the user named or pinned it to. `why` nothing for glibc is
/// loaded into it.
fn of_musl(
    request: Request<'_>,
    context: &Context,
    candidate: &CatalogueCandidate,
    (why, because): (&str, &str),
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
    let (candidate, because) = (candidate.name.clone(), because.to_owned());
    Ok(Start { candidate, because, words: None, variables, page: None })
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

/// The start of a program into which no library for glibc can be loaded, under the settings of its runtime or the allocator
/// built for musl that its user pinned it to; with these settings where the program gets them.
pub(super) fn pinned_unfit<'a>(
    request: Request<'_>,
    (context, store): (&'a Context, &Store),
    of_runtime: &RuntimeCommand<'_>,
) -> Result<Option<(Option<&'a CatalogueCandidate>, Start)>> {
    let executable = of_runtime.executable;
    if !is_served_by_settings(executable) && !executable.fits_musl {
        return Ok(None);
    }
    let program = started_program(store, &of_runtime.command.program)?;
    let pinned = store.pinned(program.id)?.and_then(|name| context.catalogue.find(&name));
    let is_given = |candidate: &&CatalogueCandidate| match candidate.runtime {
        Some(_) => is_served_by_settings(executable),
        None => executable.fits_musl && !candidate.is_system(),
    };
    let Some(candidate) = pinned.filter(is_given) else { return Ok(None) };
    if candidate.runtime.is_none() {
        let why = executable.unfit.as_deref().unwrap_or_default();
        let start = of_musl(request, context, candidate, (why, "pinned"))?;
        return Ok(Some((None, watched(request, context, of_runtime, start)?)));
    }
    let fitted = match fitted(request.args, of_runtime, candidate, Some(store)) {
        Ok(fitted) => fitted,
        Err(why) => {
            let why = format!("{} is not offered: {why}", candidate.name);
            return Ok(Some((None, Start::untouched_because(request, why))));
        }
    };
    let start = Start {
        candidate: candidate.name.clone(),
        because: "pinned".to_owned(),
        words: words(&fitted, &of_runtime.command.argv),
        variables: variables(request, context, &fitted, Mode::Production, None)?,
        page: None,
    };
    Ok(Some((Some(candidate), watched(request, context, of_runtime, start)?)))
}

/// The start with a page, where imasd can be asked for its account: a crash under the pin shows in that.
fn watched(
    request: Request<'_>,
    context: &Context,
    of_runtime: &RuntimeCommand<'_>,
    start: Start,
) -> Result<Start> {
    if request.args.dry_run || start.candidate == SYSTEM || outside::folder().is_err() {
        return Ok(start);
    }
    let trial_id = page::new_trial_id()?;
    let ticket = Ticket {
        kind: page_kind::FLIGHT,
        trial_id: &trial_id,
        candidate: &start.candidate,
        served: MEASURED_OUTSIDE,
        program: &of_runtime.command.program,
        build_id: &of_runtime.executable.build_id,
        pid: std::process::id(),
    };
    let page = make_page(context.page_folder(), &ticket);
    Ok(Start { page, ..start })
}
