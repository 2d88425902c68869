// SPDX-License-Identifier: Apache-2.0
//! Finished trial pages into the store. Every `imas` call harvests; nothing has to run in between.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use imas_core::TrialRecord;
use imas_core::hang::Sighting;
use imas_core::sample::Ended;
use imas_engine::candidates::version_served;
use imas_ingest::{Expected, Page, State};
use imas_linux::page;
use imas_store::Store;

use crate::context::Context;
use crate::sighting::{self, Looks};

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

/// Stores every finished page of the folder and removes it. A page leaves the folder only after its sample is committed.
pub(crate) fn harvest(context: &Context, store: &Store, folder: &Path) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let expected =
        Expected { uid: nix::unistd::getuid().as_raw(), now_unix_s: imas_linux::clock::now_unix_s() };
    let mut looks = Looks::default();
    for path in page::list(folder)? {
        match imas_ingest::read_page_file(&path, &expected) {
            Ok(page) if is_finished(&path, &page) => {
                // What the process wrote between the reading and its end counts too.
                let Ok(page) = imas_ingest::read_page_file(&path, &expected) else { continue };
                keep(context, store, &page, sighting::of(&path))?;
                remove(&path)?;
                sighting::forget(&path);
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

/// The same with the user's own folder; trouble is a warning, never an end.
pub(crate) fn harvest_quietly(context: &Context, store: &Store) {
    if context.of_the_system {
        return; // imasd harvests, and only what it has witnessed
    }
    let harvested =
        page::folder().map_err(anyhow::Error::from).and_then(|folder| harvest(context, store, &folder));
    match harvested {
        Ok(harvest) => harvest.damaged.iter().for_each(|line| crate::message::warning(line)),
        Err(error) => crate::message::warning(&format!("finished trials could not be stored: {error:#}")),
    }
}

fn is_finished(path: &Path, page: &Page) -> bool {
    // Between exec and our constructor the page is mapped by nobody, and yet it has all before it.
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

fn keep(context: &Context, store: &Store, page: &Page, seen: Option<Sighting>) -> Result<()> {
    let program = store.program(&page.program, &page.detail)?;
    let mut sample = page.to_sample();
    sample.machine = imas_linux::host::machine_state();
    sample.sighting = seen.filter(|_| !matches!(sample.ended, Ended::Clean { .. }));
    let record = TrialRecord {
        allocator_version: version_served(&context.catalogue, &sample.candidate, &sample.served),
        build_id: page.build_id.clone(),
        retest_s: store.retest_of(&sample.trial_id)?,
        sample,
    };
    store.add_trial(program.id, &record)?;
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
