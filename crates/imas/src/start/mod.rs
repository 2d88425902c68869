// SPDX-License-Identifier: Apache-2.0
//! `imas run`: exec under the decided candidate. A start, step by step:
//!
//! 1. [`crate::command_line::wrapper`] looks for the program that `env`, `nice`, `sh -c` and other wrappers start.
//!    [`imas_linux::program`] resolves the words: PATH, `#!` lines, `env NAME`. A program is an executable,
//!    with its script or main class.
//! 2. [`settled`] has the decision of a program that is settled: steps 3 to 5 fall away.
//! 3. [`crate::stored`] moves the pages of ended processes into the store (commit, then unlink).
//! 4. [`imas_engine::inspect`] reads the executable, and [`imas_engine::state`] what the store has of the program.
//! 5. [`imas_engine::decide`] gets both and the machine's [`Conditions`] and returns what the next starts are to be:
//!    candidate, trial or not, reason, evidence. Nothing is given to a program that is static, has a malloc of its own, a
//!    sanitizer or privileges; settings of its runtime or an allocator for musl may be.
//! 6. [`imas_linux::page`] makes and prepares the page. [`imas_linux::environment`] computes the variables
//!    and how to undo them. Then exec, with the same pid. For a program without a hook imasd is asked for the
//!    kernel's account of the process ([`imas_engine::outside`]).
//! 7. In the new process, the guard or the hook restores the environment and takes its page: see the headers
//!    of `hook/`.
//!
//! Nothing here may keep the program from starting. If IMAS fails, the program starts untouched, and a
//! message on standard error gives the reason. Only a command that cannot be started at all ends with 126 or
//! 127, as with env(1).

mod by_hand;
pub(crate) mod settled;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use imas_abi::page_kind;
use imas_core::adaptive::{Objective, weight};
use imas_core::decision::{Conditions, Decision, RestsOn};
use imas_core::sample::MEASURED_OUTSIDE;
use imas_engine::decide::{
    Giving, NextStart, Starter, after_others, conditions, decide, decided, weight_file,
};
use imas_engine::inspect::{self, ExecutableFacts};
use imas_engine::lasting::behind_a_script;
use imas_engine::runtime_command::{self, RuntimeCommand, seen_arguments};
use imas_engine::state::{ProgramState, profile_of, state_where};
use imas_engine::{folders, outside, pending};
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::control_group::memory_limit;
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::page::{self, PageFileError, Ticket};
use imas_linux::preloads;
use imas_linux::program::{Command, CommandError, Program};
use imas_linux::runtime_start::{Fitted, with_arguments};
use imas_linux::start_program::ProgramStart;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};

use crate::command_line::cli::{Places, RunArgs};
use crate::command_line::wrapper::{self, Unwrapped};
use crate::start::settled::{Asked, Basis, Kept, SettledStart};
use imas_cli::message;
use imas_engine::context::Context;
use imas_engine::entry;

/// Time for which a start waits for a store that another process has locked, before it goes on untouched.
/// Writes take milliseconds.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

/// Arguments and environment of the start that is asked for.
#[derive(Clone, Copy)]
struct Request<'a> {
    args: &'a RunArgs,
    /// The environment that the program is to have.
    environment: &'a Variables,
    /// The processes that get the candidate.
    reach: Reach,
}

impl Request<'_> {
    /// Request for that executable, else the same. One that executes itself without libc goes round the guard, which would
    /// give the variables to its own file alone.
    fn of(self, executable: &ExecutableFacts) -> Self {
        if executable.execs_itself { Self { reach: Reach::Children, ..self } } else { self }
    }
}

