// SPDX-License-Identifier: Apache-2.0
//! `imas status`: what the daemon does, what it knows, what really serves in the processes that run now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_core::quarantine::Quarantine;
use imas_engine::daemon_status::daemon;
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::Index;
use imas_linux::process;
use imas_store::Store;
use imas_store::daemon::Disabled;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::{RulesArgs, StatusArgs};
use crate::context::Context;
use crate::output;

/// Exit status for "the daemon does not run".
const NOT_RUNNING: u8 = 1;

/// One known program, as it is decided now.
#[derive(Debug, Serialize)]
struct Line {
    number: i64,
    program: String,
    domain: String,
    trials: usize,
    /// Candidate of the next start that is no trial.
    next: String,
    /// Candidate of the trial on offer.
    trial: Option<String>,
    quarantined: Vec<String>,
    /// Those of them under which it hung.
    hung: Vec<String>,
    reason: String,
}

impl Line {
    /// A quarantined candidate, with the reason where it is not a crash.
    fn remark(&self, name: &String) -> String {
        if self.hung.contains(name) { format!("{name} (hung)") } else { name.clone() }
    }
}

/// A program that imasd leaves alone.
#[derive(Debug, Serialize, Deserialize)]
struct Ineligible {
    path: String,
    /// `everybody` or the uid.
    domain: String,
    reason: String,
}

/// What really serves, from /proc.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Serving {
    executable: PathBuf,
    allocator: String,
    trial: bool,
}

pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<ExitCode> {
    let daemon = daemon(&args.run_dir);
    let store = Store::open_read_only(&context.store_path).ok();
    let published = published(&args.run_dir);
    let programs = store.as_ref().map_or_else(|| Ok(vec![]), |store| lines(context, store, &published))?;
    let disabled = store.as_ref().map_or_else(|| Ok(vec![]), Store::disabled)?;
    let serving = serving(context);
    let ineligible = ineligible(&args.run_dir);
    let aside = standing_aside(&args.run_dir);
    let runs = daemon.is_some();
    if args.json.json {
        output::json(&as_json(
            daemon.as_ref(),
            aside.as_deref(),
            &programs,
            &disabled,
            &serving,
            &ineligible,
        ))?;
    } else {
        let page = page(daemon.as_ref(), aside.as_deref(), &programs, &disabled, &serving);
        output::text(&(page + &left_alone(&ineligible)))?;
    }
    Ok(if runs { ExitCode::SUCCESS } else { ExitCode::from(NOT_RUNNING) })
}

