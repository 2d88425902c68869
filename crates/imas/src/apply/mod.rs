// SPDX-License-Identifier: Apache-2.0
//! `imas apply`: a service's candidate, as a drop-in beside its unit file. Shown first; written only with --write or
//! --watch.

pub(crate) mod bundle;
pub(crate) mod env;
pub(crate) mod overrides;
pub(crate) mod reached;
pub(crate) mod trim;
pub(crate) mod unapply;
pub(crate) mod unit;
mod unit_files;
pub(crate) mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_engine::config::Exclusions;
use imas_engine::inline_candidate::{TRIMS, inline_candidate};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Variables};
use imas_linux::index::detail_of_unit;
use imas_linux::interpreter_target::name_of_detail;
use imas_linux::program::Program;
use imas_linux::trust;
use imas_store::samples::Domain;

use self::unit::{Unit, below, systemctl};
use self::watch::WatchRecord;
use crate::command_line::cli::Places;
use crate::command_line::service_args::{ApplyArgs, WriteArgs};
use imas_cli::format::span;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_engine::context::Context;
use imas_engine::drop_in::{self, Found};
use imas_engine::lasting;
use imas_engine::program_view::state;
use unapply::Applied;

/// Exit status when a file that is not ours stands in the way, or nothing of ours is there.
const LEFT_ALONE: u8 = 1;
/// Exit status when no service would be changed.
const NOTHING_TO_DO: u8 = 1;

/// Root of the file system where services are configured.
fn root_of(how: &WriteArgs) -> &Path {
    how.root.as_deref().unwrap_or_else(|| Path::new("/"))
}

pub(crate) fn apply(args: &ApplyArgs, places: &Places, context: &Context) -> Result<ExitCode> {
    let Some(unit) = &args.unit else { return auto(args, context) };
    let name = unit::full_name(unit)?;
    let unit = Unit::read(&name, args.how.root.as_deref())?;
    let plain = without_trims(args, &unit, context)?;
    let (args, is_trimmed) = (plain.as_ref().unwrap_or(args), plain.is_some());
    let candidate = candidate_for(args, context, &unit)?;
    if args.how.root.is_some() && args.how.write && reached::files(context, &candidate).next().is_some() {
        env::refuse_checkout(places, context, &candidate.name)?;
    }
    let mut applied = not_yet(&unit, &candidate, args);
    apply_to(&unit, &candidate, args, context, &mut applied)?;
    let is_left_alone = applied.problem.is_some();
    let is_written = args.how.write || args.watch.is_some();
    match is_trimmed {
        _ if is_left_alone => {}
        true => trim::beside_candidate(&unit.name, &args.how, is_written)?,
        false => trim::end_beside_candidate(&unit.name, &args.how, is_written)?,
    }
    if args.how.json.json {
        unapply::print_applied(&[applied])?;
    }
    Ok(if is_left_alone { ExitCode::from(LEFT_ALONE) } else { ExitCode::SUCCESS })
}

/// The arguments for the candidate alone, where its name asks for trims too.
fn without_trims(args: &ApplyArgs, unit: &Unit, context: &Context) -> Result<Option<ApplyArgs>> {
    let Some(name) = args.candidate.as_ref() else { return Ok(None) };
    let Some(candidate) = name.strip_suffix(TRIMS) else { return Ok(None) };
    inline_candidate(name, context)?; // an error where trims do not reach it
    if candidate == imas_core::SYSTEM {
        return Err(Hinted::error(
            format!("{}: trims alone need no drop-in and no restart", unit.name),
            format!("imas trim {} --every 1m --write", unit.name),
        ));
    }
    Ok(Some(ApplyArgs { candidate: Some(candidate.to_owned()), ..args.clone() }))
}

fn not_yet(unit: &Unit, candidate: &CatalogueCandidate, args: &ApplyArgs) -> Applied {
    Applied::new(&unit.name, Some(&candidate.name), &drop_in::path(root_of(&args.how), &unit.name))
}

