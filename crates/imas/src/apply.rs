// SPDX-License-Identifier: Apache-2.0
//! `imas apply` and `imas unapply`: a service's candidate, as a drop-in beside its unit file. Shown first; written only when told.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_linux::catalogue::{Candidate, untrusted};
use imas_linux::environment::Libraries;
use imas_linux::index::detail_of_unit;
use imas_store::domain::Domain;

use crate::choice;
use crate::context::Context;
use crate::drop_in::{self, Found};
use crate::message::{self, Hinted};
use crate::output;
use crate::service_args::{ApplyArgs, UnapplyArgs, WriteArgs};
use crate::show::state;
use crate::unit::{self, Unit, systemctl};

/// Exit status when a file that is not ours stands in the way, or nothing of ours is there.
const LEFT_ALONE: u8 = 1;

/// Where services are configured.
fn root_of(how: &WriteArgs) -> &Path {
    how.root.as_deref().unwrap_or_else(|| Path::new("/"))
}

pub(crate) fn apply(args: &ApplyArgs, context: &Context) -> Result<ExitCode> {
    let name = unit::full_name(&args.unit)?;
    let unit = Unit::read(&name, args.how.root.as_deref())?;
    let candidate = candidate_for(args, context, &unit)?;
    check_place(context, candidate, &unit, &args.how)?;
    let inherited = unit.environment_without_ours();
    let variables = choice::changes(&libraries(context, &args.how), candidate, args.follow, &inherited)?;
    check_files(&unit, &variables, &args.how)?;
    let text = drop_in::text(&name, &candidate.name, &variables);
    let file = drop_in::path(root_of(&args.how), &name);
    let old = match drop_in::find(&file)? {
        Found::Edited => return Ok(left_alone(&file)),
        Found::Ours(old) if old == text => {
            output::text(&format!("{}: {name} is on {} already", file.display(), candidate.name))?;
            return Ok(ExitCode::SUCCESS);
        }
        Found::Ours(old) => old,
        Found::Nothing => String::new(),
    };
    output::text(&difference(&file, &old, &text))?;
    if !args.how.write {
        message::say(
            "nothing was written; to do it: the same with --write (and --now to restart the service)",
        );
        return Ok(ExitCode::SUCCESS);
    }
    drop_in::write(&file, &text)?;
    take_effect(&[name], &args.how)?;
    verify(&unit.name, &variables, &args.how);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn unapply(args: &UnapplyArgs) -> Result<ExitCode> {
    let names = match &args.unit {
        Some(word) => vec![unit::full_name(word)?],
        None => applied(root_of(&args.how)),
    };
    let mut removed = vec![];
    let mut edited = false;
    for name in names {
        let file = drop_in::path(root_of(&args.how), &name);
        match drop_in::find(&file)? {
            Found::Nothing => message::say(&format!("imas: {name}: nothing was applied")),
            Found::Edited => edited |= left_alone(&file) != ExitCode::SUCCESS,
            Found::Ours(old) => {
                output::text(&difference(&file, &old, ""))?;
                if args.how.write {
                    drop_in::remove(&file)?;
                }
                removed.push(name);
            }
        }
    }
    if removed.is_empty() || edited {
        take_effect_if(args, &removed)?;
        return Ok(ExitCode::from(LEFT_ALONE));
    }
    if !args.how.write {
        message::say("nothing was removed; to do it: the same with --write");
    }
    take_effect_if(args, &removed)?;
    Ok(ExitCode::SUCCESS)
}

fn take_effect_if(args: &UnapplyArgs, removed: &[String]) -> Result<()> {
    if args.how.write && !removed.is_empty() { take_effect(removed, &args.how) } else { Ok(()) }
}

/// The services with a drop-in of that name, by name.
fn applied(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("etc/systemd/system")).into_iter().flatten().flatten();
    let with_ours = entries.filter(|entry| entry.path().join(drop_in::NAME).is_file());
    let named =
        with_ours.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".d").map(str::to_owned));
    let mut names: Vec<_> = named.collect();
    names.sort();
    names
}

fn left_alone(file: &Path) -> ExitCode {
    message::say(&format!(
        "imas: {}: it is not as 'imas apply' wrote it, so it is left alone",
        file.display()
    ));
    message::say("hint: look at it, and move it away if you do not need it");
    ExitCode::from(LEFT_ALONE)
}

/// What was named, else what was learned about the service's program.
fn candidate_for<'a>(args: &ApplyArgs, context: &'a Context, unit: &Unit) -> Result<&'a Candidate> {
    let program = unit.program();
    if args.how.root.is_none() {
        check_program(unit, program.as_ref())?;
    }
    if let Some(name) = &args.candidate {
        return choice::usable(context, name);
    }
    let program = program.ok_or_else(|| {
        Hinted::error(
            format!("{}: its program cannot be found", unit.name),
            "name a candidate with --candidate NAME",
        )
    })?;
    let store = context.open_store()?;
    crate::harvest::harvest_quietly(context, &store);
    let known = known(context, &store, unit, &program)?.ok_or_else(|| {
        Hinted::error(
            format!("{}: nothing is known of its program, {program}", unit.name),
            "name a candidate with --candidate NAME, or measure it: imas bench -- ...",
        )
    })?;
    let state = state(context, &store, known, &crate::cli::RulesArgs::of_environment())?;
    let name = choice::settled_or_why(&state)?.to_owned();
    message::say(&format!("imas: {program}: {name}: {}", state.decision.reason.sentence()));
    choice::usable(context, &name)
}

