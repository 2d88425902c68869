// SPDX-License-Identifier: Apache-2.0
//! A candidate that is settings of a language runtime, for a unit: what its program takes, and what the unit itself
//! sets already.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_engine::lasting_settings;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::ElfImage;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::runtime::{FoundRuntime, with_version};
use imas_linux::runtime_start::{StartOfProgram, contradicted, fitted, takes};
use imas_linux::trust;

use crate::apply::unit::Unit;
use imas_cli::message::{self, Hinted};

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
            return Err(
                "its program is a script, whose interpreter in the image is not looked for".to_owned()
            );
        }
        let file = command.program.path;
        let elf = ElfImage::read(&file).map_err(|error| error.to_string())?;
        let found = elf.runtimes.iter().cloned().map(|found| with_version(found, &file)).collect();
        Ok(Self { unfit: elf.unfit().map(|unfit| unfit.why()), words: command.arguments, found, file })
    }

    fn start<'a>(&'a self, environment: &'a Variables, memory_limit: Option<u64>) -> StartOfProgram<'a> {
        StartOfProgram {
            found: &self.found,
            file: &self.file,
            words: &self.words,
            has_files: true,
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
            format!(
                "'imas run --candidate {name} -- ...' tries it; 'imas env --format systemd' prints the lines for a drop-in of your own"
            ),
        )
    };
    if let Some(own_root) = &unit.own_root {
        let why =
            format!("it runs in a file system of its own ({own_root}), where its program is not looked at");
        return Err(refused(why));
    }
    let program = UnitProgram::of(unit, root).map_err(refused)?;
    let wanted = lasting_settings::in_variables(candidate);
    if follows && program.found.iter().all(|found| found.runtime != runtime) {
        message::warning(&format!(
            "{}: its own program is not one of {}: what it starts gets the settings of {name}, whatever its version",
            unit.name,
            runtime.name()
        ));
        if let Some(option) = given_on(&wanted, &program.words, environment) {
            return Err(refused(format!("{option} is given already, in the unit's words or variables")));
        }
        return lasting_settings::of_any_version(&wanted, environment, unit.memory_max).map_err(refused);
    }
    let start = program.start(environment, unit.memory_max);
    let fitted = lasting_settings::left_open(fitted(&wanted, &start).map_err(refused)?);
    match root {
        Some(_) => message::warning(&format!(
            "{}: whether its program takes the settings of {name} cannot be tried in an image",
            unit.name
        )),
        None => try_it(&fitted, &start).map_err(refused)?,
    }
    Ok(fitted)
}

/// An option of the candidate's kind that a script may give to the runtime: as a word of its own, or in a variable such
/// as `JAVA_OPTS`, whatever its name.
fn given_on(candidate: &CatalogueCandidate, words: &[OsString], environment: &Variables) -> Option<String> {
    let values = environment.iter().map(|(_, value)| value);
    let mut texts = words.iter().chain(values).map(|text| text.to_string_lossy());
    texts.find_map(|text| contradicted(candidate, &text))
}

/// Variables that make a program load what they name.
const LOADING: [&str; 3] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"];

/// Starts the runtime under the settings once. Root starts nothing that others could change: neither such a file, nor one
/// with the variables of a unit, whose files may be of its user.
fn try_it(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return takes(candidate, start);
    }
    if let Some(why) = trust::untrusted(start.file, 0) {
        return Err(format!("root does not try it with a program that others could change: {why}"));
    }
    if let Some(name) = LOADING.iter().find(|name| start.environment.contains_key(name)) {
        return Err(format!("root does not try it with the unit's {name}"));
    }
    let environment = Variables::from([("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())]);
    takes(candidate, &StartOfProgram { environment: &environment, ..*start })
}