/// Decides and execs; returns only when nothing could be started, for a dry run, or after a start with trims.
pub(crate) fn run(args: &RunArgs, places: &Places) -> Result<ExitCode> {
    if let Some(every) = by_hand::asked_by(args) {
        return by_hand::run_with_trims(args, every);
    }
    let mut unwrapped = wrapper::unwrap(&args.command, Variables::inherited());
    if let Some(error) = start_wrapper(args, &unwrapped) {
        return Ok(entry::exit_status(error));
    }
    if args.dry_run
        && let Some(words) = unwrapped.inner_words()
    {
        unwrapped.words = words;
    }
    if args.inside_wrapper {
        wrapper::name_program(&mut unwrapped.environment, &unwrapped.words);
    }
    let Unwrapped { words, environment, .. } = unwrapped;
    let command = match Command::resolve(&words, wrapper::path_of(&environment)) {
        Ok(command) => command,
        Err(error) => return Ok(entry::exit_status(error)),
    };
    let reach = if args.follow { Reach::Children } else { Reach::Program };
    let request = Request { args, environment: &environment, reach };
    let start = plan(request, places, &command).unwrap_or_else(|error| {
        message::error(&imas_engine::entry::advised(error));
        message::warning("the program is started untouched");
        Start::untouched(request)
    });
    if args.verbose || args.dry_run {
        message::say(&format!("imas: {} under {}: {}", command.program, start.candidate, start.because));
    }
    if args.dry_run {
        start.discard();
        return Ok(ExitCode::SUCCESS);
    }
    let Err(mut error) = start.exec(&command);
    if error.lacks_room() && (start.variables != environment || start.words.is_some()) {
        message::warning(
            "the program is started untouched: its arguments leave no room for IMAS's variables",
        );
        Err(error) = Start::untouched(request).exec(&command);
    }
    Ok(entry::exit_status(error.into()))
}

/// Starts a wrapper with `imas run` before the command inside it, and does not return then. None when there
/// is no wrapper to start; an error when it cannot be started.
fn start_wrapper(args: &RunArgs, unwrapped: &Unwrapped) -> Option<CommandError> {
    // With the children under one candidate by name, it makes no difference where it begins.
    let as_it_is =
        args.dry_run || is_disabled(&unwrapped.environment) || (args.follow && args.candidate.is_some());
    if as_it_is || unwrapped.inner.is_none() {
        return None;
    }
    let (words, variables) = unwrapped.with_launcher(&wrapper::launcher(args.command.len())?)?;
    let command = match Command::resolve(&words, wrapper::path_of(&variables)) {
        Ok(command) => command,
        Err(error) => return Some(error),
    };
    let start =
        Start { candidate: SYSTEM.to_owned(), because: String::new(), words: None, variables, page: None };
    let Err(error) = start.exec(&command);
    // Then the wrapper is started as it is.
    if error.lacks_room() { None } else { Some(error.into()) }
}

fn is_disabled(environment: &Variables) -> bool {
    let name = imas_abi::env::DISABLE;
    let ours = std::env::var_os(name);
    [ours.as_ref(), environment.get(OsStr::new(name))].into_iter().flatten().any(|value| value == "1")
}

/// Why exec failed.
struct ExecError {
    file: PathBuf,
    error: std::io::Error,
}

impl ExecError {
    /// Whether arguments and environment together are too long.
    fn lacks_room(&self) -> bool {
        self.error.kind() == std::io::ErrorKind::ArgumentListTooLong
    }
}

impl From<ExecError> for CommandError {
    fn from(ExecError { file, error }: ExecError) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound(file),
            _ => Self::NotExecutable { file, why: error.to_string() },
        }
    }
}

/// All that exec needs.
struct Start {
    candidate: String,
    because: String,
    /// The words, where the candidate adds some.
    words: Option<Vec<OsString>>,
    variables: Variables,
    page: Option<PathBuf>,
}

impl Start {
    fn untouched(request: Request<'_>) -> Self {
        Self {
            candidate: SYSTEM.to_owned(),
            because: "untouched".to_owned(),
            words: None,
            variables: request.environment.clone(),
            page: None,
        }
    }

    fn untouched_because(request: Request<'_>, because: impl Into<String>) -> Self {
        Self { because: because.into(), ..Self::untouched(request) }
    }

    /// Executes the program. Returns only when that fails.
    fn exec(&self, command: &Command) -> Result<Infallible, ExecError> {
        let argv = self.words.as_deref().unwrap_or(&command.argv);
        let start = ProgramStart { file: &command.file, argv, variables: &self.variables };
        let error = start.exec();
        self.discard();
        Err(ExecError { file: command.file.clone(), error })
    }

    /// The start does not happen: its page must not look like a crash.
    fn discard(&self) {
        if let Some(page) = &self.page {
            let _ = std::fs::remove_file(page); // a leftover is harvested as a start that never was
            pending::forget_kills(page);
        }
    }
}

