// SPDX-License-Identifier: Apache-2.0
//! `imas system verify`: the battery, now.
//!
//! Checks of a file before every program of the machine may load it. The file is not loaded for them.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use imas_cli::{message, output};
use imas_linux::trust::untrusted;
use serde_json::json;

use super::VerifyArgs;
use super::battery::{self, By, Outcome, Rehearsal, Scope, Verdict};
use super::machine::{self, Machine, need_root};

/// Faults and outcomes that were found.
#[derive(Debug)]
pub(super) struct Finding {
    /// Faults of the files themselves. Where there are any, nothing is started.
    pub(super) faults: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    /// The side without the library.
    pub(super) before: Vec<Outcome>,
    /// How the library was loaded in the last round.
    pub(super) how: &'static str,
}

impl Finding {
    /// Everything that is wrong, a line each. Empty: nothing is.
    pub(super) fn wrong(&self) -> Vec<String> {
        let verdicts = self.verdicts.iter().filter_map(|verdict| {
            let fault = verdict.fault.as_ref()?;
            Some(format!("{} ({}): {fault}", verdict.program, verdict.case))
        });
        self.faults.iter().cloned().chain(verdicts).collect()
    }
}

pub(super) fn run(args: VerifyArgs, machine: &Machine) -> Result<ExitCode> {
    need_root("system verify")?;
    let finding = match is_in_place(machine)? {
        true => real(machine, battery::rehearse(machine, Scope::Before)?.before)?,
        false => rehearsal(machine)?,
    };
    let wrong = finding.wrong();
    if args.json.json {
        let verdicts = &finding.verdicts;
        output::json(
            &json!({ "schema": 1, "passed": wrong.is_empty(), "how": finding.how, "faults": finding.faults, "programs": verdicts }),
        )?;
    } else if !args.quiet {
        output::text(&page(&finding))?;
    } else {
        wrong.iter().for_each(|line| message::say(line));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Whether the running machine's programs load the library by the file and the links that are there now.
fn is_in_place(machine: &Machine) -> Result<bool> {
    let text = machine::read_preload(&machine.preload_file)?;
    let entry = machine.entry();
    Ok(machine.is_live() && machine::preload_entries(&text).iter().any(|&(_, other)| other == entry))
}

/// Checks the files, then rehearses: first by LD_PRELOAD, which affects no other process, then as on the
/// enabled machine.
pub(super) fn rehearsal(machine: &Machine) -> Result<Finding> {
    let faults = stub_faults(machine)?;
    if !faults.is_empty() {
        return Ok(Finding { faults, verdicts: vec![], before: vec![], how: "not loaded" });
    }
    let Rehearsal { before, variable, after } = battery::rehearse(machine, Scope::All)?;
    let (after, how) = match after.is_empty() {
        true => (variable, "by LD_PRELOAD"),
        false => (after, "rehearsed in a mount namespace"),
    };
    Ok(Finding { faults, verdicts: battery::compare(&before, &after), before, how })
}

/// The battery as the machine is now, against the side without the library.
pub(super) fn real(machine: &Machine, before: Vec<Outcome>) -> Result<Finding> {
    let after = battery::run_battery(machine, By::Machine)?;
    let faults = stub_faults(machine)?.into_iter().chain(not_mapped(machine)?).collect();
    let verdicts = battery::compare(&before, &after);
    Ok(Finding { faults, verdicts, before, how: "as the machine is" })
}

/// Why the library is not loaded into a program that is started now, if it is not. Without this check, that
/// nothing goes wrong would prove nothing.
fn not_mapped(machine: &Machine) -> Result<Option<String>> {
    let link = &machine.placements()?[0].link;
    let library = match std::fs::canonicalize(link) {
        Ok(library) => library.display().to_string(),
        Err(error) => return Ok(Some(format!("{}: {error}", link.display()))),
    };
    let maps = Command::new("/bin/cat").arg("/proc/self/maps").env_clear().output()?;
    let maps = String::from_utf8_lossy(&maps.stdout);
    let mapped = maps.lines().any(|line| line.ends_with(&library));
    Ok((!mapped).then(|| format!("{library}: a program that was started now has not loaded it")))
}

fn page(finding: &Finding) -> String {
    let mut page = format!("library loaded: {}\n", finding.how);
    for fault in &finding.faults {
        page += &format!("  FAULT  {fault}\n");
    }
    for verdict in &finding.verdicts {
        page += &match &verdict.fault {
            None => format!("  same   {} ({})\n", verdict.program, verdict.case),
            Some(fault) => format!("  FAULT  {} ({}): {fault}\n", verdict.program, verdict.case),
        };
    }
    page + match finding.wrong().is_empty() {
        true => "Every program ends, prints and complains as without it.",
        false => "Not fit to be loaded by every program.",
    }
}

/// Faults of the machine's own files: the libraries to be linked and the static tools.
fn stub_faults(machine: &Machine) -> anyhow::Result<Vec<String>> {
    let mut faults = vec![];
    for placement in machine.placements()? {
        match placement.stub.try_exists() {
            Ok(false) if !placement.loader.native => {} // its programs get one message a start; `verify` shows it
            _ => faults.extend(library_fault(&placement.stub)),
        }
    }
    for name in ["imas-ldpreload", "imas-rescue"] {
        faults.extend(tool_fault(&machine.tool(name)?));
    }
    Ok(faults)
}

fn library_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| imas_linux::elf::preload_fault(path).err());
    why.map(|why| format!("{}: {why}", path.display()))
}

fn tool_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| match imas_linux::elf::ElfImage::read(path) {
        Ok(elf) if elf.interpreter.is_some() => {
            Some("it is not static: it would not run when it is needed".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    });
    why.map(|why| format!("{}: {why}", path.display()))
}

/// Why others than root could change the file, or put another in its place.
fn unsafe_to_use(path: &Path) -> Option<String> {
    untrusted(path, 0).map(|why| format!("not safe to use: {why}"))
}
