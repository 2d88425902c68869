// SPDX-License-Identifier: Apache-2.0
//! Whether what a unit starts can be given an allocator, as far as its files say; and whether it has it afterwards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::Unfit;
use imas_linux::in_time::ROOT;
use imas_linux::program::{Command, Program, is_privileged};
use imas_linux::serving::wanted::WantedLibraries;
use imas_linux::{foreign_file, running};

use crate::apply::unit::Unit;
use imas_cli::message::{self, Hinted};

/// Programs that become another one and hand their environment on. Some are static: they load nothing, and what they
/// start does.
const HANDING_ON: [&str; 9] = [
    "gosu",
    "su-exec",
    "tini",
    "tini-static",
    "dumb-init",
    "catatonit",
    "docker-init",
    "s6-setuidgid",
    "busybox",
];

/// Refuses a unit whose program cannot be preloaded into: its drop-in would do nothing.
pub(super) fn check(unit: &Unit, root: Option<&Path>, candidate: &CatalogueCandidate) -> Result<()> {
    if candidate.runtime.as_ref().is_some_and(|settings| settings.is_bare) {
        return Ok(());
    }
    // An image does not run.
    let program = if root.is_none() { unit.program() } else { None };
    let unfit = unit.commands(root).iter().find_map(|words| unfit(words, root, program.as_ref()));
    let of_program = || program.as_ref().and_then(|program| unfit_file(&program.path));
    match unfit.or_else(of_program) {
        Some(unfit) => Err(Hinted::error(
            format!("{}: its program cannot be given an allocator: {}", unit.name, unfit.why()),
            "leave the service as it is",
        )),
        None => Ok(()),
    }
}

/// Why the program of a command cannot be preloaded into. With another program in its place by now, that one counts.
fn unfit(words: &[std::ffi::OsString], root: Option<&Path>, running: Option<&Program>) -> Option<Unfit> {
    let (file, is_privileged) = match root {
        None => {
            let command = Command::resolve(words, std::env::var_os("PATH").as_deref()).ok()?;
            (command.program.path, command.privileged)
        }
        // The interpreter of a script in an image is not looked for.
        Some(_) => {
            let file = PathBuf::from(words.first()?);
            let privileged = is_privileged(&file);
            (file, privileged)
        }
    };
    if is_privileged {
        return Some(Unfit::Privileged);
    }
    let is_replaced = running.is_some_and(|program| program.path != file);
    if is_replaced { None } else { unfit_file(&file) }
}

fn unfit_file(file: &Path) -> Option<Unfit> {
    let hands_on = HANDING_ON.iter().any(|name| file.file_name() == Some(OsStr::new(name)));
    // What a service runs may be a file of its user.
    if hands_on { None } else { foreign_file::image(file, ROOT).ok()?.elf.ok()?.unfit() }
}

/// How long a restarted service may take until the candidate is seen in it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// Warns if, after its restart, the candidate does not serve in the service's process that holds the most memory.
pub(super) fn warn_if_unserved(name: &str, preload: &str) {
    let until = Instant::now() + LONGEST_WAIT;
    let mut seen = Unit::read(name, None).ok().and_then(|unit| unserved(&unit, preload));
    while seen.is_some() && Instant::now() < until {
        std::thread::sleep(BETWEEN_LOOKS);
        seen = Unit::read(name, None).ok().and_then(|unit| unserved(&unit, preload));
    }
    if let Some(process) = seen {
        message::warning(&format!(
            "{name}: the candidate does not serve in {process}, which holds the most memory\n\
             hint: 'imas explain --pid PID' says why; 'imas unapply {name} --write' takes the drop-in away"
        ));
    }
}

/// The process of the unit that holds the most memory, where it lacks what is preloaded; `None` where it has that, where
/// nothing of ours is preloaded, and where no process can be looked into.
pub(super) fn unserved(unit: &Unit, preload: &str) -> Option<String> {
    let wanted = WantedLibraries::of_preload(preload)?;
    let processes = running::all().into_iter().filter(|process| unit.has(process));
    let largest = running::one(wanted.missed_by(processes.map(|process| process.pid))?)?;
    Some(format!("process {} ({})", largest.pid, largest.program))
}
