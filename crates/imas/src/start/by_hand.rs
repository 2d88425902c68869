// SPDX-License-Identifier: Apache-2.0
//! A start under a candidate that the user named by `--candidate`. Nothing is decided, and nothing learned from it.

use anyhow::Result;
use imas_engine::context::Context;
use imas_engine::inline_candidate::{inline_candidate, is_typed};
use imas_engine::inspect;
use imas_engine::runtime_command::{self, RuntimeCommand};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::program::Command;

use super::{Request, STORE_TIMEOUT, Start, fitted, variables, words};
use imas_cli::message;

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
