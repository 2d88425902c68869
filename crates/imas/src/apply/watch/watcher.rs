// SPDX-License-Identifier: Apache-2.0
//! The loop that watches one unit and, if necessary, takes the change back.
//!
//! Takes the change of a unit back. Every step may be repeated: a watcher that was interrupted does it again.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use imas_cli::format::span;
use imas_cli::message;
use imas_core::stats::median;
use imas_engine::drop_in::{self, Found};
use imas_linux::host::now_unix_s;

use super::figures::{self, After, GoingBack, MemoryPoint, Outcome, UnitState, WatchRecord};
use super::judge;
use crate::apply::reached;
use crate::apply::unit::{Unit, systemctl};

/// Most failures come within this time after the start. Meanwhile the pauses are the shortest.
const FIRST_S: f64 = 300.0;
const SHORTEST_PAUSE_S: f64 = 1.0;
const LONGEST_PAUSE_S: f64 = 10.0;
/// Number of looks in a window.
const LOOKS: f64 = 5.0;

const BEFORE_NEXT_STORE: Duration = Duration::from_secs(30);

/// One watch.
struct Watcher {
    record: WatchRecord,
    /// Memory at each look of the present window.
    window: Vec<f64>,
    window_ends_s: f64,
    /// Time when the present life was first seen starting.
    starting_since: Option<Instant>,
}

