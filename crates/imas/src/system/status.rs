// SPDX-License-Identifier: Apache-2.0
//! `imas system status`: what is in place, compared with what was approved, and what running processes have
//! really mapped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::{self, Index};
use imas_linux::serving::{LibraryNames, ProcessCensus};
use imas_linux::variables::Variables;
use imas_linux::{preloads, process};
use serde::Serialize;

use super::enable::{self, Identity};
use super::machine::{self, Machine, Placement};
use imas_cli::output;
use imas_engine::flags::JsonArgs;

/// Name of what serves where IMAS is mapped, but no library of the approved catalogue.
const UNKNOWN: &str = "system's with settings, or one that is not in the catalogue";
/// Exit status when the machine is not, or not wholly, enabled.
const NO: u8 = 1;

#[derive(Debug, Serialize)]
struct Status {
    schema: u32,
    /// The entry is there, and everything it needs.
    works: bool,
    entry: Entry,
    links: Vec<Link>,
    catalogue: Catalogue,
    index: IndexFacts,
    /// The kill switch: every process stands aside.
    disabled: bool,
    /// Why no program is placed: another library of /etc/ld.so.preload defines malloc.
    untouched: Option<String>,
    /// Emergency that the daemon has raised, in words.
    emergency: Option<String>,
    /// Pid of the daemon that serves this run folder.
    daemon: Option<u32>,
    /// Unit and whether it is active; empty without systemd.
    units: BTreeMap<&'static str, bool>,
    processes: ProcessCensus,
}

