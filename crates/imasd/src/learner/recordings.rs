// SPDX-License-Identifier: Apache-2.0
//! Starts that are recorded: which programs want it, what is offered to their starts, what has ended and waits for its
//! replay.

use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::SYSTEM;
use imas_engine::daemon_status::ReplayState;
use imas_linux::clock::now_unix_s;
use imas_linux::process;
use imas_store::decisions::Decided;
use imas_store::domain::Domain;
use imas_store::recordings::{AskedRecording, BegunRecording, ProgramRecording, RefusedRecording};
use imas_store::{RowId, StoreError};

use super::Learner;
use crate::program_table::TrackedProgram;
use crate::replay::child::{ChildEnd, StopReason};
use crate::replay::offers::{RecordingBounds, RecordingName, RecordingOffers, unsound};
use crate::replay::settings::ReplaySettings;

/// A program with more rounds of trials is answered by these.
const FEW_ROUNDS: u32 = 2;
/// Between two looks at all processes of the machine for one that is still recorded.
const BETWEEN_SCANS: Duration = Duration::from_secs(30);
/// The clock of a recording and ours may differ by this, seconds.
const SLACK_S: f64 = 10.0;

/// What the learner has where starts are recorded.
#[derive(Debug)]
pub(crate) struct Recordings {
    offers: RecordingOffers,
    settings: ReplaySettings,
    scanned: Option<Instant>,
    learned: u64,
    refused: u64,
    /// Programs whose next start is to be recorded, and those whose recording waits, as of the last look.
    asked: usize,
    waiting: usize,
}

impl Learner {
    /// From now on starts are recorded, or no longer.
    pub(crate) fn set_recordings(&mut self, offers: Option<RecordingOffers>) {
        let settings = self.replay_settings().clone();
        self.recordings = offers.map(|offers| Recordings {
            offers,
            settings,
            scanned: None,
            learned: 0,
            refused: 0,
            asked: 0,
            waiting: 0,
        });
        for id in self.programs.ids() {
            if let Some(known) = self.programs.get_mut(id) {
                self.events.changed |= known.recording.take().is_some();
            }
        }
    }

    pub(crate) fn replay_settings(&self) -> &ReplaySettings {
        &self.parts.config.own.replay
    }

    /// Where the recordings are, if starts are recorded.
    pub(crate) fn recording_offers(&self) -> Option<&RecordingOffers> {
        self.recordings.as_ref().map(|recordings| &recordings.offers)
    }

    /// Looks at everything that waits for a start or runs.
    pub(crate) fn look_at_recordings(&mut self) {
        if self.recordings.is_none() || self.installation.is_none() {
            return;
        }
        let looked = self.try_look_at_recordings();
        self.stored(looked);
    }

    fn try_look_at_recordings(&mut self) -> Result<(), StoreError> {
        self.take_up_begun()?;
        self.withdraw_unwanted()?;
        self.ask_where_wanted()?;
        self.offer_recordings()?;
        self.count_recordings()
    }

    fn count_recordings(&mut self) -> Result<(), StoreError> {
        let rows = self.parts.store.get().recordings()?;
        if let Some(recordings) = &mut self.recordings {
            recordings.asked = rows.iter().filter(|row| row.is_asked()).count();
            recordings.waiting = rows.iter().filter(|row| row.waiting().is_some()).count();
        }
        Ok(())
    }