/// Shows the drop-in, and writes it where that was asked for. What is done so far is in `applied`, also after
/// an error.
fn apply_to(
    unit: &Unit,
    candidate: &CatalogueCandidate,
    args: &ApplyArgs,
    context: &Context,
    applied: &mut Applied,
) -> Result<()> {
    let name = &unit.name;
    check_place(context, candidate, unit, &args.how)?;
    let file = drop_in::path(root_of(&args.how), name);
    drop_in::check_below(root_of(&args.how), &file)?;
    let found = drop_in::find(&file)?;
    let inherited = unit.environment_before(&found);
    let reach = reached::reach(candidate, unit, args.how.root.as_deref(), args.follow);
    let variables = reached::changes(&libraries(context, &args.how), candidate, reach, &inherited)?;
    check_specifiers(unit, &variables)?;
    check_files(unit, &variables, &args.how)?;
    check_unset(unit, &variables)?;
    lasting::remarks(candidate).iter().for_each(|remark| message::warning(&format!("{name}: {remark}")));
    let before = replaced(candidate, &variables, &inherited);
    let text = drop_in::text(name, &candidate.name, &variables, &before, candidate.huge_pages);
    let old = match found {
        Found::Edited => {
            applied.problem = Some(left_alone(&file));
            return Ok(());
        }
        Found::Ours(old) if old == text => {
            if !args.how.json.json {
                output::text(&format!("{}: {name} is on {} already", file.display(), candidate.name))?;
            }
            return Ok(());
        }
        Found::Ours(old) => old,
        Found::Nothing => String::new(),
    };
    applied.compare(&old, &text);
    applied.show(args.how.json.json)?;
    if args.watch.is_none() && !args.how.write {
        message::say(
            "nothing was written; to do it: the same with --write (and --now to restart the service)",
        );
        return Ok(());
    }
    let change = Change { unit, variables: &variables, old: &old, new: &text, file: &file };
    write(&change, applied, args, context)
}

/// The values that a drop-in replaces, where no variable in it notes them for the program.
fn replaced(
    candidate: &CatalogueCandidate,
    variables: &[(String, String)],
    inherited: &Variables,
) -> Vec<(String, String)> {
    let before = |(name, _): &(String, String)| {
        Some((name.clone(), inherited.get(name.as_str())?.to_string_lossy().into_owned()))
    };
    if candidate.is_bare() { variables.iter().filter_map(before).collect() } else { vec![] }
}

/// A drop-in that is about to be written.
struct Change<'a> {
    unit: &'a Unit,
    variables: &'a [(String, String)],
    old: &'a str,
    new: &'a str,
    file: &'a Path,
}

impl Change<'_> {
    /// Writes the drop-in and starts the watcher, which restarts the unit.
    fn take_effect(&self, new_watch: &mut watch::NewWatch, args: &ApplyArgs) -> Result<()> {
        drop_in::write(self.file, self.new)?;
        systemctl(&["daemon-reload"])?;
        verify(&self.unit.name, self.variables, &args.how);
        new_watch.begin()
    }

    /// Takes the change back: puts the drop-in there that was there before.
    fn take_back(&self) {
        let put_back = match self.old.is_empty() {
            true if !self.file.exists() => Ok(()),
            true => drop_in::remove(self.file),
            false => drop_in::write(self.file, self.old),
        };
        if let Err(error) = put_back.and_then(|()| systemctl(&["daemon-reload"]).map(drop)) {
            message::warning(&format!("{error:#}"));
        }
    }
}

/// Writes it, and lets it take effect as far as that was asked for.
fn write(change: &Change<'_>, applied: &mut Applied, args: &ApplyArgs, context: &Context) -> Result<()> {
    let name = &change.unit.name;
    let Some(watch_s) = args.watch else {
        end_watch(name, &args.how);
        drop_in::write(change.file, change.new).map_err(drop_in::advised)?;
        applied.written = true;
        applied.restarted = !take_effect(std::slice::from_ref(name), &args.how)?.is_empty();
        verify(name, change.variables, &args.how);
        if applied.restarted
            && let Some(preload) = drop_in::preload(change.new)
        {
            reached::warn_if_unserved(name, preload);
        }
        return Ok(());
    };
    if unit::is_template(name) {
        return Err(Hinted::error(
            format!("{name}: a template cannot be watched, only one of its instances"),
            "watch one instance first (imas apply NAME@INSTANCE --watch 24h), then apply to the template",
        ));
    }
    let candidate = applied.candidate.clone().unwrap_or_default();
    let work = watch::work_command(&context.config, change.unit);
    if change.unit.refuses_stop {
        return Err(Hinted::error(
            format!(
                "{name}: its unit says RefuseManualStop=yes, so nothing can restart it to try the candidate"
            ),
            "leave --watch out: with --write it takes effect at the next boot",
        ));
    }
    let watched = watch::Change {
        unit: name,
        candidate: &candidate,
        watch_s,
        drop_in_before: change.old,
        drop_in: change.new,
        work,
    };
    let mut new_watch = watch::prepare(&watched)?;
    if let Err(error) = change.take_effect(&mut new_watch, args) {
        change.take_back();
        new_watch.undo();
        return Err(Hinted::error(
            format!("{error:#}"),
            format!("nothing was changed: {name} goes on as it was; try again when that is mended"),
        ));
    }
    (applied.written, applied.watch_s, applied.restarted) = (true, Some(watch_s), true);
    message::say(&format!(
        "imas: {name} is restarted under {candidate} and watched for {}: 'imas status' shows how it goes",
        span(watch_s)
    ));
    Ok(())
}