fn plan(request: Request<'_>, places: &Places, command: &Command) -> Result<Start> {
    let Request { args, environment, .. } = request;
    if is_disabled(environment) {
        return Ok(Start::untouched_because(request, "IMAS_DISABLE=1"));
    }
    // An auditor has a C library and a TLS area of its own; with a large allocator beside it ld.so refuses
    // the program.
    if environment.get(OsStr::new("LD_AUDIT")).is_some_and(|auditors| !auditors.is_empty()) {
        return Ok(Start::untouched_because(request, "LD_AUDIT is set"));
    }
    if let Some(settled) = settled::find(args, places, command, environment) {
        return settled_start(request, places, command, &settled);
    }
    if let Some(why) = preloads::own_malloc(environment) {
        message::warning(&format!("the program is started untouched: {why}"));
        return Ok(Start::untouched_because(request, why));
    }
    let context = Context::new(places)?;
    if let Some(name) = &args.candidate {
        return by_hand::forced(request, &context, command, name);
    }
    decided_anew(request, places, &context, command)
}

/// A start that was decided before: no store is opened.
fn settled_start(
    request: Request<'_>,
    places: &Places,
    command: &Command,
    (settled, candidate): &(SettledStart, Fitted),
) -> Result<Start> {
    let trial_id = page::new_trial_id()?;
    let ticket = Ticket {
        kind: page_kind::FLIGHT,
        trial_id: &trial_id,
        candidate: &candidate.name,
        served: if candidate.is_bare() { MEASURED_OUTSIDE } else { "" },
        program: &command.program,
        build_id: settled.build_id(),
        pid: std::process::id(),
    };
    let store = folders::real_store(&folders::store_path(places.store.as_deref())?);
    let watched = is_watched(candidate, &ticket);
    let page = watched.then(|| make_page(page::folder_of_store(&store), &ticket)).flatten();
    let reach = request.of(settled.executable()).reach;
    let injection = Injection { candidate, mode: Mode::Production, reach, page: page.as_deref() };
    let variables = injection.variables(request.environment, &settled.libraries)?;
    let words = words(candidate, &command.argv);
    Ok(Start { candidate: candidate.name.clone(), because: "settled".to_owned(), words, variables, page })
}

/// A start by the store: pages are harvested, the policy decides, and what is settled is kept for the next start.
fn decided_anew(
    request: Request<'_>,
    places: &Places,
    context: &Context,
    command: &Command,
) -> Result<Start> {
    let args = request.args;
    let basis = || args.is_plain.then(|| Basis::now(Asked::of(args, places), context, &command.program.path));
    let store = harvested(args, context)?;
    // Read after the store was opened: SQLite sets the owner of the log for root, which changes its stamp.
    let basis_of_file = basis();
    let executable = inspect::command(command, Some(&store))?;
    let request = request.of(&executable);
    let of_runtime = RuntimeCommand {
        command,
        executable: &executable,
        environment: request.environment,
        has_files: true,
    };
    let keep = |candidate, rests_on, basis| {
        settled::keep(context, basis, &Kept { of_command: &of_runtime, candidate, rests_on });
    };
    let giving = Giving::of(&executable, if args.follow { Starter::RunFollowed } else { Starter::Run });
    if let Some(why) = giving.nothing() {
        keep(context.candidate(SYSTEM)?, RestsOn::Nothing, basis_of_file);
        return Ok(Start::untouched_because(request, why));
    }
    if let Some(why) = context.own_obstacle(Some(&store)) {
        message::warning(&format!("the program is started untouched: {why}"));
        return Ok(Start::untouched_because(request, why));
    }
    let basis = basis();
    let program = started_program(&store, &command.program)?;
    // Before the trials are read: what ends from here on is not looked at.
    let (program_id, seen) = (program.id, store.newest_trial()?);
    advise_at_first(args, &store, program_id, command)?;
    let known = known(context, &store, program, &of_runtime)?;
    let conditions = conditions()?;
    let profile = profile_of(&known, context, &args.rules);
    let mut next = decide(&profile, &giving, &conditions);
    let trial_id = page::new_trial_id()?;
    let decision = if args.dry_run {
        after_others((context, &store), (&known.program, seen), next.clone())?.0
    } else {
        keep_weight(&conditions);
        // Asked before the trial is recorded: a runtime may refuse its settings.
        let of_trial = context.candidate(&next.decision.candidate)?;
        if next.decision.trial && fitted(args, &of_runtime, of_trial, Some(&store)).is_err() {
            next.decision = next.production.clone();
        }
        take(&store, (program_id, seen), &next, (trial_id.clone(), context.limits.retest_s))?
    };
    let chosen = context.candidate(&decision.candidate)?;
    let candidate = match fitted(args, &of_runtime, chosen, Some(&store)) {
        Ok(candidate) => candidate,
        // It is known from now on, and the next start gets another.
        Err(why) => {
            let why = format!("{} is not offered: {why}", decision.candidate);
            return Ok(Start::untouched_because(request, why));
        }
    };
    let is_outside = giving.is_outside() || candidate.is_bare();
    // The small file has no libraries for musl.
    let is_of_musl = is_outside && chosen.library.is_some();
    if !args.dry_run && next.trial().is_none() && !is_of_musl {
        keep(chosen, next.rests_on, basis.map(|basis| basis.until(&profile)));
    }
    let ticket = Ticket {
        kind: if decision.trial { page_kind::TRIAL } else { page_kind::FLIGHT },
        trial_id: &trial_id,
        candidate: &decision.candidate,
        served: if is_outside { MEASURED_OUTSIDE } else { "" },
        program: &command.program,
        build_id: &known.build_id,
        pid: std::process::id(),
    };
    let mut start = prepare(request, context, (&decision, &candidate), command, &ticket)?;
    for (name, why) in known.left_out() {
        start.because.push_str(&format!(" {name} is left out: {why}."));
    }
    Ok(start)
}