    /// Starts that have taken their recording since the last look, before a restart of imasd too.
    fn take_up_begun(&mut self) -> Result<(), StoreError> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let is_taken = |name: &RecordingName| recordings.offers.is_taken(*name);
        for name in recordings.offers.all().into_iter().filter(is_taken).collect::<Vec<_>>() {
            self.begin(name)?;
        }
        Ok(())
    }

    fn begin(&mut self, name: RecordingName) -> Result<(), StoreError> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let (store, id) = (self.parts.store.get(), name.program);
        let is_asked = store.recording(id)?.is_some_and(|known| known.is_asked());
        let Some(known) = self.programs.get_mut(id).filter(|_| is_asked) else { return Ok(()) };
        let pid = recordings.offers.first_pid(name).unwrap_or(0);
        let begun = BegunRecording {
            at_s: now_unix_s(),
            folder: recordings.offers.path(name).to_string_lossy().into_owned(),
            build_id: known.build_id.clone(),
            pid,
            start_ticks: process::start_ticks(pid).unwrap_or(0),
            boot_id: process::boot_id().unwrap_or_default(),
        };
        if store.begin_recording(id, &begun)? {
            store.record(id, &decided_to_record())?;
            tracing::info!(PROGRAM = %known.program, PID = pid, "its calls are recorded");
        }
        known.recording = None;
        self.events.changed = true;
        Ok(())
    }

    /// Folders that nobody waits for: of programs that were forgotten, of recordings that were taken back.
    fn withdraw_unwanted(&mut self) -> Result<(), StoreError> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let rows = self.parts.store.get().recordings()?;
        for name in recordings.offers.all() {
            let folder = recordings.offers.path(name);
            let is_its = |begun: &BegunRecording| Path::new(&begun.folder) == folder;
            let row = rows.iter().find(|row| row.program == name.program);
            let known = self.programs.get_mut(name.program);
            let is_on_offer = known.as_ref().is_some_and(|known| known.recording == Some(name.token));
            let is_wanted = row.is_some_and(|row| match row.waiting() {
                Some(begun) => is_its(begun),
                None => row.is_asked() && is_on_offer,
            });
            if !is_wanted {
                recordings.offers.remove(&folder);
                if let Some(known) = known.filter(|_| is_on_offer) {
                    known.recording = None;
                    self.events.changed = true;
                }
            }
        }
        Ok(())
    }

    /// Asks for the recording of programs that have their trials before them.
    fn ask_where_wanted(&mut self) -> Result<(), StoreError> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let store = self.parts.store.get();
        let rows = store.recordings()?;
        let mut room = room(&rows, &recordings.settings);
        let is_known = |known: &&TrackedProgram| {
            rows.iter().any(|row| row.program == known.program.id && row.refused.is_none())
        };
        for known in self.programs.all().filter(|known| is_wanted(known)).filter(|known| !is_known(known)) {
            if room == 0 {
                break;
            }
            if store.refused_build(known.program.id)?.as_ref() == Some(&known.build_id) {
                continue;
            }
            let ReplaySettings { most_bytes, window_s, .. } = recordings.settings;
            let asked =
                AskedRecording { at_s: now_unix_s(), limit_bytes: most_bytes, window_s: Some(window_s) };
            store.ask_recording(known.program.id, &asked)?;
            room -= 1;
        }
        Ok(())
    }

    fn offer_recordings(&mut self) -> Result<(), StoreError> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let store = self.parts.store.get();
        for row in store.recordings()?.into_iter().filter(ProgramRecording::is_asked) {
            let Some(known) = self.programs.get_mut(row.program) else { continue };
            let (Some(uid), true) = (user_of(known), known.recording.is_none() && may_be_recorded(known))
            else {
                continue;
            };
            let ReplaySettings { most_bytes, window_s, .. } = recordings.settings;
            store.bound_recording(row.program, most_bytes, window_s)?;
            let bounds = RecordingBounds {
                bytes: row.asked.limit_bytes.min(most_bytes),
                window_s: row.asked.window_s.unwrap_or(window_s).min(window_s),
            };
            let name = RecordingName { token: known.trial.token_before(), program: row.program };
            match recordings.offers.offer(name, uid, bounds) {
                Ok(()) => {
                    known.recording = Some(name.token);
                    self.events.changed = true;
                }
                Err(error) => {
                    tracing::warn!(PROGRAM = %known.program, "it cannot be recorded: {error}");
                    recordings.offers.remove(&recordings.offers.path(name));
                }
            }
        }
        Ok(())
    }

    /// The program whose recording has ended and waits for its replay.
    pub(crate) fn replay_due(&mut self) -> Option<RowId> {
        let rows = self.parts.store.get().recordings();
        let rows = self.stored(rows)?;
        let recordings = self.recordings.as_mut()?;
        let is_due = |row: &&ProgramRecording| {
            let begun = row.waiting().filter(|begun| recordings.offers.owns(Path::new(&begun.folder)));
            begun.is_some_and(|begun| has_ended(row, begun, &mut recordings.scanned))
        };
        let due = rows.iter().find(is_due)?;
        let begun = due.waiting()?;
        match unsound(Path::new(&begun.folder), due.asked.limit_bytes) {
            None => Some(due.program),
            Some(why) => {
                self.refuse(due.program, &why);
                None
            }
        }
    }

    /// A child that replayed has ended.
    pub(crate) fn replayed(&mut self, program: RowId, end: &ChildEnd, limit_s: f64) {
        let row = self.parts.store.get().recording(program);
        let Some(row) = self.stored(row) else { return };
        match (row.as_ref().filter(|row| row.refused.is_none()), end) {
            (Some(_), ChildEnd::Stopped(StopReason::Pressure)) => return, // it is replayed later
            (Some(_), ChildEnd::Stopped(StopReason::TimeLimit)) => {
                self.refuse(program, &format!("its replays took more than {limit_s} s"));
            }
            (Some(_), ChildEnd::Failed(why)) => self.refuse(program, why),
            (Some(_), ChildEnd::Done) => self.refuse(program, "imas learn stored no result"),
            (None, _) => self.note_result(program, row.and_then(|row| row.refused)),
        }
        let removed = self.withdraw_unwanted().and_then(|()| self.count_recordings());
        self.stored(removed);
        self.judge(program);
    }

    fn note_result(&mut self, program: RowId, refused: Option<RefusedRecording>) {
        let Some(recordings) = &mut self.recordings else { return };
        match refused {
            None => {
                recordings.learned += 1;
                tracing::info!(PROGRAM_ID = program, "its recorded run was replayed: its trials test less");
            }
            Some(refused) => {
                recordings.refused += 1;
                tracing::info!(
                    PROGRAM_ID = program,
                    "nothing was learned from its recorded run: {}",
                    refused.why
                );
            }
        }
    }

    fn refuse(&mut self, program: RowId, why: &str) {
        let build_id = self.programs.get(program).map(|known| known.build_id.clone()).unwrap_or_default();
        let refused = RefusedRecording { at_s: now_unix_s(), why: why.to_owned() };
        let stored = self.parts.store.get().refuse_recording(program, &build_id, &refused);
        self.stored(stored);
        self.note_result(program, Some(refused));
    }

    /// For `imas status`; None where nothing is recorded.
    pub(crate) fn replay_state(&self) -> Option<ReplayState> {
        let recordings = self.recordings.as_ref()?;
        let recorder = self.installation.as_ref().and_then(|installation| installation.table.recorder());
        let no_recorder = "the approved catalogue has no recorder: imas system enable approves it";
        Some(ReplayState {
            asked: recordings.asked,
            waiting: recordings.waiting,
            learned: recordings.learned,
            refused: recordings.refused,
            obstacle: recorder.is_none().then(|| no_recorder.to_owned()),
            ..ReplayState::default()
        })
    }
}

