// SPDX-License-Identifier: Apache-2.0
//! A candidate that is settings of a language runtime, for something that lasts: a unit, an image, a pod. There the
//! settings are variables; nothing is put behind the name of a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::ElfImage;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::runtime::{Delivery, Entry, FoundRuntime, Runtime, RuntimeSettings, VersionRange, limit, with_version};
use imas_linux::runtime_start::{StartOfProgram, fitted, takes};
use imas_linux::trust;

use crate::apply::unit::Unit;
use imas_cli::message::{self, Hinted};

/// The variable of the JVM for settings that are arguments elsewhere.
const OF_JVM: &str = "JAVA_TOOL_OPTIONS";

/// Program of a unit, as far as settings of its runtime depend on it.
struct UnitProgram {
    file: PathBuf,
    words: Vec<OsString>,
    found: Vec<FoundRuntime>,
    unfit: Option<&'static str>,
}

impl UnitProgram {
    fn of(unit: &Unit, root: Option<&Path>) -> Result<Self, String> {
        let words = unit.words_below(root);
        let path = std::env::var_os("PATH");
        let command = Command::resolve(&words, path.as_deref()).map_err(|error| error.to_string())?;
        if root.is_some() && command.is_by_script() {
            return Err("its program is a script, whose interpreter in the image is not looked for".to_owned());
        }
        let file = command.program.path;
        let elf = ElfImage::read(&file).map_err(|error| error.to_string())?;
        let found = elf.runtimes.iter().cloned().map(|found| with_version(found, &file)).collect();
        Ok(Self { unfit: elf.unfit().map(|unfit| unfit.why()), words: command.arguments, found, file })
    }

    /// A program of which nothing is known but its runtime.
    fn unknown(runtime: Runtime) -> Self {
        let found = FoundRuntime { runtime, by: String::new(), version: None, entry: Entry::Own };
        Self { file: PathBuf::new(), words: vec![], found: vec![found], unfit: None }
    }

    fn start<'a>(&'a self, environment: &'a Variables, memory_limit: Option<u64>) -> StartOfProgram<'a> {
        StartOfProgram {
            found: &self.found,
            file: &self.file,
            words: &self.words,
            is_by_script: false,
            unfit: self.unfit,
            environment,
            memory_limit,
        }
    }
}

/// The candidate as the unit gets it. `environment` is what the unit has without us, that of its files included. With
/// `follows`, what the unit's program starts has the runtime. A candidate without a runtime is what it was.
pub(crate) fn for_unit(
    candidate: &CatalogueCandidate,
    unit: &Unit,
    environment: &Variables,
    root: Option<&Path>,
    follows: bool,
) -> Result<CatalogueCandidate> {
    let Some(runtime) = candidate.runtime.as_ref().map(|settings| settings.runtime) else {
        return Ok(candidate.clone());
    };
    let name = &candidate.name;
    let refused = |why: String| {
        Hinted::error(
            format!("{}: {name} is not offered: {why}", unit.name),
            format!("'imas run --candidate {name} -- ...' tries it; 'imas env --format systemd' prints the lines for a drop-in of your own"),
        )
    };
    if let Some(own_root) = &unit.own_root {
        let why = format!("it runs in a file system of its own ({own_root}), where its program is not looked at");
        return Err(refused(why));
    }
    let program = UnitProgram::of(unit, root).map_err(refused)?;
    let wanted = in_variables(candidate);
    if follows && program.found.iter().all(|found| found.runtime != runtime) {
        message::warning(&format!(
            "{}: its own program is not one of {}: what it starts gets the settings of {name}, whatever its version",
            unit.name,
            runtime.name()
        ));
        let settings = of_every_version(&wanted);
        let unknown = UnitProgram::unknown(runtime);
        return fitted(&settings, &unknown.start(environment, unit.memory_max)).map(left_open).map_err(refused);
    }
    let start = program.start(environment, unit.memory_max);
    let fitted = left_open(fitted(&wanted, &start).map_err(refused)?);
    match root {
        Some(_) => message::warning(&format!(
            "{}: whether its program takes the settings of {name} cannot be tried in an image",
            unit.name
        )),
        None => try_it(&fitted, &start).map_err(refused)?,
    }
    Ok(fitted)
}

