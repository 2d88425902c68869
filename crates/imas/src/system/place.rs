// SPDX-License-Identifier: Apache-2.0
//! Putting the library in place below the run folder, at `enable` and at each boot, and taking it out again.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use imas_engine::flags::JsonArgs;
use imas_linux::catalogue_table::{Owners, Refusal, can_be_placed, write_catalogue_table};

use super::machine::{Machine, need_root};
use super::{approved, link, preload_file, verify};
use imas_cli::message;
use imas_engine::context::Context;

/// The account of the daemon, which may write the index.
const DAEMON: &str = "imas";

/// Links, and the record of what they point to.
pub(super) fn put_library(machine: &Machine) -> Result<()> {
    link::place_all(machine)?;
    approved::write(machine)
}

/// Takes away what the two made; what is not there is as wished.
pub(super) fn clear(machine: &Machine) {
    link::remove_all(machine);
    for file in [machine.approved(), machine.catalogue(), machine.boot_id()] {
        let _ = std::fs::remove_file(file);
    }
}

/// Writes the table of candidates, and says which did not get in. The boot id goes first: the daemon reads it
/// anew with the table.
pub(super) fn put_catalogue(machine: &Machine) -> Result<()> {
    imas_linux::boot::write(&machine.run_dir).with_context(|| machine.boot_id().display().to_string())?;
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
    let text = preload_file::read(&machine.preload_file)?;
    if !preload_file::entries(&text).iter().any(|&(_, entry)| entry == machine.entry()) {
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
