// SPDX-License-Identifier: Apache-2.0
//! The rehearsal: the battery in a mount namespace of its own, where `/etc/ld.so.preload` really names the
//! library.
//!
//! A child of this command makes the namespace; nothing outside it changes, and with the child it is gone.
//! Its `/etc` is a folder in memory full of links to the real one, so that ld.so.preload can be there or not,
//! whatever the machine has.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use super::battery::{self, By, Outcome};
use super::machine::{Machine, PRELOAD_FILE};
use super::{link, preload_file};

/// Outcomes of the rehearsal, on both sides.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rehearsal {
    /// Outcomes without our entry, others' kept.
    pub(super) before: Vec<Outcome>,
    /// Outcomes with LD_PRELOAD alone.
    pub(super) variable: Vec<Outcome>,
    /// Outcomes with our entry; empty if LD_PRELOAD failed already.
    pub(super) after: Vec<Outcome>,
}

/// Sides of the rehearsal that the child is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The side without the library alone.
    Before,
    /// Every side.
    All,
}

/// Starts the child and takes its report.
pub(super) fn rehearse(machine: &Machine, scope: Scope) -> Result<Rehearsal> {
    let made = !machine.run_dir.exists();
    link::make_run_dir(&machine.run_dir)?; // there must be a folder to mount over
    let mut child = Command::new(machine.imas());
    child.arg("system").arg("stage").stdin(Stdio::null()).stderr(Stdio::piped());
    child.arg("--run-dir").arg(&machine.run_dir).arg("--preload-file").arg(&machine.preload_file);
    child.arg("--lib-dir").arg(machine.lib_dir()?);
    if scope == Scope::Before {
        child.arg("--before");
    }
    let output = child.output();
    if made {
        let _ = std::fs::remove_dir(&machine.run_dir); // a rehearsal leaves nothing behind
    }
    let output = output.context("the rehearsal could not be started")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let printed = printed.trim().trim_start_matches("imas: ");
        bail!("the rehearsal could not run ({}): {printed}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the rehearsal's report")
}

/// The child.
pub(super) fn run(scope: Scope, machine: &Machine) -> Result<ExitCode> {
    super::machine::need_root("a rehearsal")?;
    let text = preload_file::read(&machine.preload_file)?;
    let others = preload_file::without(&text, &machine.entry());
    enter(&machine.run_dir).context("a mount namespace of its own")?;
    set_preload(&others)?;
    let before = battery::run(machine, By::Machine)?;
    if let Some(hung) = battery::hung(&before) {
        bail!("{} does not end, without our library: nothing can be compared", hung.program);
    }
    let mut rehearsal = Rehearsal { before, variable: vec![], after: vec![] };
    if scope == Scope::All {
        try_library(machine, &others, &mut rehearsal)?;
    }
    imas_cli::output::json(&rehearsal)?;
    Ok(ExitCode::SUCCESS)
}

fn try_library(machine: &Machine, others: &str, rehearsal: &mut Rehearsal) -> Result<()> {
    let stub = &machine.placements()?[0].stub;
    rehearsal.variable = battery::run(machine, By::Variable(stub))?;
    let verdicts = battery::compare(&rehearsal.before, &rehearsal.variable);
    if verdicts.iter().all(|verdict| verdict.fault.is_none()) {
        link::place_all(machine)?;
        set_preload(&format!("{}\n{others}", machine.entry()))?;
        rehearsal.after = battery::run(machine, By::Machine)?;
    }
    Ok(())
}

/// Leaves the machine's mounts: an empty run folder, and an `/etc` that only this process and its children
/// see.
fn enter(run_dir: &Path) -> Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
    mount(Some("imas"), run_dir, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    let real = run_dir.join("etc");
    std::fs::create_dir(&real)?;
    mount(Some("/etc"), &real, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)?;
    mount(Some("imas"), "/etc", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    for entry in std::fs::read_dir(&real)? {
        let name = entry?.file_name();
        let place = Path::new("/etc").join(&name);
        if place != Path::new(PRELOAD_FILE) {
            symlink(real.join(&name), place)?;
        }
    }
    Ok(())
}

fn set_preload(text: &str) -> Result<()> {
    let fresh = format!("{PRELOAD_FILE}.new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, PRELOAD_FILE).context(PRELOAD_FILE)
}