/// Watches the unit until the end of the watch.
///
/// # Errors
/// When it has no record, or the change cannot be taken back.
pub(super) fn watch(unit: &str) -> Result<ExitCode> {
    let record = WatchRecord::read(&figures::file(unit))?;
    if record.outcome.is_some() {
        super::forget_unit(unit);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(decided) = record.going_back.clone() {
        return Watcher::of(record).go_back(decided);
    }
    let mut watcher = Watcher::of(record);
    watcher.restart_unit()?;
    let outcome = watcher.look_until_it_is_known();
    watcher.finish(outcome)
}

impl Watcher {
    fn of(record: WatchRecord) -> Self {
        let mut watcher = Self { record, window: Vec::new(), window_ends_s: 0.0, starting_since: None };
        watcher.window_ends_s = watcher.watched_s() + judge::window_s(watcher.record.watch_s);
        watcher
    }

    /// Restarts the unit under the candidate, unless it has another life already. Nothing needs to be stored
    /// before: a further process of this watcher sees the new life. A unit that an operator stopped meanwhile
    /// is not started.
    fn restart_unit(&mut self) -> Result<()> {
        if self.record.after.is_restarted {
            return Ok(());
        }
        let unit = self.record.unit.clone();
        let replaced = self.record.after.replaced_life.clone();
        if UnitState::now(&unit)?.life() == replaced {
            // The start may hang under the candidate, so nobody waits for its end. A failed restart is an
            // observation of the watch, not an error of the watcher.
            if let Err(error) = systemctl(&["try-restart", "--no-block", "--", &unit]) {
                message::say(&format!("imas: {error:#}"));
            }
            if !until_replaced(&unit, &replaced, || self.is_applied())? {
                anyhow::bail!("{unit}: its process does not end");
            }
        }
        self.record.after.is_restarted = true;
        self.record.begun_unix_s = now_unix_s();
        self.window_ends_s = judge::window_s(self.record.watch_s);
        self.store();
        Ok(())
    }

    /// Without space in /var the watch goes on: to take a bad change back matters more than the record.
    fn store(&self) -> bool {
        self.record.write().inspect_err(|error| message::say(&format!("imas: {error:#}"))).is_ok()
    }

    fn watched_s(&self) -> f64 {
        (now_unix_s() - self.record.begun_unix_s).max(0.0)
    }

    fn look_until_it_is_known(&mut self) -> Outcome {
        loop {
            if let Err(error) = self.look() {
                message::say(&format!("imas: {error:#}"));
            }
            let watched_s = self.watched_s();
            if !self.is_applied() {
                return self.outcome(
                    true,
                    "the drop-in was changed by another program or user: no longer watched".into(),
                );
            }
            if let Some(why) = judge::reason_to_go_back(&self.record, watched_s) {
                return self.outcome(false, why);
            }
            if watched_s >= self.record.watch_s {
                return self.outcome(true, format!("kept: {}", judge::gains(&self.record)));
            }
            std::thread::sleep(self.pause(watched_s));
        }
    }

    fn pause(&self, watched_s: f64) -> Duration {
        let usual = judge::window_s(self.record.watch_s) / LOOKS;
        let longest = if watched_s < FIRST_S { SHORTEST_PAUSE_S } else { LONGEST_PAUSE_S };
        let left = (self.record.watch_s - watched_s).max(0.1);
        Duration::from_secs_f64(usual.clamp(SHORTEST_PAUSE_S, longest).min(left))
    }

    fn outcome(&self, kept: bool, why: String) -> Outcome {
        let why = if kept { why } else { format!("went back: {why}") };
        Outcome { kept, at_unix_s: now_unix_s(), why }
    }

    fn is_applied(&self) -> bool {
        matches!(drop_in::find(&self.drop_in()), Ok(Found::Ours(now)) if now == self.record.drop_in_applied)
    }

    fn drop_in(&self) -> std::path::PathBuf {
        drop_in::path(std::path::Path::new("/"), &self.record.unit)
    }

    fn look(&mut self) -> Result<()> {
        let state = UnitState::now(&self.record.unit)?;
        if state.life() != self.record.after.life {
            self.another_life(&state);
        }
        self.look_at_start(&state);
        if !state.is_running() {
            self.count_failures(&state);
        }
        self.record.after.down = state.down().filter(|_| !self.was_stopped(&state));
        let Some(group) = state.group().filter(|_| state.is_running()) else { return Ok(()) };
        let after = &mut self.record.after;
        count_kills(after, group.oom_kills());
        after.age_s = state.age_s();
        self.window.extend(group.memory().map(|bytes| bytes as f64));
        if self.watched_s() >= self.window_ends_s {
            self.end_window(&state, group.cpu_s());
            self.record.write()?;
        }
        Ok(())
    }

    /// The unit was restarted: by this watcher, by systemd after a failure, or by a user.
    fn another_life(&mut self, state: &UnitState) {
        self.record.after.life = state.life().to_owned();
        self.record.after.kills_of_group = 0;
        self.window.clear();
        self.starting_since = None;
        self.window_ends_s = self.watched_s() + judge::window_s(self.record.watch_s);
        self.count_failures(state);
    }

    fn look_at_start(&mut self, state: &UnitState) {
        self.starting_since = state.is_starting().then(|| self.starting_since.unwrap_or_else(Instant::now));
        self.record.after.starting_s = self.starting_since.map_or(0.0, |since| since.elapsed().as_secs_f64());
    }

    fn count_failures(&mut self, state: &UnitState) {
        let failures = figures::failures(
            &self.record.unit,
            self.record.after.since_unix_s,
            &self.record.after.replaced_life,
        );
        self.record.after.failures = failures.unwrap_or_else(|| state.restarts());
    }

    fn was_stopped(&self, state: &UnitState) -> bool {
        state.has_failed()
            && figures::was_stopped(&self.record.unit, self.record.after.since_unix_s, state.life())
    }

    fn end_window(&mut self, state: &UnitState, cpu_s: Option<f64>) {
        let window_s = judge::window_s(self.record.watch_s);
        let least = self.window.iter().copied().reduce(f64::min);
        let after = &mut self.record.after;
        (after.cpu_s, after.age_s) = (cpu_s, state.age_s());
        if let (Some(bytes), Some(least)) = (median(&self.window), least) {
            let point = MemoryPoint {
                age_s: after.age_s,
                bytes: figures::whole(bytes),
                least_bytes: figures::whole(least),
            };
            after.points.push(point);
        }
        if let Some(done) = self.record.work.as_deref().and_then(figures::work_done) {
            let pair = [done, cpu_s.unwrap_or(0.0)];
            let is_anew = after.work_last.is_none_or(|last| done < last[0]);
            if is_anew {
                after.work_first = Some(pair);
            }
            after.work_last = Some(pair);
        }
        self.look_whether_it_serves();
        self.window.clear();
        self.window_ends_s = self.watched_s() + window_s;
    }

    fn look_whether_it_serves(&mut self) {
        let preload = drop_in::preload(&self.record.drop_in_applied);
        let look = |preload: &str| reached::unserved(&Unit::read(&self.record.unit, None).ok()?, preload);
        let unserved = preload.and_then(look);
        let after = &mut self.record.after;
        after.unserved = unserved;
        after.unserved_windows = if after.unserved.is_some() { after.unserved_windows + 1 } else { 0 };
    }

    fn finish(mut self, outcome: Outcome) -> Result<ExitCode> {
        if outcome.kept {
            return self.end(outcome);
        }
        let decided = GoingBack { outcome, life: self.record.after.life.clone() };
        self.record.going_back = Some(decided.clone());
        self.store();
        self.go_back(decided)
    }

    /// Ends with an error where the change could not be taken back: systemd starts another process of the
    /// watcher, which tries again.
    fn go_back(self, decided: GoingBack) -> Result<ExitCode> {
        let unit = &self.record.unit;
        if is_of_somebody_else(&self.record, drop_in::find(&self.drop_in())?) {
            let why = "the drop-in was changed by another program or user: no longer watched";
            let outcome = self.outcome(true, why.to_owned());
            return self.end(outcome);
        }
        take_back(&self.record, &decided.life)
            .with_context(|| format!("{unit}: the change could not be taken back"))?;
        self.end(decided.outcome)
    }

    /// Stores the outcome. Until there is space for it, this process waits: another one would not know it.
    fn end(mut self, outcome: Outcome) -> Result<ExitCode> {
        let (unit, candidate) = (self.record.unit.clone(), self.record.candidate.clone());
        let after_s = span(outcome.at_unix_s - self.record.begun_unix_s);
        message::say(&format!("imas: {unit}: {candidate}, after {after_s}: {}", outcome.why));
        self.record.going_back = None;
        self.record.outcome = Some(outcome);
        while !self.store() {
            std::thread::sleep(BEFORE_NEXT_STORE);
        }
        super::forget_unit(&unit);
        Ok(ExitCode::SUCCESS)
    }
}

/// Adds the kills since the last look, which an earlier process of the watcher may have made.
fn count_kills(after: &mut After, kills_of_group: u32) {
    after.oom_kills += kills_of_group.saturating_sub(after.kills_of_group);
    after.kills_of_group = kills_of_group;
}

/// Whether the drop-in is neither what was applied nor what was there before.
fn is_of_somebody_else(record: &WatchRecord, found: Found) -> bool {
    match found {
        Found::Edited => true,
        Found::Nothing => !record.drop_in_before.is_empty(),
        Found::Ours(now) => now != record.drop_in_applied && now != record.drop_in_before,
    }
}

const POLL: Duration = Duration::from_millis(200);
/// Time for the unit to end and to begin to start again.
const LONGEST: Duration = Duration::from_secs(600);

/// Action on the unit after its drop-in was restored.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// The unit's own failure brought it down: it is started again.
    Start,
    /// The unit runs under the candidate: it is restarted, unless an operator stops it meanwhile.
    Restart,
    /// Somebody stopped it, or it was started anew since the decision.
    Leave,
}

