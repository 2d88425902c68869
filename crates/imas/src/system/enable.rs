// SPDX-License-Identifier: Apache-2.0
//! `imas system enable`.
//!
//! `imas system disable`: the entry first, then what it points to, then the units.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use imas_cli::message::{self, Hinted, say};
use imas_engine::flags::JsonArgs;

use super::machine::{Machine, need_root};
use super::{Consent, place, verify};

pub(super) fn run(consent: Consent, machine: &Machine) -> anyhow::Result<ExitCode> {
    need_root("system enable")?;
    machine.placements()?;
    tell_plan(machine);
    if !consent.yes && !asked()? {
        say("imas: nothing was changed");
        super::answer(consent.json, false, &[])?;
        return Ok(ExitCode::from(1));
    }
    say("Rehearsing: a battery of programs with and without the library...");
    let wrong = verify::rehearsal(machine)?.wrong();
    if !wrong.is_empty() {
        super::answer(consent.json, false, &wrong)?;
        return refuse(&wrong);
    }
    prepare_units(machine)?;
    match put_in_place(machine) {
        Ok(true) => {}
        other => {
            take_back(machine);
            super::answer(consent.json, false, &["a program behaves differently".to_owned()])?;
            return other.map(|_| ExitCode::from(1));
        }
    }
    if let Err(why) = start_units(machine) {
        return Err(Hinted::error(format!("{}: {why}", BOOT), "'imas system status' shows what is in place"));
    }
    say("Enabled. Programs that start from now on look themselves up; those that run stay as they are.");
    say("hint: 'imas system status' shows what is in place, 'imas system disable' takes it out");
    super::answer(consent.json, true, &[])?;
    Ok(ExitCode::SUCCESS)
}

fn tell_plan(machine: &Machine) {
    say("This lets every program of this machine find its allocator by itself:");
    say(&format!("  {}  gets the entry {}", machine.preload_file.display(), machine.entry()));
    for placement in machine.placements().unwrap_or_default() {
        let what = if placement.stub.exists() { "links to" } else { "stays empty: there is no" };
        say(&format!("  {}  {what} {}", placement.link.display(), placement.stub.display()));
    }
    say(&format!("  {}  holds the candidates that may be chosen", machine.catalogue().display()));
    if systemd_runs() {
        say(&format!("  {}, {} and {} are enabled", BOOT, DAEMON, EMERGENCY));
    }
    say("Every program is tried before and after; if one behaves differently, everything is put back.");
    say(
        "Should no program start any more: boot once with init=/usr/sbin/imas-rescue on the kernel's command line.",
    );
}

fn asked() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Hinted::error("no terminal to ask for confirmation", "add --yes"));
    }
    let _ = write!(anstream::stderr(), "Type yes to go on: "); // without a terminal to write to, the answer is no
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

fn refuse(wrong: &[String]) -> anyhow::Result<ExitCode> {
    say("imas: not enabled: the library is not fit to be loaded by every program:");
    wrong.iter().for_each(|line| say(&format!("  {line}")));
    say("hint: nothing was changed; 'imas system verify' shows all programs that were tried");
    Ok(ExitCode::from(1))
}

/// Without the unit the link would be missing after the next boot: asked for before anything is changed.
fn prepare_units(machine: &Machine) -> anyhow::Result<()> {
    if !machine.is_live() {
        return Ok(());
    }
    if !systemd_runs() {
        message::warning(
            "systemd does not run here: 'imas system boot' must be run early at each boot, or programs say that the library is missing",
        );
        return Ok(());
    }
    systemctl(&["enable", BOOT]).map_err(|why| {
        Hinted::error(format!("not enabled: {why}"), "install the package's units; nothing was changed")
    })
}

