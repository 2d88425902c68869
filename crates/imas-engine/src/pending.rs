// SPDX-License-Identifier: Apache-2.0
//! Pages of starts: what is noted beside one while its process lives, and those that have ended and are not stored yet.
//! Commands that only read see them beside what the store holds, and leave them where they are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use imas_core::hang::{MIN_THRESHOLD_S, ProcessActivity};
use imas_core::sample::{Ended, PageKind};
use imas_core::{SYSTEM, Sample, TrialRecord};
use imas_linux::catalogue::Catalogue;
use imas_linux::control_group::MemoryKills;
use imas_linux::ingest::{ExpectedPage, ParsedPage, State};
use imas_linux::standstill::{age_s, look};
use imas_linux::{files, page, process};
use imas_store::Store;

use crate::candidates::version_served;
use crate::context::Context;
use crate::outside;

/// A page younger than this may still be in the making.
const YOUNG: Duration = Duration::from_secs(60);

/// Copy in memory of the store, with the samples that are still in pages.
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
                // Counts that the process wrote between the reading and its end matter too.
                let Ok(page) = imas_linux::ingest::read_page_file(path, expected) else { return };
                match outside::with_account(page) {
                    Some(page) => {
                        self.finished.push((with_kill(path, page), activity_of(path)));
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
            Ok(page) if process::is_running(page.pid, page.process_start_ticks) => is_look_due(&path, &page),
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

/// Requirements on a page of this user.
#[must_use]
pub fn expected() -> ExpectedPage {
    ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: imas_linux::host::now_unix_s() }
}

/// Whether nothing more will be written into the page.
#[must_use]
pub fn is_finished(path: &Path, page: &ParsedPage) -> bool {
    // Between exec and our constructor no process has mapped the page, though it will be written yet.
    let entered = page.state != State::Armed;
    page::is_finished(path, page.pid, page.process_start_ticks, &page.boot_id, entered)
        && !has_lost_candidate(path, page)
}

/// Whether the process executed its own file by an instruction of its own, which nothing of ours sees: it goes on without
/// the candidate. Its page stays until its end, so that the loss is shown.
#[must_use]
pub fn has_lost_candidate(path: &Path, page: &ParsedPage) -> bool {
    let is_own_file =
        || process::executable_path(page.pid).is_ok_and(|file| file == Path::new(&page.program));
    page.candidate != SYSTEM
        && matches!(page.state, State::Active | State::Trial)
        && process::is_running(page.pid, page.process_start_ticks)
        && !process::maps(page.pid, path).unwrap_or(true)
        && is_own_file()
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
    store.add_trial(program.id, &record_of(sample, Some(&context.catalogue), facts))?;
    Ok(())
}

// From the trial page of a process to the record that the store keeps, and what is seen of a process while
// it lives.

/// The next look at a process comes when its age is this multiple of its age at the last one: an old service
/// is hardly ever looked at.
const LATER: f64 = 1.2;

/// Facts about a start beside its page.
#[derive(Debug, Clone, Default)]
pub struct StartFacts {
    /// Build-id of the executable that ran.
    pub build_id: String,
    /// The waiting time between tests that was in force when the trial was decided, seconds.
    pub retest_s: Option<f64>,
    /// Activity of the process that was seen while it lived.
    pub activity: Option<ProcessActivity>,
}

/// The record of a start, from the sample of its page. Without a catalogue, the version that served is not
/// known.
#[must_use]
pub fn record_of(mut sample: Sample, catalogue: Option<&Catalogue>, facts: StartFacts) -> TrialRecord {
    sample.machine = imas_linux::host::machine_state();
    // A process that ended by itself did not hang.
    sample.activity = facts.activity.filter(|_| !matches!(sample.ended, Ended::Clean { .. }));
    let version = catalogue.map(|catalogue| version_served(catalogue, &sample.candidate, &sample.served));
    TrialRecord {
        allocator_version: version.unwrap_or_default(),
        build_id: facts.build_id,
        retest_s: facts.retest_s,
        sample,
    }
}

/// Whether a running process that was started under the candidate is to be looked at: a hang shows in nothing
/// else ([`imas_core::hang`]). `first` is the share of the least time of a hang after which the first look
/// comes; `earlier` is what was seen before.
#[must_use]
pub fn look_is_due(candidate: &str, age_s: f64, first: f64, earlier: Option<ProcessActivity>) -> bool {
    let due_s = earlier.map_or(first * MIN_THRESHOLD_S, |seen| LATER * seen.lived_s);
    candidate != SYSTEM && age_s >= due_s
}

// Whether the kernel killed a process for want of memory: its page shows that it was killed, and not by whom.
//
// A start in a control group with a limit notes how many kills the group has counted, in a file beside its page. If
// the process was killed, and the group has counted more by the time of the harvest, it counts as killed at the limit.
// So does one that a user killed, or that became another program by exec, where the kernel has killed a process of the
// group in that time.

/// Bytes of a note: a path and a number.
const MOST_KILL_BYTES: usize = 8192;

/// Notes the kills until now beside the page of a start.
pub fn note_kills(page: &Path) {
    if let Some(text) = MemoryKills::now().and_then(|kills| serde_json::to_string(&kills).ok()) {
        let _ = std::fs::write(beside_kills(page), text); // without the note, such an end is unknown
    }
}

/// The page of an ended process, which says so if the kernel killed that for want of memory.
#[must_use]
pub fn with_kill(path: &Path, mut page: ParsedPage) -> ParsedPage {
    let has_ended = !process::is_running(page.pid, page.process_start_ticks);
    if page.ended == Ended::Unknown && has_ended && shows_kill(path) {
        page.ended = Ended::OutOfMemory;
    }
    page
}

/// Removes the note of a page that is no longer there.
pub fn forget_kills(page: &Path) {
    let _ = std::fs::remove_file(beside_kills(page)); // mostly there is none
}

fn shows_kill(page: &Path) -> bool {
    let bytes = files::read_plain(&beside_kills(page), MOST_KILL_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).is_ok_and(|kills: MemoryKills| kills.have_grown())
}

fn beside_kills(page: &Path) -> PathBuf {
    page.with_extension("kills")
}

// Observes the running processes that have a page, at each call of `imas`. Only these observations show a hang
// ([`imas_core::hang`]): the page of a killed process has no trace of it.
//
// The last observation is kept in a file beside the page until the page is harvested.

/// A process is first observed at this share of the least time of a hang.
const FIRST_LOOK: f64 = 0.5;
/// Most observations of one call: each takes some 0.1 ms.
const MOST_LOOKS: usize = 8;
/// Bytes of an observation.
const MOST_ACTIVITY_BYTES: usize = 4096;

/// The observations of one call.
#[derive(Debug, Default)]
pub struct ActivityLooks {
    made: usize,
}

impl ActivityLooks {
    /// Observes the running process of the page, unless that was done shortly before.
    pub fn at(&mut self, path: &Path, page: &ParsedPage) {
        if self.made >= MOST_LOOKS || !is_look_due(path, page) {
            return;
        }
        self.made += 1;
        let earlier = activity_of(path);
        let seen =
            look(page.pid, page.process_start_ticks).map(|now| ProcessActivity::following(earlier, now));
        let text = seen.and_then(|seen| serde_json::to_string(&seen).ok());
        if let Some(text) = text {
            let _ = std::fs::write(activity_beside(path), text); // without the file, it counts as never observed
        }
    }
}

/// Whether the running process of the page is to be observed now.
pub(crate) fn is_look_due(path: &Path, page: &ParsedPage) -> bool {
    let age_s = age_s(page.process_start_ticks).unwrap_or(0.0);
    // The file beside the page is read only for a process that is old enough.
    look_is_due(&page.candidate, age_s, FIRST_LOOK, None)
        && look_is_due(&page.candidate, age_s, FIRST_LOOK, activity_of(path))
}

/// The last observation of the page's process, if any.
pub fn activity_of(path: &Path) -> Option<ProcessActivity> {
    serde_json::from_slice(&files::read_plain(&activity_beside(path), MOST_ACTIVITY_BYTES).ok()?).ok()
}

/// Removes the observation of a page that was stored.
pub fn forget_activity(path: &Path) {
    let _ = std::fs::remove_file(activity_beside(path)); // mostly there is none
}

fn activity_beside(path: &Path) -> PathBuf {
    path.with_extension("seen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_by_itself_did_not_hang() {
        let seen = ProcessActivity { lived_s: 60.0, ..ProcessActivity::default() };
        let facts = StartFacts { activity: Some(seen), ..StartFacts::default() };
        let of =
            |ended| record_of(Sample { ended, ..Sample::default() }, None, facts.clone()).sample.activity;
        assert_eq!(of(Ended::Clean { status: Some(0) }), None);
        assert_eq!(of(Ended::Unknown), Some(seen));
    }

    #[test]
    fn observations_of_one_process_become_rarer() {
        let seen = |lived_s| Some(ProcessActivity { lived_s, ..ProcessActivity::default() });
        assert!(look_is_due("jemalloc", 0.5 * MIN_THRESHOLD_S, 0.5, None));
        assert!(!look_is_due("jemalloc", 0.4 * MIN_THRESHOLD_S, 0.5, None));
        assert!(!look_is_due(SYSTEM, 1e6, 0.5, None), "it is the reference");
        assert!(!look_is_due("jemalloc", 1100.0, 0.5, seen(1000.0)));
        assert!(look_is_due("jemalloc", 1200.0, 0.5, seen(1000.0)));
    }

    #[test]
    fn more_kills_than_at_the_start_show() {
        let folder = tempfile::tempdir().unwrap();
        let (page, events) = (folder.path().join("a.page"), folder.path().join("memory.events"));
        std::fs::write(&events, "oom_kill 7\n").unwrap();
        let noted = |count: u32| {
            let note = serde_json::json!({ "file": events, "count": count });
            std::fs::write(beside_kills(&page), note.to_string()).unwrap();
            shows_kill(&page)
        };
        assert!(!shows_kill(&page), "nothing was noted");
        assert!(noted(6) && !noted(7) && !noted(8));
        std::fs::write(beside_kills(&page), "{ no note").unwrap();
        assert!(!shows_kill(&page));
        forget_kills(&page);
        assert!(!beside_kills(&page).exists());
    }
}