/// The store with the pages that were due. A dry run reads alone.
fn harvested(args: &RunArgs, context: &Context) -> Result<Store> {
    if args.dry_run {
        return crate::stored::view(context);
    }
    let store = context.open_store_within(STORE_TIMEOUT)?;
    // Pages of a pinned program are stored too, though its start needs none: one that is due would keep it
    // from settling.
    crate::stored::harvest_when_due(context, &store);
    Ok(store)
}

/// State of the program with the candidates that this very command may get.
fn known(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    of_runtime: &RuntimeCommand<'_>,
) -> Result<ProgramState> {
    let preloaded = runtime_command::defined_by_preloads(of_runtime.environment);
    let pinned = store.pinned(program.id)?;
    let is_usable = |candidate: &CatalogueCandidate| {
        context.obstacle(candidate, Some(store)).is_none()
            && runtime_command::wrapped_obstacle(candidate, &preloaded).is_none()
            && of_runtime.fitted_unasked(candidate, Some(store)).is_ok_and(|fitted| {
                pinned.as_ref() == Some(&candidate.name)
                    || context.names(candidate)
                    || seen_arguments(&fitted, of_runtime.executable).is_none()
            })
    };
    state_where(context, store, program, &of_runtime.executable.build_id, &is_usable)
}

fn started_program(store: &Store, program: &Program) -> Result<StoredProgram> {
    Ok(store.program(&program.path.to_string_lossy(), &program.detail)?)
}

/// Prints once that nothing can be learned about the programs that this one starts.
fn advise_at_first(args: &RunArgs, store: &Store, program: RowId, command: &Command) -> Result<()> {
    if !args.follow
        && let Some(advice) = wrapper::advice(command)
        && store.latest(program)?.is_none()
    {
        message::warning(&advice);
    }
    Ok(())
}

/// The candidate with its settings for this command. A dry run starts nothing, a runtime neither. With `--follow` the
/// settings are for what a program without a runtime starts, such as a start script.
fn fitted(
    args: &RunArgs,
    of_runtime: &RuntimeCommand<'_>,
    candidate: &CatalogueCandidate,
    store: Option<&Store>,
) -> Result<Fitted, String> {
    if args.follow && of_runtime.executable.runtimes.is_empty() && candidate.runtime.is_some() {
        behind_a_script(candidate, of_runtime.environment, memory_limit())
    } else if args.dry_run {
        of_runtime.fitted_unasked(candidate, store)
    } else {
        of_runtime.fitted(candidate, store)
    }
}

