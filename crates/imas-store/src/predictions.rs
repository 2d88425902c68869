// SPDX-License-Identifier: Apache-2.0
//! What replays of a recorded run predicted of a program: the latest prediction of each candidate.

use imas_core::reliability::RecordedRunFacts;
use imas_core::replay_prior::PredictedDifference;
use rusqlite::{Row, params};

use crate::{RowId, Store, StoreError};

/// The predictions of one recorded run.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPredictions {
    /// When the predictions were made, Unix time in seconds.
    pub at_s: f64,
    /// Build-id of the program that was recorded; empty when it has none.
    pub build_id: String,
    /// Page settings and CPU count of the machine that replayed.
    pub machine: String,
    /// The recorded run.
    pub run: RecordedRunFacts,
    /// Predicted differences, one for each candidate.
    pub differences: Vec<PredictedDifference>,
}

impl Store {
    /// Replaces the predictions of the program.
    ///
    /// # Errors
    /// When SQLite returns an error; nothing is changed then.
    pub fn set_predictions(&self, program: RowId, made: &StoredPredictions) -> Result<(), StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        transaction.execute("DELETE FROM prediction WHERE program = ?1", [program])?;
        transaction.execute("DELETE FROM replayed_run WHERE program = ?1", [program])?;
        let run = serde_json::to_string(&made.run)?;
        transaction.execute(
            "INSERT INTO replayed_run (program, at_s, build_id, machine, run) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![program, made.at_s, made.build_id, made.machine, run],
        )?;
        let sql =
            "INSERT INTO prediction (program, candidate, version, cpu, memory) VALUES (?1, ?2, ?3, ?4, ?5)";
        for one in &made.differences {
            transaction.execute(sql, params![program, one.candidate, one.version, one.cpu, one.memory])?;
        }
        Ok(transaction.commit()?)
    }

    /// The predictions of the program; None where none of its runs was replayed.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn predictions(&self, program: RowId) -> Result<Option<StoredPredictions>, StoreError> {
        let sql = "SELECT at_s, build_id, machine, run FROM replayed_run WHERE program = ?1";
        let Some(mut run) = self.row(sql, [program], run_of)? else { return Ok(None) };
        let sql =
            "SELECT candidate, version, cpu, memory FROM prediction WHERE program = ?1 ORDER BY candidate";
        run.differences = self.rows(sql, [program], difference_of)?;
        Ok(Some(run))
    }
}

/// What the trials of a program said of a prediction, once they proved a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCheck {
    /// Name of the candidate.
    pub candidate: String,
    /// The recorded run.
    pub run: RecordedRunFacts,
    /// ln(live / predicted) of CPU time.
    pub cpu: f64,
    /// ln(live / predicted) of mean memory.
    pub memory: f64,
}

impl Store {
    /// Replaces what trials said of the predictions for a program. Returns whether that is anything new.
    ///
    /// # Errors
    /// When SQLite returns an error; nothing is changed then.
    pub fn set_checks(&self, program: RowId, checks: &[StoredCheck]) -> Result<bool, StoreError> {
        if self.checks_where("program = ?1", program)? == checks {
            return Ok(false);
        }
        let transaction = self.connection().unchecked_transaction()?;
        transaction.execute("DELETE FROM checked_prediction WHERE program = ?1", [program])?;
        for one in checks {
            let run = serde_json::to_string(&one.run)?;
            transaction.execute(
                "INSERT INTO checked_prediction (program, candidate, run, cpu, memory) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![program, one.candidate, run, one.cpu, one.memory],
            )?;
        }
        transaction.commit()?;
        Ok(true)
    }

