// SPDX-License-Identifier: Apache-2.0
//! Pages of starts that have ended and are not stored yet. Commands that only read see them beside what the
//! store holds, and leave them where they are.

use std::path::Path;
use std::time::Duration;

use crate::context::Context;
use crate::harvest::{StartFacts, record};
use anyhow::Result;
use imas_core::hang::ProcessActivity;
use imas_core::sample::{Ended, PageKind};
use imas_linux::ingest::{ExpectedPage, ParsedPage, State};
use imas_linux::{page, process};
use imas_store::Store;

use crate::{activity, memory_kill, outside};

/// A page younger than this may still be in the making.
const YOUNG: Duration = Duration::from_secs(60);

/// What the store holds and what is still in pages, in memory.
#[derive(Debug)]
pub struct PendingView {
    /// The copy; what is added to it reaches no file.
    pub store: Store,
    /// Pages that cannot be read, with the reason.
    pub damaged: Vec<String>,
}

impl PendingView {
    /// Reads store and pages; nothing is moved or written.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(context: &Context) -> Result<Self> {
        // The pages first: what is stored meanwhile is then there twice, and counts once.
        let pending = match context.of_the_system {
            true => Pending::default(),
            false => Pending::of(&context.page_place()),
        };
        let store = context.view_store()?;
        for (page, seen) in &pending.finished {
            keep(context, &store, page, *seen)?;
        }
        Ok(Self { store, damaged: pending.damaged })
    }
}

/// The pages of a store, as they are.
#[derive(Debug, Default)]
pub struct Pending {
    /// Pages whose process has ended, with what was seen of the process.
    finished: Vec<(ParsedPage, Option<ProcessActivity>)>,
    /// Number of pages that belong to running processes.
    pub running: u32,
    /// Pages that cannot be read, with the reason.
    pub damaged: Vec<String>,
}

impl Pending {
    /// Reads the pages in this folder and changes none. A folder that is not this user's alone has none.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let mut pending = Self::default();
        let expected = expected();
        let pages = page::check_private(folder).and_then(|()| page::list(folder));
        for path in pages.unwrap_or_default() {
            pending.add(&path, &expected);
        }
        pending
    }

    fn add(&mut self, path: &Path, expected: &ExpectedPage) {
        match imas_linux::ingest::read_page_file(path, expected) {
            Ok(page) if is_finished(path, &page) => {
                // What the process wrote between the reading and its end counts too.
                let Ok(page) = imas_linux::ingest::read_page_file(path, expected) else { return };
                match outside::with_account(page) {
                    Some(page) => {
                        self.finished.push((memory_kill::with_kill(path, page), activity::of(path)));
                    }
                    None => self.running += 1,
                }
            }
            Ok(_) => self.running += 1,
            Err(_) if !path.exists() => {}
            Err(_) if is_young(path) => self.running += 1,
            Err(error) => {
                let why = format!("{}: this trial page cannot be read ({error})", path.display());
                self.damaged.push(why);
            }
        }
    }

    /// How many trials and starts are finished.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.finished.len()
    }
}

/// Pages of production starts that ended cleanly are stored when there are as many: they change no decision.
const MOST_UNEVENTFUL: usize = 32;

/// Whether pages of this folder are to be stored now: a trial, a crash or an unexplained death among them changes
/// decisions, a running process is to be observed, or there are many.
#[must_use]
pub fn is_harvest_due(folder: &Path) -> bool {
    let expected = expected();
    let mut uneventful = 0;
    let mut is_one_too_many = || {
        uneventful += 1;
        uneventful >= MOST_UNEVENTFUL
    };
    page::list(folder).unwrap_or_default().into_iter().any(|path| {
        match imas_linux::ingest::read_page_file(&path, &expected) {
            Ok(page) if is_uneventful(&page) => is_one_too_many(),
            Ok(page) if process::is_running(page.pid, page.process_start_ticks) => {
                activity::is_due(&path, &page)
            }
            Ok(page) => match outside::with_account(page) {
                Some(page) if is_uneventful(&page) => is_one_too_many(),
                Some(_) => true,
                None => false,
            },
            Err(_) => path.exists() && !is_young(&path),
        }
    })
}

fn is_uneventful(page: &ParsedPage) -> bool {
    page.kind == PageKind::Flight && matches!(page.ended, Ended::Clean { .. })
}

/// What a page of this user must be.
#[must_use]
pub fn expected() -> ExpectedPage {
    ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: imas_linux::clock::now_unix_s() }
}

/// Whether nothing more will be written into the page.
#[must_use]
pub fn is_finished(path: &Path, page: &ParsedPage) -> bool {
    // Between exec and our constructor no process has mapped the page, though it will be written yet.
    let entered = page.state != State::Armed;
    page::is_finished(path, page.pid, page.process_start_ticks, &page.boot_id, entered)
}

/// Whether the page may still be in the making.
#[must_use]
pub fn is_young(path: &Path) -> bool {
    let made = std::fs::metadata(path).and_then(|about| about.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < YOUNG))
}

/// Stores what the page says; `seen` is what was seen of its process.
///
/// # Errors
/// When the store refuses.
pub fn keep(
    context: &Context,
    store: &Store,
    page: &ParsedPage,
    seen: Option<ProcessActivity>,
) -> Result<()> {
    let program = store.program(&page.program, &page.detail)?;
    let sample = page.clone().of_ended(None).to_sample();
    let facts = StartFacts {
        build_id: page.build_id.clone(),
        retest_s: store.retest_of(&sample.trial_id)?,
        activity: seen,
    };
    store.add_trial(program.id, &record(sample, Some(&context.catalogue), facts))?;
    Ok(())
}
