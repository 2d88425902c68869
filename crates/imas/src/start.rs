// SPDX-License-Identifier: Apache-2.0
//! `imas run`: exec under the decided candidate. A start, step by step:
//!
//! 1. [`imas_linux::program`] resolves the words: PATH, `#!` lines, `env NAME`. A program is an executable, with its script or main class.
//! 2. [`imas_linux::elf`] says whether anything may be preloaded: static, another libc, a malloc of its own, a sanitizer, privileges.
//! 3. [`crate::harvest`] moves the pages of ended processes into the store (commit, then unlink).
//! 4. [`imas_core::decide`] gets a `ProfileView` and the machine's [`Conditions`] and answers a [`Decision`]: candidate, trial or not, reason, evidence.
//! 5. [`imas_linux::page`] makes the page, armed; [`imas_linux::environment`] the variables and how to undo them; exec, same pid.
//! 6. Inside, the guard or the hook restores the environment, takes its page and stands back: see the headers of `hook/`.
//!
//! Nothing here may keep the program from starting: whatever goes wrong with IMAS, it is started untouched, and the trouble is said
//! on standard error. Only a command that cannot be started at all ends with 126 or 127, as with env(1).

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_abi::page_kind;
use imas_core::adaptive::{Objective, weight};
use imas_core::decision::{Conditions, Decision, Evidence};
use imas_core::{ProfileView, Reason, decide, decide_production};
use imas_linux::catalogue::{Candidate, SYSTEM};
use imas_linux::clock::now_unix_s;
use imas_linux::environment::{Injection, Mode, Reach, SIGPIPE_IGNORED, Variables};
use imas_linux::page::{self, Ticket};
use imas_linux::program::{Command, CommandError};
use imas_store::decisions::Decided;
use imas_store::{RowId, Store};

use crate::cli::{Places, RunArgs};
use crate::context::Context;
use crate::message;
use crate::profile;
use crate::under_way;

/// How long a start waits for a store that another process has locked, before it goes on untouched. Writes take milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// Exit status for a file that is there but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status for a command that is not found.
const NOT_FOUND: u8 = 127;

/// Decides and execs; returns only when nothing could be started, or for a dry run.
pub(crate) fn run(args: &RunArgs, places: &Places) -> Result<ExitCode> {
    let command = match Command::resolve(&args.command, std::env::var_os("PATH").as_deref()) {
        Ok(command) => command,
        Err(error) => return Ok(cannot_start(error)),
    };
    let start = plan(args, places, &command).unwrap_or_else(|error| {
        message::error(&error);
        message::warning("the program is started untouched");
        Start::untouched()
    });
    if args.verbose || args.dry_run {
        message::say(&format!("imas: {} under {}: {}", command.program, start.candidate, start.because));
    }
    if args.dry_run {
        start.discard();
        return Ok(ExitCode::SUCCESS);
    }
    let Err(error) = start.exec(&command);
    Ok(cannot_start(error))
}

fn cannot_start(error: CommandError) -> ExitCode {
    let code = if matches!(error, CommandError::NotFound(_)) { NOT_FOUND } else { NOT_EXECUTABLE };
    message::error(&error.into());
    ExitCode::from(code)
}

/// All that exec needs.
struct Start {
    candidate: String,
    because: String,
    variables: Variables,
    page: Option<PathBuf>,
}

impl Start {
    fn untouched() -> Self {
        Self {
            candidate: SYSTEM.to_owned(),
            because: "untouched".to_owned(),
            variables: std::env::vars_os().collect(),
            page: None,
        }
    }

    fn untouched_because(because: impl Into<String>) -> Self {
        Self { because: because.into(), ..Self::untouched() }
    }

    fn exec(mut self, command: &Command) -> Result<Infallible, CommandError> {
        self.variables.remove(OsStr::new(SIGPIPE_IGNORED));
        let error = match std::env::var_os(SIGPIPE_IGNORED).is_some() {
            true => self.exec_as_we_are(command),
            false => self.exec_with_sigpipe(command),
        };
        self.discard();
        let file = command.file.clone();
        Err(match error.kind() {
            std::io::ErrorKind::NotFound => CommandError::NotFound(file),
            _ => CommandError::NotExecutable { file, why: error.to_string() },
        })
    }