fn way(state: &UnitState, life: &str, is_down: bool) -> Way {
    match () {
        () if state.life() != life || state.is_inactive() => Way::Leave,
        () if state.has_failed() && is_down => Way::Start,
        () if state.has_failed() => Way::Leave,
        () => Way::Restart,
    }
}

/// Restores the earlier drop-in. The unit is restarted if it still has the life that was judged.
///
/// # Errors
/// When systemd refuses, or the old process does not end.
pub(super) fn take_back(record: &WatchRecord, life: &str) -> Result<()> {
    let unit = &record.unit;
    restore(record, &drop_in::path(Path::new("/"), unit))?;
    systemctl(&["daemon-reload"])?;
    match way(&UnitState::now(unit)?, life, record.after.down.is_some()) {
        Way::Leave => return Ok(()),
        Way::Start => {
            let _ = systemctl(&["reset-failed", "--", unit]); // it may be forgotten already
            systemctl(&["restart", "--no-block", "--", unit])?;
        }
        Way::Restart => {
            systemctl(&["try-restart", "--no-block", "--", unit])?;
        }
    }
    if !until_replaced(unit, life, || true)? {
        bail!("{unit}: its process does not end");
    }
    Ok(())
}

fn restore(record: &WatchRecord, file: &Path) -> Result<()> {
    match (drop_in::find(file)?, record.drop_in_before.as_str()) {
        (Found::Nothing, "") => Ok(()),
        (_, "") => drop_in::remove(file),
        (Found::Ours(now), before) if now == before => Ok(()),
        (_, before) => drop_in::write(file, before),
    }
}

