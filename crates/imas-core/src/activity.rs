// SPDX-License-Identifier: Apache-2.0
//! The activity of a process, as observed from outside: whether it used CPU time, and whether it waited for a
//! lock.

use serde::{Deserialize, Serialize};

/// The activity of a process with all its descendants, up to the last observation.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ProcessActivity {
    /// Seconds from its start to the last observation.
    pub lived_s: f64,
    /// CPU time it had used by then, seconds.
    pub cpu_s: f64,
    /// Seconds for which it had used none by then, as far as earlier observations show.
    pub still_s: f64,
    /// Every thread waited for a lock at that observation, without a time limit.
    pub locked: bool,
    /// Seconds for which the machine had been awake at that observation; 0 where that is not known.
    pub awake_s: f64,
}

impl ProcessActivity {
    /// `now`, with the idle time that `earlier`, an observation of the same process, adds to it.
    #[must_use]
    pub fn following(earlier: Option<Self>, now: Self) -> Self {
        let still_s = match earlier {
            Some(was) if was.locked && now.locked && now.cpu_s <= was.cpu_s => {
                was.still_s + between_s(was, now)
            }
            _ => 0.0,
        };
        Self { still_s, ..now }
    }
}

/// Time between two observations, without the time for which the machine was suspended: a program does not
/// run then, but grows older.
fn between_s(was: ProcessActivity, now: ProcessActivity) -> f64 {
    let awake_s = if was.awake_s > 0.0 { now.awake_s - was.awake_s } else { 0.0 };
    awake_s.min(now.lived_s - was.lived_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_suspend_does_not_count() {
        let look = |lived_s, awake_s| ProcessActivity {
            lived_s,
            awake_s,
            locked: true,
            ..ProcessActivity::default()
        };
        let first = ProcessActivity::following(None, look(5.0, 100.0));
        assert_eq!(
            ProcessActivity::following(Some(first), look(3605.0, 100.5)).still_s,
            0.5,
            "an hour's suspend"
        );
        assert_eq!(ProcessActivity::following(Some(first), look(12.0, 107.0)).still_s, 7.0);
    }
}