    /// The usual start: std gives SIGPIPE back its default, which Rust's start-up took away.
    fn exec_with_sigpipe(&self, command: &Command) -> std::io::Error {
        let arg0 = command.argv.first().map_or(command.file.as_os_str(), |word| word);
        std::process::Command::new(&command.file)
            .arg0(arg0)
            .args(command.argv.get(1..).unwrap_or_default())
            .env_clear()
            .envs(&self.variables)
            .exec()
    }

    /// SIGPIPE stays ignored, as it was when we began.
    fn exec_as_we_are(&self, command: &Command) -> std::io::Error {
        let pairs = self.variables.iter().map(|(name, value)| {
            [name.as_os_str(), OsStr::new("="), value].into_iter().collect::<OsString>()
        });
        let exec = || -> Result<Infallible, std::io::Error> {
            let file = CString::new(command.file.as_os_str().as_bytes())?;
            let argv = words(command.argv.iter().cloned())?;
            Ok(nix::unistd::execvpe(&file, &argv, &words(pairs)?)?)
        };
        let Err(error) = exec();
        error
    }

    /// The start does not happen: its page must not look like a crash.
    fn discard(&self) {
        if let Some(page) = &self.page {
            let _ = std::fs::remove_file(page); // a leftover is harvested as a start that never was
        }
    }
}

fn words(texts: impl Iterator<Item = OsString>) -> Result<Vec<CString>, std::io::Error> {
    Ok(texts.map(|text| CString::new(text.into_vec())).collect::<Result<_, _>>()?)
}

fn plan(args: &RunArgs, places: &Places, command: &Command) -> Result<Start> {
    if std::env::var_os(imas_abi::env::DISABLE).is_some_and(|value| value == "1") {
        return Ok(Start::untouched_because("IMAS_DISABLE=1"));
    }
    // An auditor has a C library and a TLS area of its own; with a large allocator beside it ld.so refuses the program.
    if std::env::var_os("LD_AUDIT").is_some_and(|auditors| !auditors.is_empty()) {
        return Ok(Start::untouched_because("LD_AUDIT is set"));
    }
    let context = Context::new(places)?;
    if let Some(name) = &args.candidate {
        return forced(args, &context, command, name);
    }
    let store = context.open_store_within(PATIENCE)?;
    let executable = crate::commands::inspect(command, Some(&store))?;
    if let Some(why) = executable.unfit {
        return Ok(Start::untouched_because(why));
    }
    if let Some(why) = context.own_obstacle(Some(&store)) {
        message::warning(&format!("the program is started untouched: {why}"));
        return Ok(Start::untouched_because(why));
    }
    crate::harvest::harvest_quietly(&context, &store);
    let program = store.program(&command.program.path.to_string_lossy(), &command.program.detail)?;
    // Before the trials are read: what ends from here on is not looked at.
    let (program_id, seen) = (program.id, store.newest_trial()?);
    let known = profile::state(&context, &store, program, &executable.build_id)?;
    let conditions = conditions()?;
    let profile = profile::profile(&known, &context, &args.rules);
    let trial_id = page::new_trial_id()?;
    let decision = if args.dry_run {
        under_way::next((&context, &store), (&known.program, seen), &profile, &conditions)?.0
    } else {
        keep_weight(&conditions);
        take(&store, (program_id, seen), &profile, &conditions, (trial_id.clone(), context.limits.retest_s))?
    };
    let ticket = Ticket {
        kind: if decision.trial { page_kind::TRIAL } else { page_kind::FLIGHT },
        trial_id: &trial_id,
        candidate: &decision.candidate,
        program: &command.program,
        build_id: &known.build_id,
        pid: std::process::id(),
    };
    prepare(args, &context, &decision, &ticket)
}

