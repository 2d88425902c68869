// SPDX-License-Identifier: Apache-2.0
//! What has changed since a reader looked: for those that keep what they computed of a program.

use std::collections::BTreeMap;

use crate::{RowId, Store, StoreError};

/// What a conclusion about one program was computed from; another one is due when this differs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProgramStamp {
    /// Trials and production starts stored.
    pub trials: i64,
    /// Number of the newest of them.
    pub newest_trial: RowId,
    /// Number of the newest decision.
    pub newest_decision: RowId,
    /// When it was pinned and when quarantines were ended, Unix times added up.
    pub overrides_s: f64,
}

impl Store {
    /// The stamp of every program.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn stamps(&self) -> Result<BTreeMap<RowId, ProgramStamp>, StoreError> {
        let sql = "SELECT program.id,
              (SELECT count(*) FROM trial WHERE trial.program = program.id),
              (SELECT coalesce(max(trial.id), 0) FROM trial WHERE trial.program = program.id),
              (SELECT coalesce(max(decision.id), 0) FROM decision WHERE decision.program = program.id),
              (SELECT total(at_s) FROM pin WHERE pin.program = program.id)
            + (SELECT total(at_s) FROM lift WHERE lift.program = program.id)
            FROM program";
        let mut statement = self.connection().prepare_cached(sql)?;
        let rows = statement.query_map([], |row| {
            let stamp = ProgramStamp {
                trials: row.get(1)?,
                newest_trial: row.get(2)?,
                newest_decision: row.get(3)?,
                overrides_s: row.get(4)?,
            };
            Ok((row.get(0)?, stamp))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use crate::samples::tests::{temporary, trial};

    #[test]
    fn a_stamp_changes_with_trials_and_pins_of_its_program_alone() {
        let (_folder, store) = temporary();
        let [one, other] = ["/bin/a", "/bin/b"].map(|path| store.program(path, "").unwrap().id);
        let first = store.stamps().unwrap();
        store.add_trial(one, &trial("t", 1.0)).unwrap();
        let second = store.stamps().unwrap();
        assert_eq!((second[&one].trials, second[&other]), (1, first[&other]));
        assert_ne!(second[&one], first[&one]);
        store.pin(one, "jemalloc", 2.0).unwrap();
        assert_ne!(store.stamps().unwrap()[&one], second[&one]);
    }
}