/// Starts the runtime under the settings once. Root starts nothing that others could change.
fn try_it(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Result<(), String> {
    let is_root = rustix::process::geteuid().is_root();
    if let Some(why) = is_root.then(|| trust::untrusted(start.file, 0)).flatten() {
        return Err(format!("root does not try it with a program that others could change: {why}"));
    }
    takes(candidate, start)
}

/// The candidate for a program of which its runtime alone is known, with the variables that it has already. Nothing is
/// loaded where settings are all that it is.
pub(crate) fn for_any(candidate: &CatalogueCandidate, environment: &Variables) -> Result<CatalogueCandidate> {
    let Some(settings) = &candidate.runtime else { return Ok(candidate.clone()) };
    let wanted = of_every_version(&in_variables(candidate));
    if let Some((variable, value)) = wanted.environment.iter().find(|(_, value)| limit::is_named(value)) {
        return Err(Hinted::error(
            format!("{}: it depends on the memory limit of the container, which is not known here", candidate.name),
            format!("set {variable} yourself: {value}, with the number in place of the braces"),
        ));
    }
    let program = UnitProgram::unknown(settings.runtime);
    fitted(&wanted, &program.start(environment, None)).map(left_open).map_err(|why| {
        Hinted::error(format!("{} is not offered: {why}", candidate.name), "what you set yourself stays as it is")
    })
}

/// A runtime that reads its variables from the environment itself needs nothing of ours for that.
fn left_open(candidate: CatalogueCandidate) -> CatalogueCandidate {
    let reads_itself = |settings: &RuntimeSettings| settings.runtime.delivery() == Delivery::Open;
    if candidate.runtime.as_ref().is_some_and(reads_itself) { bare(candidate) } else { candidate }
}

/// Nothing of ours is loaded where the candidate needs no library, and its variables stay in the environment.
pub(crate) fn bare(mut candidate: CatalogueCandidate) -> CatalogueCandidate {
    let loads = candidate.library.is_some() || candidate.give_back;
    if let Some(settings) = candidate.runtime.as_mut().filter(|_| !loads) {
        settings.is_bare = true;
    }
    candidate
}

/// The candidate without arguments: those of the JVM are put into its variable.
fn in_variables(candidate: &CatalogueCandidate) -> CatalogueCandidate {
    let mut candidate = candidate.clone();
    if let Some(settings) = candidate.runtime.as_mut().filter(|settings| !settings.arguments.is_empty()) {
        let arguments = std::mem::take(&mut settings.arguments).join(" ");
        candidate.environment.insert(OF_JVM.to_owned(), arguments);
    }
    candidate
}

fn of_every_version(candidate: &CatalogueCandidate) -> CatalogueCandidate {
    let mut candidate = candidate.clone();
    if let Some(settings) = &mut candidate.runtime {
        settings.versions = VersionRange::default();
    }
    candidate
}

/// Whether the runtime prints a line about the settings at each start.
pub(crate) fn prints_a_line(candidate: &CatalogueCandidate) -> bool {
    let settings = candidate.runtime.as_ref();
    settings.is_some_and(|settings| !settings.arguments.is_empty()) || candidate.environment.contains_key(OF_JVM)
}

/// What else the user should know of a candidate in this form.
pub(crate) fn remarks(candidate: &CatalogueCandidate) -> Vec<String> {
    let Some(settings) = &candidate.runtime else { return vec![] };
    let mut remarks = vec![];
    if prints_a_line(candidate) {
        remarks.push(format!("the JVM prints the line 'Picked up {OF_JVM}: ...' on standard error at each start"));
    }
    if is_inherited(settings) {
        let names: Vec<_> = candidate.environment.keys().map(String::as_str).collect();
        remarks.push(format!("what the program starts in turn inherits {}", names.join(" and ")));
    }
    remarks
}

fn is_inherited(settings: &RuntimeSettings) -> bool {
    settings.is_bare || settings.runtime.delivery() == Delivery::Open
}