    /// What trials said of the predictions for all programs but this one, which they must not teach.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn checks_of_others(&self, program: RowId) -> Result<Vec<StoredCheck>, StoreError> {
        self.checks_where("program <> ?1", program)
    }

    fn checks_where(&self, which: &str, program: RowId) -> Result<Vec<StoredCheck>, StoreError> {
        let sql = format!(
            "SELECT candidate, run, cpu, memory FROM checked_prediction WHERE {which} ORDER BY program, candidate"
        );
        let check = |row: &Row<'_>| {
            let run: String = row.get(1)?;
            let run = serde_json::from_str(&run).unwrap_or_default();
            Ok(StoredCheck { candidate: row.get(0)?, run, cpu: row.get(2)?, memory: row.get(3)? })
        };
        self.rows(&sql, [program], check)
    }
}

fn run_of(row: &Row<'_>) -> rusqlite::Result<StoredPredictions> {
    let run: String = row.get(3)?;
    Ok(StoredPredictions {
        at_s: row.get(0)?,
        build_id: row.get(1)?,
        machine: row.get(2)?,
        // What this version does not know is taken for a small run.
        run: serde_json::from_str(&run).unwrap_or_default(),
        differences: vec![],
    })
}

fn difference_of(row: &Row<'_>) -> rusqlite::Result<PredictedDifference> {
    Ok(PredictedDifference {
        candidate: row.get(0)?,
        version: row.get(1)?,
        cpu: row.get(2)?,
        memory: row.get(3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;

    fn made(at_s: f64, names: &[&str]) -> StoredPredictions {
        let one = |name: &&str| PredictedDifference {
            candidate: (*name).to_owned(),
            version: "1".to_owned(),
            cpu: -0.1,
            memory: 0.25,
        };
        StoredPredictions {
            at_s,
            build_id: "b".to_owned(),
            machine: "thp=madvise".to_owned(),
            run: RecordedRunFacts { allocator_share: 0.25, peak_bytes: 1e6, threads: 4 },
            differences: names.iter().map(one).collect(),
        }
    }

    #[test]
    fn what_trials_said_is_read_for_all_other_programs() {
        let (_folder, mut store) = temporary();
        let [one, other] = ["/bin/a", "/bin/b"].map(|path| store.program(path, "").unwrap().id);
        let check = |candidate: &str, cpu| StoredCheck {
            candidate: candidate.to_owned(),
            run: made(1.0, &[]).run,
            cpu,
            memory: 0.5,
        };
        assert!(store.set_checks(one, &[check("a", 0.1), check("b", 0.2)]).unwrap());
        assert!(!store.set_checks(one, &[check("a", 0.1), check("b", 0.2)]).unwrap(), "nothing new");
        assert!(store.set_checks(one, &[check("a", 0.3)]).unwrap());
        assert_eq!(store.checks_of_others(one).unwrap(), []);
        assert_eq!(store.checks_of_others(other).unwrap(), [check("a", 0.3)]);
        store.forget(one).unwrap();
        assert_eq!(store.checks_of_others(other).unwrap(), []);
    }

    #[test]
    fn the_latest_predictions_are_read_back_and_go_with_the_program() {
        let (folder, mut store) = temporary();
        let [one, other] = ["/bin/a", "/bin/b"].map(|path| store.program(path, "").unwrap().id);
        assert_eq!(store.predictions(one).unwrap(), None);
        let before = store.revision(one).unwrap();
        store.set_predictions(one, &made(1.0, &["a", "b"])).unwrap();
        assert_ne!(store.revision(one).unwrap(), before);
        store.set_predictions(one, &made(2.0, &["b", "c"])).unwrap();
        let again = Store::open(&folder.path().join("imas.db")).unwrap();
        assert_eq!(again.predictions(one).unwrap(), Some(made(2.0, &["b", "c"])));
        assert_eq!(
            Store::view(&folder.path().join("imas.db")).unwrap().predictions(one).unwrap().unwrap().at_s,
            2.0
        );
        assert_eq!(store.predictions(other).unwrap(), None);
        store.forget(one).unwrap();
        assert_eq!(store.predictions(one).unwrap(), None);
    }
}