/// Programs that imasd leaves alone, as far as it has written them down; nothing for others than root, who may not read it.
fn ineligible(run_dir: &Path) -> Vec<Ineligible> {
    let text = std::fs::read(run_dir.join("state/ineligible.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn left_alone(ineligible: &[Ineligible]) -> String {
    if ineligible.is_empty() {
        return String::new();
    }
    let rows = ineligible.iter().map(|one| vec![one.path.clone(), one.domain.clone(), one.reason.clone()]);
    format!("\n\n{}", imas_report::table::plain(&["left alone", "of", "because"], rows))
}

/// Why no program would go by the index now, though one is there.
fn standing_aside(run_dir: &Path) -> Option<String> {
    if run_dir.join("disabled").exists() {
        return Some(format!("{0} exists; to go on: rm {0}", run_dir.join("disabled").display()));
    }
    if is_full(&run_dir.join("state/u")) {
        return Some(
            "the place for programs' pages, state/u, is full; 'du' there says whose they are".to_owned(),
        );
    }
    let index = Index::read(&run_dir.join("state/index")).ok()?;
    let facts = index.facts();
    if facts.disabled {
        return Some("the daemon has set its index out of use".to_owned());
    }
    let boot_id = process::boot_id().ok()?;
    if facts.boot_id != boot_id {
        return Some(format!(
            "the index is of boot {}, and programs see boot {boot_id}; to mend it: imas system boot",
            facts.boot_id
        ));
    }
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok()?;
    let other = "the index is of another catalogue than the approved one; imasd mends it within seconds";
    (table.id() != facts.catalogue_id).then(|| other.to_owned())
}

fn is_full(folder: &Path) -> bool {
    let room = nix::sys::statvfs::statvfs(folder);
    room.is_ok_and(|room| room.blocks_available() == 0 || (room.files() > 0 && room.files_available() == 0))
}

/// By the daemon's number of the program: candidate in production, candidate on trial.
fn published(run_dir: &Path) -> BTreeMap<u64, (String, Option<String>)> {
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok();
    let index = Index::read(&run_dir.join("state/index")).ok();
    let (Some(table), Some(index)) = (table, index) else { return BTreeMap::new() };
    let names: BTreeMap<u16, String> = table.names().collect();
    let name = |id: u16| names.get(&id).cloned().unwrap_or_else(|| "system".to_owned());
    let of_entry = |entry: &imas_abi::IndexEntry| {
        let trial = (entry.trial_candidate != 0).then(|| name(entry.trial_candidate));
        (entry.program_id, (name(entry.candidate), trial))
    };
    index.entries().map(of_entry).collect()
}

fn lines(
    context: &Context,
    store: &Store,
    published: &BTreeMap<u64, (String, Option<String>)>,
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for program in store.programs()? {
        let state = crate::show::state(context, store, program, &RulesArgs::of_environment())?;
        let program = &state.known.program;
        let entry = u64::try_from(program.id).ok().and_then(|id| published.get(&id));
        let quarantined = state.profile.candidates.iter().filter(|view| view.quarantine.is_some());
        lines.push(Line {
            number: program.id,
            program: program.to_string(),
            domain: program.domain.word(),
            trials: state.known.records.len(),
            next: entry.map_or_else(|| "system".to_owned(), |(next, _)| next.clone()),
            trial: entry.and_then(|(_, trial)| trial.clone()),
            hung: quarantined
                .clone()
                .filter(|view| view.quarantine.as_ref().is_some_and(Quarantine::is_hang))
                .map(|view| view.name.clone())
                .collect(),
            quarantined: quarantined.map(|view| view.name.clone()).collect(),
            reason: state.decision.reason.id().to_owned(),
        });
    }
    Ok(lines)
}

/// Processes under another allocator: executable, allocator and how many, by what they have mapped.
fn serving(context: &Context) -> BTreeMap<Serving, usize> {
    let mut serving = BTreeMap::new();
    for pid in process::pids().unwrap_or_default() {
        let Ok((executable, files)) = process::mapped_files(pid) else { continue };
        let named = |name: &str| files.iter().any(|file| file.file_name().is_some_and(|file| file == name));
        let (guard, hook) = (named("libimas-guard.so"), named("libimas.so"));
        if !guard && !hook {
            continue;
        }
        let libraries = context.catalogue.candidates().iter();
        let found = libraries
            .filter(|candidate| candidate.library.as_ref().is_some_and(|library| files.contains(library)))
            .map(|candidate| candidate.allocator.clone())
            .next();
        let allocator = found.unwrap_or_else(|| "system".to_owned());
        *serving.entry(Serving { executable, allocator, trial: hook }).or_default() += 1;
    }
    serving
}

fn as_json(
    daemon: Option<&Value>,
    aside: Option<&str>,
    programs: &[Line],
    disabled: &[Disabled],
    serving: &BTreeMap<Serving, usize>,
    ineligible: &[Ineligible],
) -> Value {
    let serving: Vec<_> = serving
        .iter()
        .map(|(s, processes)| {
            json!({ "executable": s.executable, "allocator": s.allocator, "trial": s.trial, "processes": processes })
        })
        .collect();
    json!({
        "schema": 1,
        "running": daemon.is_some(),
        "daemon": daemon,
        "standing_aside": aside,
        "programs": programs,
        "disabled": disabled,
        "serving": serving,
        "ineligible": ineligible,
    })
}

fn page(
    daemon: Option<&Value>,
    aside: Option<&str>,
    programs: &[Line],
    disabled: &[Disabled],
    serving: &BTreeMap<Serving, usize>,
) -> String {
    let mut text = match daemon {
        None => "imasd does not run: programs start as last decided, nothing is learned.\n\
                 to start it: systemctl start imasd"
            .to_owned(),
        Some(status) => headline(status),
    };
    if let Some(why) = aside {
        text.push_str(&format!("\nEvery program stands aside: {why}"));
    }
    for disabled in disabled {
        text.push_str(&format!(
            "\n{} is out of use everywhere: {}\n  to give it back: imas lift --system {}",
            disabled.allocator, disabled.why, disabled.allocator
        ));
    }
    let rows = programs.iter().map(|line| {
        let trial = line.trial.as_ref().map(|trial| format!("trial of {trial}"));
        vec![
            line.number.to_string(),
            line.program.clone(),
            line.trials.to_string(),
            line.next.clone(),
            trial.unwrap_or_default(),
            line.quarantined.iter().map(|name| line.remark(name)).collect::<Vec<_>>().join(", "),
        ]
    });
    if !programs.is_empty() {
        let head = ["number", "program", "trials", "starts under", "on offer", "quarantined"];
        text.push_str(&format!("\n\n{}", imas_report::table::plain(&head, rows)));
    }
    let rows = serving.iter().map(|(serving, processes)| {
        let kind = if serving.trial { "trial" } else { "production" };
        vec![
            serving.executable.display().to_string(),
            serving.allocator.clone(),
            kind.to_owned(),
            processes.to_string(),
        ]
    });
    if !serving.is_empty() {
        let head = ["running now", "served by", "", "processes"];
        text.push_str(&format!("\n\n{}", imas_report::table::plain(&head, rows)));
    }
    text
}

fn headline(status: &Value) -> String {
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let mut text = format!(
        "imasd runs (process {}): {} programs, {} trials on offer, {} under way, {} placed processes watched.",
        number("pid"),
        number("programs"),
        number("trials_offered"),
        number("trials_running"),
        number("flights_watched")
    );
    if let Some(why) = status["emergency"].as_str() {
        text.push_str(&format!(
            "\nEMERGENCY: {}; every program starts untouched. To end it: imas system enable",
            why.trim_end()
        ));
    }
    let counters = status["counters"].as_object().into_iter().flatten();
    let counters: Vec<_> = counters
        .filter(|(_, value)| value.as_u64().is_some_and(|count| count > 0))
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    if !counters.is_empty() {
        text.push_str(&format!("\nsince its start: {}", counters.join(", ")));
    }
    text
}