#[derive(Debug, Serialize)]
struct Entry {
    file: PathBuf,
    text: String,
    /// Number of the line with our entry, from 1.
    line: Option<usize>,
    /// Entries of everybody else.
    others: Vec<String>,
    /// Why the file could not be read.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Link {
    path: PathBuf,
    target: Option<PathBuf>,
    native: bool,
    /// `approved`, `changed` (since it was approved), `unapproved`, `dangling`, `missing`.
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct Catalogue {
    candidates: usize,
    /// Libraries that are no longer as they were approved; they are not used.
    changed: Vec<PathBuf>,
    error: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct IndexFacts {
    generation: u64,
    entries: usize,
    age_seconds: u64,
    disabled: bool,
    /// Made for the catalogue that is there; another one's is not used.
    matches_catalogue: bool,
    /// Made for this boot, as programs see it; another one's is not used.
    matches_boot: bool,
    error: Option<String>,
}

pub(crate) fn run(args: JsonArgs, machine: &Machine) -> Result<ExitCode> {
    let status = Status::now(machine);
    output::json_or(args.json, &status, || status.page())?;
    Ok(if status.works { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

impl Status {
    fn now(machine: &Machine) -> Self {
        let table = CatalogueTable::read(&machine.catalogue());
        let entry = Entry::now(machine);
        let approved = enable::read_approved(machine);
        let links: Vec<_> = machine
            .placements()
            .unwrap_or_default()
            .iter()
            .map(|placement| Link::now(placement, &approved))
            .collect();
        let index = IndexFacts::now(machine, table.as_ref().ok().map(CatalogueTable::id));
        let disabled = machine.disabled().exists();
        let native = links.iter().find(|link| link.native);
        let daemon = imas_engine::daemon_status::DaemonStatus::read(&machine.run_dir);
        Self {
            schema: 1,
            works: entry.line.is_some() && !disabled && native.is_some_and(|link| link.state == "approved"),
            entry,
            links,
            catalogue: Catalogue::of(&table),
            index,
            disabled,
            untouched: preloads::own_malloc(&Variables::new()),
            emergency: emergency(&machine.emergency()),
            daemon: daemon.map(|status| status.pid),
            units: unit_states(),
            processes: ProcessCensus::now(&libraries(table.as_ref().ok()), UNKNOWN),
        }
    }
}

impl Entry {
    fn now(machine: &Machine) -> Self {
        let (text, error) = match machine::read_preload(&machine.preload_file) {
            Ok(text) => (text, None),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        let ours = machine.entry();
        let entries = machine::preload_entries(&text);
        Self {
            file: machine.preload_file.clone(),
            line: entries.iter().find(|(_, entry)| *entry == ours).map(|&(line, _)| line),
            others: entries
                .iter()
                .filter(|(_, entry)| *entry != ours)
                .map(|&(_, entry)| entry.to_owned())
                .collect(),
            text: ours,
            error,
        }
    }
}

impl Link {
    fn now(placement: &Placement, approved: &[Identity]) -> Self {
        let target = std::fs::read_link(&placement.link).ok();
        let state = match (&target, Identity::of(&placement.link)) {
            (None, _) => "missing",
            (Some(_), Err(_)) => "dangling",
            (Some(_), Ok(_)) if approved.is_empty() => "unapproved",
            (Some(_), Ok(now)) if approved.contains(&now) => "approved",
            (Some(_), Ok(_)) => "changed",
        };
        Self { path: placement.link.clone(), target, native: placement.loader.native, state }
    }
}

impl Catalogue {
    fn of(table: &Result<CatalogueTable, imas_linux::catalogue_table::TableError>) -> Self {
        match table {
            Ok(table) => {
                Self { candidates: table.names().count(), changed: table.changed_libraries(), error: None }
            }
            Err(error) => Self { candidates: 0, changed: vec![], error: Some(error.to_string()) },
        }
    }
}

impl IndexFacts {
    fn now(machine: &Machine, catalogue: Option<u64>) -> Self {
        match Index::read(&machine.index()) {
            Ok(index) => {
                let facts = index.facts();
                Self {
                    generation: facts.generation,
                    entries: index.entries().count(),
                    age_seconds: index::boot_time_ns().saturating_sub(facts.made_boot_ns) / 1_000_000_000,
                    disabled: facts.disabled,
                    matches_catalogue: catalogue == Some(facts.catalogue_id),
                    matches_boot: process::boot_id().is_ok_and(|id| id == facts.boot_id),
                    error: None,
                }
            }
            Err(error) => Self { error: Some(error.to_string()), ..Self::default() },
        }
    }
}

/// The daemon's text: one line, plain characters.
fn emergency(file: &Path) -> Option<String> {
    let text = std::fs::read(file).ok()?;
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Some(
        line.iter()
            .take(400)
            .map(|&b| if (b' '..=b'~').contains(&b) { char::from(b) } else { '?' })
            .collect(),
    )
}

fn unit_states() -> BTreeMap<&'static str, bool> {
    if !enable::systemd_runs() {
        return BTreeMap::new();
    }
    [enable::BOOT, enable::EMERGENCY, enable::DAEMON].map(|unit| (unit, enable::is_active(unit))).into()
}

/// Library to allocator: candidates that differ in settings only share it.
fn libraries(table: Option<&CatalogueTable>) -> LibraryNames {
    let named = table
        .into_iter()
        .flat_map(|table| table.names().filter_map(|(id, name)| Some((table.entry(id)?.library, name))));
    named
        .map(|(library, name)| {
            let end = library.iter().position(|&byte| byte == 0).unwrap_or(library.len());
            let path = PathBuf::from(String::from_utf8_lossy(&library[..end]).into_owned());
            (path, name.split(':').next().unwrap_or_default().to_owned())
        })
        .filter(|(path, _)| path.is_absolute())
        .collect()
}

impl Status {
    fn page(&self) -> String {
        let mut lines = vec![self.headline(), String::new(), self.entry_line()];
        lines.extend(self.links.iter().map(|link| {
            let target =
                link.target.as_ref().map_or_else(|| "nothing".to_owned(), |path| path.display().to_string());
            format!("link       {} -> {target}: {}", link.path.display(), link.state)
        }));
        lines.push(self.catalogue_line());
        lines.push(self.index_line());
        lines.push(match self.daemon {
            Some(pid) => format!("daemon     runs, process {pid}"),
            None => {
                "daemon     does not run: programs start as last decided, 'imas run' alone learns".to_owned()
            }
        });
        lines.extend(self.units.iter().map(|(unit, active)| {
            format!("unit       {unit}: {}", if *active { "active" } else { "not active" })
        }));
        lines.extend(self.untouched.iter().map(|why| format!("untouched  every program: {why}")));
        lines.extend(self.emergency.iter().map(|why| format!("EMERGENCY  {why}")));
        lines.extend(self.process_lines());
        lines.join("\n")
    }

    fn headline(&self) -> String {
        let native = self.links.iter().find(|link| link.native).map_or("missing", |link| link.state);
        match (self.entry.line, native) {
            (None, _) => "Not enabled: programs start untouched.",
            (Some(_), _) if self.disabled => "Switched off: every program stands aside.",
            (Some(_), "approved") => "Enabled.",
            (Some(_), "changed" | "unapproved") => {
                "Enabled, but the library is not the one that was approved. 'imas system boot' verifies it and approves it, or takes it out."
            }
            _ => "Broken: programs run untouched and say that the library is missing. 'imas system boot' puts it in place, 'imas system disable' takes the entry out.",
        }
        .to_owned()
    }

    fn entry_line(&self) -> String {
        let file = self.entry.file.display();
        let others = match self.entry.others.len() {
            0 => String::new(),
            _ => format!("; others there: {}", self.entry.others.join(", ")),
        };
        match (&self.entry.error, self.entry.line) {
            (Some(error), _) => format!("entry      {file}: {error}"),
            (None, Some(line)) => format!("entry      {file}, line {line}: {}{others}", self.entry.text),
            (None, None) => format!("entry      not in {file}{others}"),
        }
    }

    fn catalogue_line(&self) -> String {
        match (&self.catalogue.error, self.catalogue.changed.as_slice()) {
            (Some(error), _) => format!("catalogue  {error}"),
            (None, []) => format!("catalogue  {}", counted(self.catalogue.candidates, "candidate")),
            (None, changed) => {
                let names: Vec<_> = changed.iter().map(|path| path.display().to_string()).collect();
                format!(
                    "catalogue  {}; changed since, so not used: {}. 'imas system boot' approves them anew",
                    counted(self.catalogue.candidates, "candidate"),
                    names.join(", ")
                )
            }
        }
    }

    fn index_line(&self) -> String {
        let index = &self.index;
        match &index.error {
            Some(error) => format!("index      {error}: programs start as they are"),
            None => format!(
                "index      {} decisions, generation {}, {} s old{}{}{}",
                index.entries,
                index.generation,
                index.age_seconds,
                if index.disabled { ", DISABLED by the daemon" } else { "" },
                if index.matches_catalogue { "" } else { ", of another catalogue: not used" },
                if index.matches_boot {
                    ""
                } else {
                    ", of another boot: not used ('imas system boot' mends it)"
                },
            ),
        }
    }

    fn process_lines(&self) -> Vec<String> {
        let seen = &self.processes;
        let mut lines = vec![format!(
            "processes  {} of {} have the library mapped, {} an older one; {} could not be looked at",
            seen.with_library, seen.looked_at, seen.with_old_library, seen.not_readable
        )];
        lines.extend(seen.serving.iter().map(|serving| {
            let how = if serving.trial { ", counted" } else { "" };
            format!(
                "  {:>4} x {} on {}{how}",
                serving.processes,
                serving.executable.display(),
                serving.allocator
            )
        }));
        lines
    }
}