/// Waits until the unit has another life, or has ended and is not started again. False: it took too long.
fn until_replaced(unit: &str, life: &str, goes_on: impl Fn() -> bool) -> Result<bool> {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        let state = UnitState::now(unit)?;
        if state.life() != life || (state.is_over() && !state.has_job()) || !goes_on() {
            return Ok(true);
        }
        std::thread::sleep(POLL);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_of_the_watcher_counts_no_kill_twice() {
        let mut after = After::default();
        count_kills(&mut after, 2);
        let mut stored: After = serde_json::from_str(&serde_json::to_string(&after).unwrap()).unwrap();
        count_kills(&mut stored, 2);
        count_kills(&mut stored, 3);
        assert_eq!(stored.oom_kills, 3);
    }

    #[test]
    fn only_the_text_that_was_applied_is_watched_and_taken_back() {
        let record =
            WatchRecord { drop_in_applied: "b".into(), drop_in_before: "a".into(), ..WatchRecord::default() };
        let is_foreign = |found| is_of_somebody_else(&record, found);
        assert!(!is_foreign(Found::Ours("a".into())) && !is_foreign(Found::Ours("b".into())));
        assert!(
            is_foreign(Found::Ours("c".into())) && is_foreign(Found::Edited) && is_foreign(Found::Nothing)
        );
        let first = WatchRecord { drop_in_before: String::new(), ..record.clone() };
        assert!(!is_of_somebody_else(&first, Found::Nothing), "it was taken back already");
    }

    #[test]
    fn only_what_runs_or_failed_by_itself_is_started_again() {
        let state = |active: &str| UnitState::of(&format!("ActiveState={active}\nInvocationID=a\n"));
        assert_eq!(way(&state("active"), "a", false), Way::Restart);
        assert_eq!(way(&state("activating"), "a", false), Way::Restart, "its start hangs");
        assert_eq!(way(&state("failed"), "a", true), Way::Start);
        assert_eq!(way(&state("failed"), "a", false), Way::Leave, "somebody stopped it");
        assert_eq!(way(&state("inactive"), "a", false), Way::Leave);
        assert_eq!(way(&state("active"), "b", false), Way::Leave, "it was restarted already");
    }

    #[test]
    fn the_drop_in_is_restored_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = drop_in::path(folder.path(), "x.service");
        let mut record = WatchRecord { unit: "x.service".into(), ..WatchRecord::default() };
        drop_in::write(&file, &drop_in::text("x.service", "hoard", &[], &[], None)).unwrap();
        for _ in 0..2 {
            restore(&record, &file).unwrap();
            assert_eq!(drop_in::find(&file).unwrap(), Found::Nothing);
        }
        record.drop_in_before = drop_in::text("x.service", "jemalloc", &[], &[], None);
        for _ in 0..2 {
            restore(&record, &file).unwrap();
            assert_eq!(drop_in::find(&file).unwrap(), Found::Ours(record.drop_in_before.clone()));
        }
    }
}
