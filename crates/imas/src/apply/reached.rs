// SPDX-License-Identifier: Apache-2.0
//! Whether what a unit starts can be given an allocator, as far as its files say; and whether it has it afterwards.
//!
//! Services that hold much free memory in glibc's heaps, as `imas apply --auto` finds them without any trial: a trim
//! would return it now. What a candidate that gives back costs shows under the watch, which takes it back where it is
//! worse.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::mib;
use imas_cli::message::{self, Hinted};
use imas_core::SYSTEM;
use imas_engine::context::Context;
use imas_engine::drop_in::LEAST_SYSTEMD;
use imas_engine::prices::advised_restart;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::Unfit;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::in_time::ROOT;
use imas_linux::program::{Command, Program, is_privileged};
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::serving::chooser::WantedLibraries;
use imas_linux::serving::{On, RealCandidates};
use imas_linux::{foreign_file, process, process_trim};

use super::unit::{Unit, systemctl};

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
    if candidate.huge_pages.is_some() && root.is_none() {
        check_manager(&candidate.name, &systemctl(&["--version"])?)?;
    }
    if candidate.is_bare() {
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

/// Refuses huge pages where the manager would pass over the line: `version` is what it prints.
fn check_manager(candidate: &str, version: &str) -> Result<()> {
    let number = version.split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
    if number.is_some_and(|number| number >= LEAST_SYSTEMD) {
        return Ok(());
    }
    Err(Hinted::error(
        format!("{candidate}: this systemd has no MemoryTHP=: {LEAST_SYSTEMD} has it"),
        format!("put 'imas run --candidate {candidate} --' in front of the command in ExecStart="),
    ))
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
    // The service's program may be a file of its user.
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

/// Least free memory of a service, and least share of its resident memory: a restart is worth no less.
const LEAST: u64 = 32 << 20;
const LEAST_SHARE: f64 = 0.1;
/// Processes of a service whose heaps are read, the largest first.
const MOST: usize = 16;

/// The candidate for a running service that was left untouched and holds much free memory.
pub(super) fn held_free_candidate(context: &Context, unit: &Unit) -> Option<String> {
    let candidates = RealCandidates::of(context.catalogue.all());
    let of_unit = |process: &Running| process.system_unit() == Some(unit.name.as_str()) && unit.has(process);
    let untouched = |process: &Running| process.is_on(SYSTEM, &candidates) != On::No;
    let own: Vec<Running> = running::all().into_iter().filter(of_unit).collect();
    if own.is_empty() || !own.iter().all(untouched) {
        return None;
    }
    let mut sized: Vec<(u64, &Running)> =
        own.iter().filter_map(|one| Some((process::resident_bytes(one.pid)?, one))).collect();
    sized.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let resident: u64 = sized.iter().map(|(bytes, _)| bytes).sum();
    let looked_at = sized.iter().take(MOST).filter_map(|(_, one)| process_trim::heaps_of(one.pid).ok());
    let heaps: Vec<HeapFigures> = looked_at.collect();
    let free = heaps.iter().map(|heaps| heaps.bytes.returnable).fold(0, u64::saturating_add);
    if !is_much(free, resident) {
        return None;
    }
    let runtime = RunningRuntime::of(sized.first()?.1).map(|runtime| runtime.found.runtime);
    let arenas = heaps.iter().map(|heaps| heaps.arenas).max().unwrap_or(0);
    let restart = advised_restart(runtime, arenas, &candidates)?;
    message::say(&format!(
        "imas: {}: {} of {} MiB are free pages that a trim returns; nothing is measured yet, so {} is tried: {}",
        unit.name,
        mib(free as f64),
        mib(resident as f64),
        restart.candidate,
        restart.price
    ));
    Some(restart.candidate.to_owned())
}

fn is_much(free: u64, resident: u64) -> bool {
    free >= LEAST && free as f64 >= resident as f64 * LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_manager_gets_no_line_that_it_passes_over() {
        assert!(check_manager("thp:off", "systemd 260 (260.1-1)\n+PAM").is_ok());
        for older in ["systemd 252 (252.38-1~deb12u1)\n+PAM", "", "systemd"] {
            assert!(check_manager("thp:off", older).is_err(), "{older}");
        }
    }

    #[test]
    fn little_free_memory_is_no_reason_for_a_restart() {
        let mib = |number: u64| number << 20;
        assert!(is_much(mib(40), mib(150)));
        assert!(!is_much(mib(31), mib(60)), "too little");
        assert!(!is_much(mib(40), mib(900)), "too small a share");
    }
}