/// Puts the library in place. False: the battery failed and `imas-ldpreload` put the file back.
fn put_in_place(machine: &Machine) -> anyhow::Result<bool> {
    place::put_library(machine)?;
    place::put_catalogue(machine)?;
    for off in [machine.disabled(), machine.emergency()] {
        let _ = std::fs::remove_file(off); // left by an earlier rescue
    }
    say("The same on the machine itself...");
    let run_dir = format!("--run-dir={}", machine.run_dir.display());
    let lib_dir = format!("--lib-dir={}", machine.lib_dir()?.display());
    let words = ["system", "verify", "--quiet", &run_dir, &lib_dir].map(Path::new);
    let check: Vec<_> = [machine.imas()].into_iter().chain(words).collect();
    place::edit(machine, "add", if machine.is_live() { &check } else { &[] })
}

fn take_back(machine: &Machine) {
    place::clear(machine);
    if machine.is_live() && systemd_runs() {
        // The reason for taking it back is printed already.
        let _ = systemctl(&["disable", BOOT]);
    }
}

/// The boot unit is started as well: what fails at the next boot shall fail now.
///
/// # Errors
/// Of the boot unit, which then has taken the entry out; without the others programs stay as they are.
fn start_units(machine: &Machine) -> anyhow::Result<(), String> {
    if !machine.is_live() || !systemd_runs() {
        return Ok(());
    }
    let _ = systemctl(&["stop", EMERGENCY_DONE]); // of an earlier emergency; not running is fine
    if let Err(why) = make_folders() {
        message::warning(&why);
    }
    systemctl(&["restart", BOOT])?;
    for unit in [EMERGENCY, DAEMON] {
        if let Err(why) = systemctl(&["enable", "--now", unit]) {
            message::warning(&format!("{why}; without it programs stay as they are"));
        }
    }
    Ok(())
}

pub(super) fn run_disable(json: JsonArgs, machine: &Machine) -> anyhow::Result<ExitCode> {
    need_root("system disable")?;
    place::edit(machine, "remove", &[])?;
    place::clear(machine);
    let _ = std::fs::remove_file(machine.disabled());
    if machine.is_live() && systemd_runs() {
        stop_units();
    }
    let _ = std::fs::remove_dir(&machine.run_dir); // if the daemon's files are in it, it stays
    say(
        "Disabled. Programs that start from now on are untouched; those that run keep what they have until they end.",
    );
    super::answer(json, false, &[])?;
    Ok(ExitCode::SUCCESS)
}

fn stop_units() {
    let _ = systemctl(&["stop", EMERGENCY_DONE]); // not running is fine
    for unit in [EMERGENCY, DAEMON, BOOT] {
        if let Err(why) = systemctl(&["disable", "--now", unit]) {
            message::warning(&why);
        }
    }
}

/// Puts the library in place at each boot.
pub(super) const BOOT: &str = "imas-boot.service";
/// Takes it out when the daemon asks for it.
pub(super) const EMERGENCY: &str = "imas-emergency.path";
/// Unit that `EMERGENCY` starts; it stays active, and would not be started again, until it is stopped.
const EMERGENCY_DONE: &str = "imas-emergency.service";
/// Learns and decides.
pub(super) const DAEMON: &str = "imasd.service";

/// Whether systemd is this machine's init.
pub(super) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// `systemctl` with these words.
///
/// # Errors
/// The message of systemctl.
pub(super) fn systemctl(words: &[&str]) -> Result<(), String> {
    run_systemctl("systemctl", words)
}

/// The daemon's folders below the run folder, as after a boot.
///
/// # Errors
/// The message of `systemd-tmpfiles`.
fn make_folders() -> Result<(), String> {
    run_systemctl("systemd-tmpfiles", &["--create", "imas.conf"])
}

fn run_systemctl(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let printed = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {}: {}", words.join(" "), printed.trim()))
        }
    }
}

/// Whether the unit runs, or has run as it should.
pub(super) fn is_active(unit: &str) -> bool {
    systemctl(&["is-active", "--quiet", unit]).is_ok()
}
