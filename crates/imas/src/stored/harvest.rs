// SPDX-License-Identifier: Apache-2.0
//! Finished trial pages into the store. Every start harvests; nothing has to run in between. Commands that
//! only read see the finished pages beside what the store holds, and leave them where they are.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_engine::outside;
use imas_engine::pending::{self, ActivityLooks, PendingView, expected, is_finished, is_young, keep};
use imas_linux::page;
use imas_store::Store;
use serde_json::json;

use crate::command_line::cli::JsonArgs;
use imas_engine::context::Context;

/// Result of a harvest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Harvest {
    /// Trials stored.
    pub(crate) stored: u32,
    /// Processes still running.
    pub(crate) running: u32,
    /// Pages that could not be read and were set aside, with the reason.
    pub(crate) damaged: Vec<String>,
}

/// Stores every finished page of the store and removes it. A page leaves its folder only after its sample is
/// committed.
pub(crate) fn harvest(context: &Context, store: &Store) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let expected = expected();
    let mut looks = ActivityLooks::default();
    for path in page::list(&context.page_folder()?)? {
        match imas_linux::ingest::read_page_file(&path, &expected) {
            Ok(page) if is_finished(&path, &page) => {
                // What the process wrote between the reading and its end counts too.
                let Ok(page) = imas_linux::ingest::read_page_file(&path, &expected) else { continue };
                let Some(page) = outside::with_account(page) else {
                    harvest.running += 1;
                    continue;
                };
                let page = pending::with_kill(&path, page);
                keep(context, store, &page, pending::activity_of(&path))?;
                remove(&path)?;
                outside::forget(&page);
                pending::forget_activity(&path);
                pending::forget_kills(&path);
                harvest.stored += 1;
            }
            Ok(page) => {
                harvest.running += 1;
                looks.at(&path, &page);
            }
            // Another imas took it between listing and reading.
            Err(_) if !path.exists() => {}
            Err(_) if is_young(&path) => harvest.running += 1,
            Err(error) => harvest.damaged.push(set_aside(&path, &error.to_string())?),
        }
    }
    Ok(harvest)
}

/// `imas harvest`: what the next start would do.
pub(crate) fn run(args: JsonArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    let harvest = match context.of_the_system {
        true => Harvest::default(), // imasd harvests
        false => harvest(context, &store)?,
    };
    harvest.damaged.iter().for_each(|line| imas_cli::message::warning(line));
    let Harvest { stored, running, damaged } = harvest;
    match args.json {
        true => imas_cli::output::json(
            &json!({ "schema": 1, "stored": stored, "running": running, "damaged": damaged }),
        )?,
        false => {
            imas_cli::output::text(&format!("trials and starts stored: {stored}; still running: {running}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the store holds and what is still in pages, in memory; nothing is moved or written. A page that
/// cannot be read is a warning.
pub(crate) fn view(context: &Context) -> Result<Store> {
    let view = PendingView::read(context)?;
    view.damaged.iter().for_each(|line| imas_cli::message::warning(line));
    Ok(view.store)
}

/// The harvest before a start: what ended cleanly in production may wait, since it changes nothing.
pub(crate) fn harvest_when_due(context: &Context, store: &Store) {
    if imas_engine::pending::is_harvest_due(&context.page_place()) {
        harvest_quietly(context, store);
    }
}

/// Harvests into the store of the user's own folder. A failure is a warning and ends nothing.
pub(crate) fn harvest_quietly(context: &Context, store: &Store) {
    if context.of_the_system {
        return; // imasd harvests, and only pages whose process it has seen
    }
    match harvest(context, store) {
        Ok(harvest) => harvest.damaged.iter().for_each(|line| imas_cli::message::warning(line)),
        Err(error) => imas_cli::message::warning(&format!("finished trials could not be stored: {error:#}")),
    }
}

/// Removes a page. Another imas may have harvested it at this very moment; the store keeps it once.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn set_aside(path: &Path, why: &str) -> Result<String> {
    let aside = path.with_extension("page.damaged");
    std::fs::rename(path, &aside)?;
    pending::forget_kills(path);
    Ok(format!("a trial page could not be read ({why}); it was kept as {}", aside.display()))
}
