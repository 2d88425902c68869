// SPDX-License-Identifier: Apache-2.0
//! Putting the library in place below the run folder, at `enable` and at each boot, and taking it out again.
//!
//! Which library files passed the battery: written down when they are put in place, compared by `status`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use imas_cli::message;
use imas_engine::context::Context;
use imas_engine::flags::JsonArgs;
use imas_linux::catalogue_table::{Owners, Refusal, can_be_placed, write_catalogue_table};
use serde::{Deserialize, Serialize};

use super::machine::{self, Machine, need_root};
use super::verify;

/// The account of the daemon, which may write the index.
const DAEMON: &str = "imas";

/// Links, and the record of what they point to.
pub(super) fn put_library(machine: &Machine) -> Result<()> {
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
pub(super) fn put_catalogue(machine: &Machine) -> Result<()> {
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
    nix::unistd::User::from_name(DAEMON).ok().flatten().map_or(0, |user| user.uid.as_raw())
}

/// Runs `imas-ldpreload VERB ENTRY` with more words, and passes on what it says.
pub(super) fn edit(machine: &Machine, verb: &str, check: &[&Path]) -> Result<bool> {
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