/// Every running service for whose program a better candidate than `system` is settled, or which holds much free memory
/// and nothing is settled yet; each watched.
fn auto(args: &ApplyArgs, context: &Context) -> Result<ExitCode> {
    if args.watch.is_some() && !args.how.write {
        return Err(Hinted::error(
            "--auto --watch restarts every service that it changes, and needs --write",
            "add --write; or leave --watch out to see what would be done",
        ));
    }
    let exclusions = Exclusions::read()?;
    let store = context.open_store()?;
    crate::stored::harvest_quietly(context, &store);
    let watch = args.how.write.then(|| args.watch.unwrap_or(watch::USUAL_S));
    let args = ApplyArgs { watch, ..args.clone() };
    let mut services = vec![];
    for name in running_services()?.into_iter().filter(|name| !is_left_out(name)) {
        // A service that cannot be read does not keep the others from their candidates either.
        let found = proven(context, &exclusions, &store, &name).unwrap_or_else(|error| {
            message::warning(&format!("{name}: {error:#}"));
            None
        });
        let Some((unit, candidate)) = found else { continue };
        // One that cannot be given it does not keep the others from it.
        let mut applied = not_yet(&unit, &candidate, &args);
        if let Err(error) = apply_to(&unit, &candidate, &args, context, &mut applied) {
            message::warning(&format!("{error:#}"));
            applied.problem = Some(format!("{error:#}"));
        }
        services.push(applied);
    }
    if args.how.json.json {
        unapply::print_applied(&services)?;
    }
    if services.is_empty() {
        message::say("imas: no running service has a better candidate than system, as far as is known");
        return Ok(ExitCode::from(NOTHING_TO_DO));
    }
    let is_any_right = services.iter().any(|service| service.problem.is_none());
    Ok(if is_any_right { ExitCode::SUCCESS } else { ExitCode::from(LEFT_ALONE) })
}

/// Services that are never changed unasked: a restart ends sessions, or the machine depends on them.
fn is_left_out(name: &str) -> bool {
    const STARTS: [&str; 11] = [
        "user@",
        "imas-watch-",
        "dbus",
        "systemd-",
        "display-manager.",
        "gdm",
        "sddm",
        "lightdm",
        "lxdm",
        "xdm.",
        "greetd",
    ];
    STARTS.iter().any(|start| name.starts_with(start))
}

fn running_services() -> Result<Vec<String>> {
    let shown =
        systemctl(&["list-units", "--type=service", "--state=running", "--plain", "--no-legend", "--full"])?;
    Ok(shown.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect())
}

/// The unit and what was proven better than `system` for it, by trials or by what its heaps hold now, unless it has that,
/// went back from it before, or is a program that nobody is to change unasked.
fn proven(
    context: &Context,
    exclusions: &Exclusions,
    store: &imas_store::Store,
    name: &str,
) -> Result<Option<(Unit, CatalogueCandidate)>> {
    let unit = Unit::read(name, None)?;
    let may_be_changed = |program: &Program| !unit.refuses_stop && exclusions.reason(&program.path).is_none();
    let Some(program) = unit.program().filter(may_be_changed) else { return Ok(None) };
    let rules = crate::command_line::cli::RulesArgs::of_environment();
    let known = known(context, store, &unit, &program)?;
    let state = known.map(|known| state(context, store, known, &rules)).transpose()?;
    let pick = match state.as_ref().and_then(|state| state.settled()) {
        Some(settled) => Some(settled.to_owned()).filter(|pick| pick != imas_core::SYSTEM),
        None => reached::held_free_candidate(context, &unit),
    };
    let Some(candidate) = pick.and_then(|pick| reached::usable(context, &pick).ok()) else {
        return Ok(None);
    };
    let candidate = fitted(candidate, &unit, None, false)?;
    if lasting::prints_a_line(&candidate) {
        return Ok(None);
    }
    let was_watched = WatchRecord::of(name).is_some_and(|record| record.candidate == candidate.name);
    let fits = reached::check(&unit, None, &candidate).is_ok();
    Ok((fits && !was_watched).then_some((unit, candidate)))
}

