// SPDX-License-Identifier: Apache-2.0
//! Takes the change of a unit back. Every step may be repeated: a watcher that was interrupted does it again.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::figures::UnitState;
use super::record::WatchRecord;
use crate::apply::unit::systemctl;
use imas_engine::drop_in::{self, Found};

const POLL: Duration = Duration::from_millis(200);
/// Time for the unit to end and to begin to start again.
const LONGEST: Duration = Duration::from_secs(600);

/// What the unit needs after its drop-in was restored.
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
pub(super) fn until_replaced(unit: &str, life: &str, goes_on: impl Fn() -> bool) -> Result<bool> {
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
        drop_in::write(&file, &drop_in::text("x.service", "hoard", &[], &[])).unwrap();
        for _ in 0..2 {
            restore(&record, &file).unwrap();
            assert_eq!(drop_in::find(&file).unwrap(), Found::Nothing);
        }
        record.drop_in_before = drop_in::text("x.service", "jemalloc", &[], &[]);
        for _ in 0..2 {
            restore(&record, &file).unwrap();
            assert_eq!(drop_in::find(&file).unwrap(), Found::Ours(record.drop_in_before.clone()));
        }
    }
}
