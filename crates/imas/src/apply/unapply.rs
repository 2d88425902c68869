// SPDX-License-Identifier: Apache-2.0
//! `imas unapply`: the drop-ins of `imas apply`, removed. Shown first; removed only with --write.
//!
//! Changes that `imas apply` and `imas unapply` made to each service, or would make: shown as a difference,
//! or as one JSON document.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::{message, output};
use imas_engine::drop_in::{self, Found};
use serde::Serialize;
use serde_json::json;

use super::trim::end_beside_candidate;
use super::{LEFT_ALONE, end_watch, left_alone, root_of, take_effect, unit};
use crate::command_line::service_args::{UnapplyArgs, WriteArgs};

pub(crate) fn unapply(args: &UnapplyArgs) -> Result<ExitCode> {
    let names = match &args.unit {
        Some(word) => vec![unit::full_name(word)?],
        None => applied_units(root_of(&args.how)),
    };
    if names.is_empty() {
        message::say("imas: no service has a drop-in of 'imas apply'");
    }
    let (mut services, mut failed) = (vec![], vec![]);
    for name in &names {
        // One that cannot be taken away does not keep the others there.
        match take_away(name, &args.how) {
            Ok(applied) => services.push(applied),
            Err(error) => failed.push(error),
        }
    }
    let removed: Vec<String> =
        services.iter().filter(|one| one.is_removed()).map(|one| one.unit.clone()).collect();
    if args.how.write && !removed.is_empty() {
        let restarted = take_effect(&removed, &args.how)?;
        services.iter_mut().for_each(|one| one.restarted = restarted.contains(&one.unit));
    }
    if let Some(error) = failed.pop() {
        failed.iter().for_each(message::error);
        return Err(error);
    }
    let is_left_alone = removed.is_empty() || services.iter().any(|one| one.problem.is_some());
    if !args.how.write && !is_left_alone {
        message::say("nothing was removed; to do it: the same with --write");
    }
    if args.how.json.json {
        print_applied(&services)?;
    }
    Ok(if is_left_alone { ExitCode::from(LEFT_ALONE) } else { ExitCode::SUCCESS })
}

/// Removes the drop-in of one service, where that was asked for.
fn take_away(name: &str, how: &WriteArgs) -> Result<Applied> {
    let file = drop_in::path(root_of(how), name);
    drop_in::check_below(root_of(how), &file)?;
    let mut applied = Applied::new(name, None, &file);
    match drop_in::find(&file)? {
        Found::Nothing => message::say(&format!("imas: {name}: nothing was applied")),
        Found::Edited => applied.problem = Some(left_alone(&file)),
        Found::Ours(old) => {
            applied.candidate = drop_in::candidate(&old).map(str::to_owned);
            applied.compare(&old, "");
            applied.show(how.json.json)?;
            end_beside_candidate(name, how, how.write)?;
            if how.write {
                end_watch(name, how);
                drop_in::remove(&file).map_err(drop_in::advised)?;
                applied.written = true;
            }
        }
    }
    Ok(applied)
}

/// The services with a drop-in of that name, by name.
fn applied_units(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("etc/systemd/system")).into_iter().flatten().flatten();
    let with_ours = entries.filter(|entry| entry.path().join(drop_in::NAME).is_file());
    let named =
        with_ours.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".d").map(str::to_owned));
    let mut names: Vec<_> = named.collect();
    names.sort();
    names
}

/// Change of a drop-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DropInChange {
    /// The drop-in is as wished, or left alone.
    None,
    /// A drop-in is added: there was none of ours.
    Add,
    /// Ours is written anew.
    Replace,
    /// Ours is taken away.
    Remove,
}

/// Change of the drop-in of one service.
#[derive(Debug, Serialize)]
pub(crate) struct Applied {
    pub(crate) unit: String,
    /// Candidate of the drop-in that is written or taken away.
    pub(crate) candidate: Option<String>,
    drop_in: PathBuf,
    change: DropInChange,
    /// Change of the drop-in as `diff -u` prints it; empty where nothing changes.
    diff: String,
    /// The file is as `change` says; false: it would be.
    pub(crate) written: bool,
    /// The service is watched for this time.
    pub(crate) watch_s: Option<f64>,
    pub(crate) restarted: bool,
    /// Reason why the drop-in was left alone, or what failed.
    pub(crate) problem: Option<String>,
}

impl Applied {
    /// A service whose drop-in stands there, with nothing done yet.
    pub(crate) fn new(unit: &str, candidate: Option<&str>, drop_in: &Path) -> Self {
        Self {
            unit: unit.to_owned(),
            candidate: candidate.map(str::to_owned),
            drop_in: drop_in.to_owned(),
            change: DropInChange::None,
            diff: String::new(),
            written: false,
            watch_s: None,
            restarted: false,
            problem: None,
        }
    }

    /// The text of the drop-in before and afterwards; empty: there is none.
    pub(crate) fn compare(&mut self, old: &str, new: &str) {
        self.change = match (old.is_empty(), new.is_empty()) {
            (_, true) => DropInChange::Remove,
            (true, false) => DropInChange::Add,
            (false, false) => DropInChange::Replace,
        };
        self.diff = drop_in::unified(&self.drop_in.display().to_string(), old, new);
    }

    /// Prints the difference before anything is done, unless JSON is wanted. A reader that goes away, as in
    /// `| head -1`, keeps nothing from being done.
    pub(crate) fn show(&self, is_json: bool) -> Result<()> {
        let shown = if is_json { Ok(()) } else { output::text(&self.diff) };
        shown.or_else(|error| if message::is_broken_pipe(&error) { Ok(()) } else { Err(error) })
    }

    fn is_removed(&self) -> bool {
        self.change == DropInChange::Remove
    }
}

/// Prints the document.
pub(crate) fn print_applied(services: &[Applied]) -> Result<()> {
    output::json(&json!({ "schema": 1, "services": services }))
}