/// Ends the watch of the service. A watch is this machine's, whatever the service of an image is called.
fn end_watch(name: &str, how: &WriteArgs) {
    if how.root.is_none() {
        watch::end(name);
    }
}

/// Says that the file is left alone, and answers why.
fn left_alone(file: &Path) -> String {
    let why = format!("{}: it is not as imas wrote it, so it is left alone", file.display());
    message::say(&format!("imas: {why}"));
    message::say("hint: look at it, and move it away if you do not need it");
    why
}

/// The candidate that was named, else the one that was learned for the service's program.
fn candidate_for(args: &ApplyArgs, context: &Context, unit: &Unit) -> Result<CatalogueCandidate> {
    let program = unit.program();
    let root = args.how.root.as_deref();
    let checked = |candidate: CatalogueCandidate| {
        let candidate = fitted(candidate, unit, root, args.follow)?;
        reached::check(unit, root, &candidate)?;
        Ok(candidate)
    };
    if let Some(name) = &args.candidate {
        return checked(reached::usable(context, name)?);
    }
    let program = program.as_ref().ok_or_else(|| {
        Hinted::error(
            format!("{}: its program cannot be found", unit.name),
            "name a candidate with --candidate NAME",
        )
    })?;
    let store = crate::stored::view(context)?;
    let known = known(context, &store, unit, program)?.ok_or_else(|| {
        Hinted::error(
            format!("{}: nothing is known of its program, {program}", unit.name),
            "name a candidate with --candidate NAME, or measure it: imas bench -- ...",
        )
    })?;
    let state = state(context, &store, known, &crate::command_line::cli::RulesArgs::of_environment())?;
    let name = reached::settled_or_why(&state)?.to_owned();
    message::say(&format!("imas: {program}: {name}: {}", state.decision.reason.sentence()));
    let candidate = checked(reached::usable(context, &name)?)?;
    if lasting::prints_a_line(&candidate) {
        return Err(Hinted::error(
            format!(
                "{}: {name} would make the JVM print a line at each start, so it is not taken unasked",
                unit.name
            ),
            format!("if you want that: imas apply {} --candidate {name}", unit.name),
        ));
    }
    Ok(candidate)
}

/// The candidate as the unit gets it, with the variables of its files.
fn fitted(
    candidate: CatalogueCandidate,
    unit: &Unit,
    root: Option<&Path>,
    follows: bool,
) -> Result<CatalogueCandidate> {
    let top = root.unwrap_or_else(|| Path::new("/"));
    let mut environment = unit.environment_before(&drop_in::find(&drop_in::path(top, &unit.name))?);
    for (_, text) in unit.file_texts(top) {
        environment_lines(&text).for_each(|(name, value)| {
            environment.insert(name.into(), value.into());
        });
    }
    reached::for_unit(&candidate, unit, &environment, root, follows)
}

/// The variables that a file of variables sets.
fn environment_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', ';']));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim_end(), value.trim().trim_matches(['"', '\''])))
}

/// The service itself, as imasd knows services, else its program wherever it runs.
fn known(
    context: &Context,
    store: &imas_store::Store,
    unit: &Unit,
    program: &Program,
) -> Result<Option<imas_store::samples::StoredProgram>> {
    let domain = if context.of_the_system { Domain::Everybody } else { Domain::Own };
    let path = program.path.to_string_lossy();
    let service = store.find_program_in(domain, &path, &detail_of_unit(&unit.name))?;
    let known = || store.find_program_in(domain, &path, &program.detail);
    let by_file = || match name_of_detail(&program.detail) {
        Some(_) => store.find_program_in(domain, &path, ""),
        None => Ok(None),
    };
    Ok(match service {
        Some(service) => Some(service),
        None => known()?.map_or_else(by_file, |known| Ok(Some(known)))?,
    })
}