/// The words of the start, where the candidate adds some.
fn words(candidate: &CatalogueCandidate, argv: &[OsString]) -> Option<Vec<OsString>> {
    let adds = candidate.runtime.as_ref().is_some_and(|settings| !settings.arguments.is_empty());
    adds.then(|| with_arguments(candidate, argv))
}

/// Keeps the weight between CPU and memory for the hysteresis of the next start, when it moved.
fn keep_weight(conditions: &Conditions) {
    let weight = weight(conditions, Objective::Auto).w;
    if conditions.weight_before != Some(weight)
        && let Some(file) = weight_file()
    {
        let _ = std::fs::write(file, weight.to_string()); // without it the next start only lacks the damping
    }
}

/// The decision, recorded. A trial that another start is making at this moment is not made twice: trials
/// side by side share one run of `system`, and use up the rounds of their candidate.
fn take(
    store: &Store,
    (program, seen): (RowId, RowId),
    next: &NextStart,
    trial: (String, f64),
) -> Result<Decision> {
    if next.decision.trial && store.begin(program, &decided(&next.decision, Some(trial)), seen)? {
        return Ok(next.decision.clone());
    }
    store.record(program, &decided(&next.production, None))?;
    Ok(next.production.clone())
}

fn prepare(
    request: Request<'_>,
    context: &Context,
    (decision, candidate): (&Decision, &CatalogueCandidate),
    command: &Command,
    ticket: &Ticket<'_>,
) -> Result<Start> {
    let is_outside = !ticket.served.is_empty();
    // Before the page is made: a program that starts untouched after all would be measured as one under the candidate.
    let plain = is_outside.then(|| variables_outside(request, context, candidate)).transpose()?;
    let has_page = !request.args.dry_run && (decision.trial || is_watched(candidate, ticket));
    let page = has_page.then(|| make_page(context.page_folder(), ticket)).flatten();
    if decision.trial && has_page && page.is_none() {
        return Ok(Start::untouched_because(request, "no trial page could be made"));
    }
    let mode = if decision.trial { Mode::Trial } else { Mode::Production };
    let variables = match plain {
        Some(plain) => plain,
        None => variables(request, context, candidate, mode, page.as_deref())?,
    };
    let words = words(candidate, &command.argv);
    Ok(Start { candidate: candidate.name.clone(), because: decision.text(), words, variables, page })
}

/// Whether a production start is watched. Started untouched, there is nothing to watch.
fn is_watched(candidate: &CatalogueCandidate, ticket: &Ticket<'_>) -> bool {
    !candidate.is_system() && (ticket.served.is_empty() || outside::folder().is_ok())
}

/// The variables of a program into which nothing of ours for glibc is loaded. Nothing in it knows of a page.
fn variables_outside(
    request: Request<'_>,
    context: &Context,
    candidate: &CatalogueCandidate,
) -> Result<Variables> {
    match (candidate.is_system(), &candidate.library) {
        (true, _) => Ok(request.environment.clone()),
        (false, Some(_)) => by_hand::variables_of_musl(request, context, candidate),
        (false, None) => variables(request, context, candidate, Mode::Production, None),
    }
}

fn variables(
    request: Request<'_>,
    context: &Context,
    candidate: &CatalogueCandidate,
    mode: Mode,
    page: Option<&Path>,
) -> Result<Variables> {
    let injection = Injection { candidate, mode, reach: request.reach, page };
    Ok(injection.variables(request.environment, &context.libraries)?)
}

/// The page of this start: in a trial calls are counted in it; in production it only distinguishes a crash from a clean
/// end. Where nothing in the process writes it, imasd is asked for the kernel's account.
fn make_page(folder: Result<PathBuf, PageFileError>, ticket: &Ticket<'_>) -> Option<PathBuf> {
    let made = folder.and_then(|folder| page::create(&folder, ticket));
    let page = made.inspect_err(|error| message::warning(&format!("no trial page: {error}"))).ok()?;
    if !ticket.served.is_empty()
        && let Err(error) = outside::ask()
    {
        message::warning(&format!("no trial page: imasd cannot be asked for the account of it: {error}"));
        let _ = std::fs::remove_file(&page); // a leftover is harvested as an unknown start
        return None;
    }
    pending::note_kills(&page);
    Some(page)
}
