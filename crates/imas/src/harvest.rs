// SPDX-License-Identifier: Apache-2.0
//! Finished trial pages into the store. Every start harvests; nothing has to run in between. Commands that
//! only read see the finished pages beside what the store holds, and leave them where they are.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use imas_core::hang::ProcessActivity;
use imas_engine::harvest::{StartFacts, record};
use imas_ingest::{ExpectedPage, ParsedPage, State};
use imas_linux::page;
use imas_store::Store;
use serde_json::json;

use crate::activity::{self, Looks};
use crate::cli::JsonArgs;
use crate::context::Context;

/// What a harvest brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Harvest {
    /// Trials stored.
    pub(crate) stored: u32,
    /// Processes still running.
    pub(crate) running: u32,
    /// Pages that could not be read and were set aside, with the reason.
    pub(crate) damaged: Vec<String>,
}

/// A page younger than this may still be in the making.
const YOUNG: Duration = Duration::from_secs(60);

/// Stores every finished page of the folder and removes it. A page leaves the folder only after its sample is
/// committed.
pub(crate) fn harvest(context: &Context, store: &Store, folder: &Path) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let expected = expected();
    let mut looks = Looks::default();
    for path in page::list(folder)? {
        match imas_ingest::read_page_file(&path, &expected) {
            Ok(page) if is_finished(&path, &page) => {
                // What the process wrote between the reading and its end counts too.
                let Ok(page) = imas_ingest::read_page_file(&path, &expected) else { continue };
                keep(context, store, &page, activity::of(&path))?;
                remove(&path)?;
                activity::forget(&path);
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
        false => harvest(context, &store, &context.page_folder()?)?,
    };
    harvest.damaged.iter().for_each(|line| crate::message::warning(line));
    let Harvest { stored, running, damaged } = harvest;
    match args.json {
        true => crate::output::json(
            &json!({ "schema": 1, "stored": stored, "running": running, "damaged": damaged }),
        )?,
        false => {
            crate::output::text(&format!("trials and starts stored: {stored}; still running: {running}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the store holds and what is still in pages, in memory; nothing is moved or written. A page that
/// cannot be read is a warning.
pub(crate) fn view(context: &Context) -> Result<Store> {
    // The pages first: what is stored meanwhile is then there twice, and counts once.
    let pending = if context.of_the_system { Pending::default() } else { pending(&context.page_place()) };
    pending.damaged.iter().for_each(|line| crate::message::warning(line));
    let store = context.view_store()?;
    for (page, seen) in &pending.finished {
        keep(context, &store, page, *seen)?;
    }
    Ok(store)
}

/// The pages of a folder, as they are.
#[derive(Default)]
pub(crate) struct Pending {
    /// Those whose process has ended, with what was seen of it.
    finished: Vec<(ParsedPage, Option<ProcessActivity>)>,
    /// How many belong to running processes.
    pub(crate) running: u32,
    /// Those that cannot be read, with the reason.
    pub(crate) damaged: Vec<String>,
}

impl Pending {
    /// How many trials and starts are finished.
    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }
}

/// Reads the pages and changes none. Without a folder of this user's alone there are none.
pub(crate) fn pending(folder: &Path) -> Pending {
    let mut pending = Pending::default();
    let expected = expected();
    let pages = page::check_private(folder).and_then(|()| page::list(folder)).unwrap_or_default();
    for path in pages {
        match imas_ingest::read_page_file(&path, &expected) {
            Ok(page) if is_finished(&path, &page) => {
                let Ok(page) = imas_ingest::read_page_file(&path, &expected) else { continue };
                pending.finished.push((page, activity::of(&path)));
            }
            Ok(_) => pending.running += 1,
            Err(_) if !path.exists() => {}
            Err(_) if is_young(&path) => pending.running += 1,
            Err(error) => {
                pending.damaged.push(format!("{}: this trial page cannot be read ({error})", path.display()));
            }
        }
    }
    pending
}

fn expected() -> ExpectedPage {
    ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: imas_linux::clock::now_unix_s() }
}

/// The same with the user's own folder; a failure is a warning and ends nothing.
pub(crate) fn harvest_quietly(context: &Context, store: &Store) {
    if context.of_the_system {
        return; // imasd harvests, and only pages whose process it has seen
    }
    let harvested = context
        .page_folder()
        .map_err(anyhow::Error::from)
        .and_then(|folder| harvest(context, store, &folder));
    match harvested {
        Ok(harvest) => harvest.damaged.iter().for_each(|line| crate::message::warning(line)),
        Err(error) => crate::message::warning(&format!("finished trials could not be stored: {error:#}")),
    }
}

fn is_finished(path: &Path, page: &ParsedPage) -> bool {
    // Between exec and our constructor no process has mapped the page, though it will be written yet.
    let entered = page.state != State::Armed;
    page::is_finished(path, page.pid, page.process_start_ticks, &page.boot_id, entered)
}

/// Another imas may have harvested the same page at this very moment; the store keeps it once.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn keep(context: &Context, store: &Store, page: &ParsedPage, seen: Option<ProcessActivity>) -> Result<()> {
    let program = store.program(&page.program, &page.detail)?;
    let sample = page.to_sample();
    let facts = StartFacts {
        build_id: page.build_id.clone(),
        retest_s: store.retest_of(&sample.trial_id)?,
        activity: seen,
    };
    store.add_trial(program.id, &record(sample, Some(&context.catalogue), facts))?;
    Ok(())
}

fn is_young(path: &Path) -> bool {
    let made = std::fs::metadata(path).and_then(|about| about.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < YOUNG))
}

fn set_aside(path: &Path, why: &str) -> Result<String> {
    let aside = path.with_extension("page.damaged");
    std::fs::rename(path, &aside)?;
    Ok(format!("a trial page could not be read ({why}); it was kept as {}", aside.display()))
}
