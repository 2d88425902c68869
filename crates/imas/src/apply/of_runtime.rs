// SPDX-License-Identifier: Apache-2.0
//! A candidate that is settings of a language runtime, for a unit: what its program takes, and what the unit itself
//! sets already.
//!
//! The candidate for something that lasts: a service, a container. Chosen from what is settled, never from half a
//! measurement.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_cli::message::{self, Hinted};
use imas_engine::decide::UnderWay;
use imas_engine::lasting;
use imas_engine::program_view::ProgramView;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::ElfImage;
use imas_linux::environment::{Reach, Variables, has_hidden_settings};
use imas_linux::program::Command;
use imas_linux::runtime::{FoundRuntime, Runtime, with_version};
use imas_linux::runtime_start::{StartOfProgram, contradicted, fitted, takes};
use imas_linux::trust;

use crate::apply::unit::Unit;

pub(crate) use imas_engine::lasting::{changes, files, usable};

/// Program of a unit, as far as settings of its runtime depend on it.
struct UnitProgram {
    file: PathBuf,
    words: Vec<OsString>,
    found: Vec<FoundRuntime>,
    unfit: Option<&'static str>,
    /// Whether the manager starts it, and no wrapper.
    is_direct: bool,
}

impl UnitProgram {
    fn of(unit: &Unit, root: Option<&Path>) -> Result<Self, String> {
        let commands = unit.commands(root);
        // The program of a wrapper may be at a place that is known to the wrapper alone.
        let inner = commands.iter().skip(1).rev().find_map(|words| Self::of_command(words, root).ok());
        match inner {
            Some(inner) => Ok(Self { is_direct: false, ..inner }),
            None => Self::of_command(&commands[0], root),
        }
    }

    fn of_command(words: &[OsString], root: Option<&Path>) -> Result<Self, String> {
        let path = std::env::var_os("PATH");
        let command = Command::resolve(words, path.as_deref()).map_err(|error| error.to_string())?;
        if root.is_some() && is_script(&command.file) {
            // Its interpreter in the image is not looked for.
            let file = command.file;
            return Ok(Self { words: words.to_vec(), found: vec![], unfit: None, is_direct: false, file });
        }
        // `#!/usr/bin/env NAME` is looked through by `resolve`.
        let is_direct = command.argv == words;
        let file = command.program.path;
        let elf = ElfImage::read(&file).map_err(|error| error.to_string())?;
        let found = elf.runtimes.iter().cloned().map(|found| with_version(found, &file)).collect();
        Ok(Self {
            unfit: elf.unfit().map(|unfit| unfit.why()),
            words: command.arguments,
            found,
            is_direct,
            file,
        })
    }

    fn is_of(&self, runtime: Runtime) -> bool {
        self.found.iter().any(|found| found.runtime == runtime)
    }

    /// Whether it may be there to start the program that does the work: a wrapper, a script, and what is of no runtime.
    fn may_start_others(&self) -> bool {
        !self.is_direct || self.found.is_empty()
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

/// The candidate as the unit gets it. `environment` is what the unit has without us, from its files too. A
/// program that is of no runtime, such as a start script, may start one that is; with `follows`, every
/// program may. A candidate without a runtime is what it was.
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
    if !program.is_of(runtime) && (follows || program.may_start_others()) {
        message::warning(&format!(
            "{}: its own program is not one of {}: what it starts gets the settings of {name}, {}",
            unit.name,
            runtime.name(),
            match runtime {
                Runtime::Jvm => "if it is a JVM of version 17 or later that is given no others",
                _ => "whatever its version",
            }
        ));
        if let Some(option) = given_on(candidate, &program.words, environment) {
            return Err(refused(format!(
                "{option} is given already, in the unit's words, variables or start script"
            )));
        }
        return lasting::behind_a_script(candidate, environment, unit.memory_max).map_err(refused);
    }
    let start = program.start(environment, unit.memory_max);
    let fitted = lasting::in_variables_where_needed(candidate, |one| fitted(one, &start));
    let fitted = lasting::left_open(fitted.map_err(refused)?);
    match root {
        Some(_) => message::warning(&format!(
            "{}: whether its program takes the settings of {name} cannot be tried in an image",
            unit.name
        )),
        None => try_it(&fitted, &start).map_err(refused)?,
    }
    Ok(fitted)
}

/// Whom the candidate is for in the unit: every process, but for settings that `libimas-settings.so` hands to a runtime that the
/// unit starts itself. What such a process starts may have others: a JVM does not start with two collectors.
pub(crate) fn reach(
    candidate: &CatalogueCandidate,
    unit: &Unit,
    root: Option<&Path>,
    follows: bool,
) -> Reach {
    let is_own = |program: UnitProgram| {
        candidate
            .runtime
            .as_ref()
            .is_some_and(|settings| program.is_direct && program.is_of(settings.runtime))
    };
    let stays = !follows && has_hidden_settings(candidate) && UnitProgram::of(unit, root).is_ok_and(is_own);
    if stays { Reach::Program } else { Reach::Children }
}

/// An option of the candidate's kind that a script may give to the runtime: as a word of its own, in a variable such as
/// `JAVA_OPTS`, whatever its name, or in its text.
fn given_on(candidate: &CatalogueCandidate, words: &[OsString], environment: &Variables) -> Option<String> {
    let values = environment.iter().map(|(_, value)| value);
    let scripts = words.iter().map(Path::new).filter(|file| is_script(file)).filter_map(text_of);
    let texts = words.iter().chain(values).map(|text| text.to_string_lossy().into_owned());
    texts.chain(scripts).find_map(|text| contradicted(candidate, &text))
}

/// Longest text of a script that is looked at, bytes.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// A pipe is not opened: that would wait for who writes into it.
fn is_script(file: &Path) -> bool {
    let mut start = [0_u8; 2];
    if !file.is_absolute() || !file.is_file() {
        return false;
    }
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Words of a script, without the quotes around them.
fn text_of(file: &Path) -> Option<String> {
    let mut text = vec![];
    std::fs::File::open(file).ok()?.take(LONGEST_SCRIPT).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join(" ");
    // `JAVA_OPTS=-XX:...`: the value is a word.
    Some(code.replace(['"', '\''], " ").replace("=-", " -"))
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

/// The candidate that was learned for the program. If none is settled, the error has the reason.
pub(crate) fn settled_or_why(state: &ProgramView) -> Result<&str> {
    state.settled().ok_or_else(|| {
        let program = &state.known.program;
        let decided = state.decision.reason.sentence();
        let under_way = state.under_way.as_ref().map(UnderWay::words);
        let reason = under_way.as_deref().unwrap_or_else(|| decided.trim_end_matches('.'));
        Hinted::error(
            format!("{program}: nothing is settled yet: {reason}"),
            format!("let it run under 'imas run -- ...' until 'imas show {}' has picks, or name one with --candidate", program.id),
        )
    })
}