/// One start under a candidate the user named; nothing is decided and nothing learned.
fn forced(args: &RunArgs, context: &Context, command: &Command, name: &str) -> Result<Start> {
    let candidate = context.candidate(name)?;
    let executable = crate::commands::inspect(command, None)?;
    if let Some(why) = executable.unfit {
        return Ok(Start::untouched_because(why));
    }
    if let Some(obstacle) = context.obstacle(candidate, None) {
        anyhow::bail!("{name}: {obstacle}");
    }
    let variables = variables(args, context, candidate, Mode::Production, None)?;
    Ok(Start {
        candidate: name.to_owned(),
        because: "named by --candidate".to_owned(),
        variables,
        page: None,
    })
}

/// What /proc says of the machine and of our control group, in which the program will run; without it nothing is decided, and the program is started untouched.
pub(crate) fn conditions() -> Result<Conditions> {
    let machine = imas_linux::conditions::now().context("the machine's load and memory")?;
    let mut now = imas_linux::control_group::narrowed(machine);
    now.weight_before =
        weight_file().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    Ok(now)
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

/// Where that is: in the user's own folder of the session; without one there is no damping.
fn weight_file() -> Option<PathBuf> {
    Some(page::runtime_folder()?.join("imas.weight"))
}

/// The decision, recorded. A trial that another start is making at this moment is not made twice: trials side by side share one run of `system`, and use up
/// the rounds of their candidate.
fn take(
    store: &Store,
    (program, seen): (RowId, RowId),
    profile: &ProfileView,
    conditions: &Conditions,
    trial: (String, f64),
) -> Result<Decision> {
    let decision = decide(profile, conditions);
    if decision.trial && store.begin(program, &decided(&decision, Some(trial)), seen)? {
        return Ok(decision);
    }
    let decision = if decision.trial { decide_production(profile, conditions) } else { decision };
    store.record(program, &decided(&decision, None))?;
    Ok(decision)
}

fn decided(decision: &Decision, begun: Option<(String, f64)>) -> Decided {
    Decided {
        at_s: now_unix_s(),
        candidate: decision.candidate.clone(),
        trial: decision.trial,
        reason: decision.reason.id().to_owned(),
        because: decision.text(),
        begun,
    }
}

fn prepare(args: &RunArgs, context: &Context, decision: &Decision, ticket: &Ticket<'_>) -> Result<Start> {
    let candidate = context.candidate(&decision.candidate)?;
    let untouched = candidate.is_system() && !decision.trial;
    // Started untouched, there is nothing to watch; a dry run watches nothing.
    let page = if untouched || args.dry_run { None } else { make_page(ticket) };
    if decision.trial && page.is_none() && !args.dry_run {
        return Ok(Start::untouched_because("no trial page could be made"));
    }
    let mode = if decision.trial { Mode::Trial } else { Mode::Production };
    let variables = variables(args, context, candidate, mode, page.as_deref())?;
    Ok(Start { candidate: candidate.name.clone(), because: decision.text(), variables, page })
}

fn variables(
    args: &RunArgs,
    context: &Context,
    candidate: &Candidate,
    mode: Mode,
    page: Option<&Path>,
) -> Result<Variables> {
    let reach = if args.follow { Reach::Children } else { Reach::Program };
    let injection = Injection { candidate, mode, reach, page };
    Ok(injection.variables(&std::env::vars_os().collect(), &context.libraries)?)
}

/// The page of this start: counted into for a trial; in production it only tells a crash from a clean end.
fn make_page(ticket: &Ticket<'_>) -> Option<PathBuf> {
    let made = page::folder().and_then(|folder| page::create(&folder, ticket));
    made.inspect_err(|error| message::warning(&format!("no trial page: {error}"))).ok()
}

/// A decision for a program that nothing may be preloaded into.
pub(crate) fn unfit_decision(why: &str) -> Decision {
    Decision {
        candidate: SYSTEM.to_owned(),
        trial: false,
        reason: Reason::NoCandidate,
        evidence: vec![Evidence { name: "the program".to_owned(), value: why.to_owned() }],
    }
}