/// The service itself, as imasd knows services, else its program wherever it runs.
fn known(
    context: &Context,
    store: &imas_store::Store,
    unit: &Unit,
    program: &imas_linux::program::Program,
) -> Result<Option<imas_store::samples::Program>> {
    let domain = if context.of_the_system { Domain::Everybody } else { Domain::Own };
    let path = program.path.to_string_lossy();
    let service = store.find_program_in(domain, &path, &detail_of_unit(&unit.name))?;
    Ok(if service.is_some() { service } else { store.find_program_in(domain, &path, &program.detail)? })
}

/// What cannot be preloaded into is not given a drop-in that does nothing.
fn check_program(unit: &Unit, program: Option<&imas_linux::program::Program>) -> Result<()> {
    let elf = program.and_then(|program| imas_linux::elf::Executable::read(&program.path).ok());
    match elf.and_then(|elf| elf.unfit()) {
        Some(unfit) => Err(Hinted::error(
            format!("{}: its program cannot be given an allocator: {}", unit.name, unfit.why()),
            "leave the service as it is",
        )),
        None => Ok(()),
    }
}

/// Those of this machine. What an image has for the children of its services is not known: plain paths work in all.
fn libraries(context: &Context, how: &WriteArgs) -> Libraries {
    match how.root {
        None => context.libraries.clone(),
        Some(_) => Libraries::plain(&context.lib_dir),
    }
}

/// The libraries must be there for the service, and nobody but root may change what a service loads.
fn check_place(context: &Context, candidate: &Candidate, unit: &Unit, how: &WriteArgs) -> Result<()> {
    if let Some(own_root) = &unit.own_root {
        return Err(Hinted::error(
            format!(
                "{}: it runs in a file system of its own ({own_root}), where the libraries are not",
                unit.name
            ),
            "copy them there and set the variables by hand: imas env --format systemd",
        ));
    }
    for file in choice::files(context, candidate) {
        match &how.root {
            Some(root) if !below(root, file).is_file() => {
                message::warning(&format!(
                    "{} is not in the image: install IMAS there before it starts",
                    file.display()
                ));
            }
            Some(_) => {}
            None => {
                if let Some(why) = untrusted(file, 0) {
                    return Err(Hinted::error(
                        format!(
                            "{}: a service may not load what others than root could change: {why}",
                            unit.name
                        ),
                        "install IMAS for the whole system: make install, or the package",
                    ));
                }
            }
        }
    }
    Ok(())
}

fn below(root: &Path, file: &Path) -> PathBuf {
    root.join(file.strip_prefix("/").unwrap_or(file))
}

/// Files of variables win over a drop-in's: then ours would do nothing, or half of it.
fn check_files(unit: &Unit, variables: &[(String, String)], how: &WriteArgs) -> Result<()> {
    for file in &unit.environment_files {
        let text = std::fs::read_to_string(below(root_of(how), file)).unwrap_or_default();
        let sets = |name: &str| {
            text.lines().any(|line| line.trim_start().split('=').next() == Some(name) && line.contains('='))
        };
        if let Some((name, _)) = variables.iter().find(|(name, _)| sets(name)) {
            return Err(Hinted::error(
                format!("{}: {} sets {name} and would win", unit.name, file.display()),
                format!("take {name} out of that file, or put it into a drop-in"),
            ));
        }
    }
    Ok(())
}

/// As `diff -u` prints it.
fn difference(file: &Path, old: &str, new: &str) -> String {
    let shown = file.display().to_string();
    let name = |text: &str| if text.is_empty() { "/dev/null".to_owned() } else { shown.clone() };
    let diff = similar::TextDiff::from_lines(old, new);
    diff.unified_diff().header(&name(old), &name(new)).to_string()
}

fn take_effect(names: &[String], how: &WriteArgs) -> Result<()> {
    if how.root.is_some() {
        return Ok(());
    }
    systemctl(&["daemon-reload"])?;
    for name in names {
        if how.now {
            // One that does not run is not started.
            systemctl(&["try-restart", "--", name])?;
        } else {
            message::say(&format!("imas: {name}: takes effect at its next start: systemctl restart {name}"));
        }
    }
    Ok(())
}

/// A drop-in that sorts behind ours may set the same variables again.
fn verify(name: &str, wanted: &[(String, String)], how: &WriteArgs) {
    let Ok(unit) = Unit::read(name, how.root.as_deref()) else { return };
    let differs = |(variable, value): &&(String, String)| {
        unit.environment
            .get(std::ffi::OsStr::new(variable))
            .is_none_or(|now| now != std::ffi::OsStr::new(value))
    };
    if let Some((variable, _)) = wanted.iter().find(differs) {
        message::warning(&format!(
            "{name}: another drop-in, read after ours, sets {variable}: see 'systemctl cat {name}'"
        ));
    }
}