/// Libraries that the drop-in names: this machine's. What an image has for the children of its services is
/// not known: plain paths work in all.
fn libraries(context: &Context, how: &WriteArgs) -> Libraries {
    match how.root {
        None => context.libraries.clone(),
        Some(_) => Libraries::plain(&context.lib_dir),
    }
}

/// The libraries must be there for the service, and only root may change what a service loads.
fn check_place(
    context: &Context,
    candidate: &CatalogueCandidate,
    unit: &Unit,
    how: &WriteArgs,
) -> Result<()> {
    if let Some(own_root) = &unit.own_root {
        return Err(Hinted::error(
            format!(
                "{}: it runs in a file system of its own ({own_root}), where the libraries are not",
                unit.name
            ),
            "copy them there and set the variables by hand: imas env --format systemd",
        ));
    }
    for file in reached::files(context, candidate) {
        match &how.root {
            Some(root) if !below(root, file).is_file() => {
                message::warning(&format!(
                    "{} is not in the image: install IMAS there before it starts",
                    file.display()
                ));
            }
            Some(_) => {}
            None => {
                if let Some(why) = trust::untrusted(file, 0) {
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

/// A specifier in a value is resolved by systemd alone, so a drop-in cannot repeat that value.
fn check_specifiers(unit: &Unit, variables: &[(String, String)]) -> Result<()> {
    match variables.iter().find(|(name, _)| unit.with_specifiers.contains(name)) {
        Some((name, _)) => Err(Hinted::error(
            format!(
                "{}: its {name} has a specifier such as %i, whose value is known when it starts",
                unit.name
            ),
            "take an instance (NAME@INSTANCE); or write the drop-in: 'imas env --format systemd'",
        )),
        None => Ok(()),
    }
}

/// Files of variables win over a drop-in's: then ours would do nothing, or half of it.
fn check_files(unit: &Unit, variables: &[(String, String)], how: &WriteArgs) -> Result<()> {
    for (file, text) in unit.file_texts(root_of(how)) {
        let sets = |name: &str| environment_lines(&text).any(|(one, _)| one == name);
        if let Some((name, _)) = variables.iter().find(|(name, _)| sets(name)) {
            return Err(Hinted::error(
                format!("{}: {} sets {name} and would win", unit.name, file.display()),
                format!("take {name} out of that file, or put it into a drop-in"),
            ));
        }
        if file.to_string_lossy().contains(['*', '?', '[', '%']) {
            message::warning(&format!(
                "{}: EnvironmentFile={} is a pattern, which is not looked at: what its files set wins over a drop-in",
                unit.name,
                file.display()
            ));
        }
    }
    Ok(())
}

/// Refusal of a unit whose `UnsetEnvironment=` has one of our variables: systemd takes it away last, from a drop-in too.
fn check_unset(unit: &Unit, variables: &[(String, String)]) -> Result<()> {
    match variables.iter().find(|(name, value)| unit.unsets(name, value)) {
        Some((name, _)) => Err(Hinted::error(
            format!("{}: its UnsetEnvironment= takes {name} away again", unit.name),
            format!("take {name} out of that line: 'systemctl cat {}' shows the file", unit.name),
        )),
        None => Ok(()),
    }
}

/// Answers which services were restarted.
fn take_effect(names: &[String], how: &WriteArgs) -> Result<Vec<String>> {
    let mut restarted = vec![];
    if how.root.is_some() {
        return Ok(restarted);
    }
    systemctl(&["daemon-reload"])?;
    for name in names {
        if !how.now {
            let restart = name.replace("@.service", "@*.service");
            message::say(&format!(
                "imas: {name}: takes effect at its next start: systemctl restart '{restart}'"
            ));
            continue;
        }
        // One that does not run is not started.
        if !unit::try_restart(name)?.is_empty() {
            restarted.push(name.clone());
        }
    }
    Ok(restarted)
}

/// A drop-in that sorts after ours may set the same variables again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_sessions_is_left_out_of_auto() {
        for name in ["user@1000.service", "dbus.service", "dbus-broker.service", "systemd-logind.service"] {
            assert!(is_left_out(name), "{name}");
        }
        assert!(is_left_out("imas-watch-puma.service") && is_left_out("gdm3.service"));
        assert!(!is_left_out("puma.service") && !is_left_out("redis-server.service"));
    }
}
