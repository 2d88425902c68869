// SPDX-License-Identifier: Apache-2.0
//! `imas system enable` and `disable`, which removes the entry first, then what it points to, then the units.
//!
//! Then putting the library in place below the run folder, at `enable` and at each boot, and taking it out again. Which
//! library files passed the battery is written down when they are put in place, and compared by `status`.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use imas_cli::message::{self, Hinted, say};
use imas_engine::context::Context;
use imas_engine::flags::JsonArgs;
use imas_linux::catalogue_table::{Owners, Refusal, can_be_placed, write_catalogue_table};
use serde::{Deserialize, Serialize};

use super::machine::{self, Machine, need_root};
use super::{Consent, verify};

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
    put_library(machine)?;
    put_catalogue(machine)?;
    for off in [machine.disabled(), machine.emergency()] {
        let _ = std::fs::remove_file(off); // left by an earlier rescue
    }
    say("The same on the machine itself...");
    let run_dir = format!("--run-dir={}", machine.run_dir.display());
    let lib_dir = format!("--lib-dir={}", machine.lib_dir()?.display());
    let words = ["system", "verify", "--quiet", &run_dir, &lib_dir].map(Path::new);
    let check: Vec<_> = [machine.imas()].into_iter().chain(words).collect();
    edit(machine, "add", if machine.is_live() { &check } else { &[] })
}

fn take_back(machine: &Machine) {
    clear(machine);
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
    edit(machine, "remove", &[])?;
    clear(machine);
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

/// The account of the daemon, which may write the index.
const USER_OF_DAEMON: &str = "imas";

/// Links, and the record of what they point to.
fn put_library(machine: &Machine) -> Result<()> {
    machine::place_links(machine)?;
    write_approved(machine)
}

/// Takes away what the two made; what is not there is as wished.
pub(super) fn clear(machine: &Machine) {
    machine::remove_links(machine);
    for file in [machine.approved(), machine.catalogue(), machine.boot_id()] {
        let _ = std::fs::remove_file(file);
    }
}

/// Writes the table of candidates, and says which did not get in. The boot id goes first: the daemon reads it
/// anew with the table.
fn put_catalogue(machine: &Machine) -> Result<()> {
    imas_linux::host::write_boot_id(&machine.run_dir)
        .with_context(|| machine.boot_id().display().to_string())?;
    let context = Context::of_the_machine(machine.lib_dir()?);
    context.catalogue.problems().iter().for_each(|problem| message::warning(&problem.to_string()));
    let mut refused = vec![];
    let mut usable = vec![];
    for candidate in context.catalogue.all().filter(|candidate| can_be_placed(candidate)) {
        match context.obstacle(candidate, None) {
            None => usable.push(candidate.clone()),
            Some(why) => refused.push(Refusal { candidate: candidate.name.clone(), why }),
        }
    }
    let owners = Owners { trusted: 0, daemon: daemon_uid() };
    let written = write_catalogue_table(&machine.catalogue(), &usable, &context.libraries, owners)?;
    refused.extend(written.refused);
    if !refused.is_empty() {
        let names: Vec<_> = refused.iter().map(|refusal| refusal.candidate.as_str()).collect();
        message::say(&format!("note: not among the candidates: {} ('imas list' says why)", names.join(", ")));
    }
    Ok(())
}

/// Root where there is no such account: then the daemon runs as root, or not at all.
fn daemon_uid() -> u32 {
    nix::unistd::User::from_name(USER_OF_DAEMON).ok().flatten().map_or(0, |user| user.uid.as_raw())
}

/// Runs `imas-ldpreload VERB ENTRY` with more words, and passes on what it says.
fn edit(machine: &Machine, verb: &str, check: &[&Path]) -> Result<bool> {
    let tool = machine.tool("imas-ldpreload")?;
    let mut command = Command::new(&tool);
    command.arg(verb).arg(machine.entry()).arg("--file").arg(&machine.preload_file);
    if let [program, rest @ ..] = check {
        command.arg("--").arg(program).args(rest);
    }
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().with_context(|| tool.display().to_string())?;
    for line in [stdout, stderr]
        .iter()
        .flat_map(|printed| String::from_utf8_lossy(printed).lines().map(str::to_owned).collect::<Vec<_>>())
    {
        message::say(&line);
    }
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("{} ended with {status}", tool.display()),
    }
}

/// `imas system boot`. Between the kernel's start and this, programs say that the library is not there, and run.
pub(super) fn boot(json: JsonArgs, machine: &Machine) -> Result<ExitCode> {
    need_root("system boot")?;
    let text = machine::read_preload(&machine.preload_file)?;
    if !machine::preload_entries(&text).iter().any(|&(_, entry)| entry == machine.entry()) {
        message::say(&format!(
            "imas: {} does not name our library; nothing to do",
            machine.preload_file.display()
        ));
        super::answer(json, false, &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = try_boot(machine).unwrap_or_else(|error| vec![format!("{error:#}")]);
    if !wrong.is_empty() {
        withdraw(machine, &wrong)?;
    }
    super::answer(json, wrong.is_empty(), &wrong)?;
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Answers what is wrong.
fn try_boot(machine: &Machine) -> Result<Vec<String>> {
    let rehearsal = verify::rehearsal(machine)?;
    let wrong = rehearsal.wrong();
    if !wrong.is_empty() {
        return Ok(wrong);
    }
    put_library(machine)?;
    // Without a table nothing is placed, and nothing is harmed: no reason to take the library out.
    if let Err(error) = put_catalogue(machine) {
        message::warning(&format!("{error:#}; programs start as they are"));
    }
    Ok(match machine.is_live() {
        true => verify::real(machine, rehearsal.before)?.wrong(),
        false => vec![],
    })
}

/// The links go first: without them every program starts, with one line about it. Then the entry.
fn withdraw(machine: &Machine, wrong: &[String]) -> Result<()> {
    clear(machine);
    message::say("imas: the library failed its verification and is taken out:");
    wrong.iter().for_each(|line| message::say(&format!("imas:   {line}")));
    edit(machine, "remove", &[])?;
    message::say("hint: install the package again, then 'imas system enable'");
    Ok(())
}

/// A file as it was when it passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    path: PathBuf,
    dev: u64,
    ino: u64,
    bytes: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl Identity {
    /// The identity of the file at the path; links are followed.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let facts = std::fs::metadata(path)?;
        Ok(Self {
            path: std::fs::canonicalize(path)?,
            dev: facts.dev(),
            ino: facts.ino(),
            bytes: facts.size(),
            mtime_ns: facts.mtime() * 1_000_000_000 + facts.mtime_nsec(),
            ctime_ns: facts.ctime() * 1_000_000_000 + facts.ctime_nsec(),
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    stubs: Vec<Identity>,
}

/// Writes down the identities of the stubs that are linked now.
fn write_approved(machine: &Machine) -> Result<()> {
    let links = machine.placements()?;
    let stubs = links.iter().filter_map(|placement| Identity::of(&placement.link).ok()).collect();
    let text = serde_json::to_string_pretty(&Record { schema: 1, stubs })?;
    let path = machine.approved();
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .with_context(|| path.display().to_string())
}

/// Identities of the stubs that were written down; none when there is no record.
pub(super) fn read_approved(machine: &Machine) -> Vec<Identity> {
    let text = std::fs::read_to_string(machine.approved()).unwrap_or_default();
    serde_json::from_str::<Record>(&text).map_or_else(|_| vec![], |record| record.stubs)
}