/// How many more may be asked for.
fn room(rows: &[ProgramRecording], settings: &ReplaySettings) -> usize {
    settings.most_waiting.saturating_sub(rows.iter().filter(|row| row.refused.is_none()).count())
}

fn may_be_recorded(known: &TrackedProgram) -> bool {
    known.unfit.is_none() && known.executable.is_some() && !known.trial.has_failed()
}

/// Whether a replay would spare the program trials.
fn is_wanted(known: &TrackedProgram) -> bool {
    let adaptive = known.profile.as_ref().and_then(|profile| profile.adaptive.as_ref());
    let is_unknown = adaptive
        .is_some_and(|adaptive| adaptive.board.replay.is_none() && adaptive.board.rounds <= FEW_ROUNDS);
    is_unknown && known.plan.trial().is_some() && may_be_recorded(known) && user_of(known).is_some()
}

/// The user whose next start is recorded: the one whose process was noticed last, where several have the program.
fn user_of(known: &TrackedProgram) -> Option<u32> {
    match known.program.domain {
        Domain::User(uid) => Some(uid),
        Domain::Everybody => known.noticed_uid,
        Domain::Own => None,
    }
}

/// Whether no process writes into the recording any more. All processes of the machine are looked at only once its first
/// one has ended, and now and then.
fn has_ended(row: &ProgramRecording, begun: &BegunRecording, scanned: &mut Option<Instant>) -> bool {
    let is_over = row.asked.window_s.is_some_and(|window_s| now_unix_s() - begun.at_s > window_s + SLACK_S);
    let is_of_this_boot = process::boot_id().is_ok_and(|boot_id| boot_id == begun.boot_id);
    if is_over || !is_of_this_boot {
        return true;
    }
    if process::is_running(begun.pid, begun.start_ticks)
        || scanned.is_some_and(|at| at.elapsed() < BETWEEN_SCANS)
    {
        return false;
    }
    let is_in_use = process::is_in_use(Path::new(&begun.folder));
    *scanned = is_in_use.then(Instant::now);
    !is_in_use
}

fn decided_to_record() -> Decided {
    Decided {
        at_s: now_unix_s(),
        candidate: SYSTEM.to_owned(),
        trial: false,
        begun: None,
        reason: "recorded".to_owned(),
        because: "Its calls were recorded, to be replayed when the machine is idle.".to_owned(),
    }
}
