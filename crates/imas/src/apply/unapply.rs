// SPDX-License-Identifier: Apache-2.0
//! `imas unapply`: the drop-ins of `imas apply`, removed. Shown first; removed only with --write.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::message;

use super::applied::{self, Applied};
use super::{LEFT_ALONE, end_watch, left_alone, root_of, take_effect, unit};
use crate::command_line::service_args::{UnapplyArgs, WriteArgs};
use imas_engine::drop_in::{self, Found};

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
        applied::print(&services)?;
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
