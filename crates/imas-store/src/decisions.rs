// SPDX-License-Identifier: Apache-2.0
//! Stored decisions: time, candidate and reason.
//!
//! The operator's overrides: pins, exclusions, quarantines ended by hand.
//!
//! Whether anything stored about a program has changed, for programs that look again and again.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Row, params};
use serde::Serialize;

use crate::{RowId, Store, StoreError};

/// One decision as stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decided {
    /// Unix time in seconds.
    pub at_s: f64,
    /// Name of the candidate.
    pub candidate: String,
    /// Whether the decision was a trial.
    pub trial: bool,
    /// Id of the trial, and the waiting time between tests at that time (seconds).
    pub begun: Option<(String, f64)>,
    /// Id of the reason.
    pub reason: String,
    /// The reason and its evidence as sentences.
    pub because: String,
}

/// A trial that began and is not stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun {
    /// Id of the trial, which is also the name of its page.
    pub trial_id: String,
    /// When the trial was decided, Unix time in seconds.
    pub at_s: f64,
}

/// Number of decisions kept of each program, the newest. The machine's load alone may change a decision every few
/// seconds.
const DECISIONS_KEPT: u32 = 1000;

/// Trials of program ?1 under candidate ?2 that began within the ?4 seconds before ?3, or up to a minute after it: a start
/// that read its clock later may have written earlier. Trials stored up to number ?5 have ended.
const UNDER_WAY: &str = "SELECT other.trial_id, other.at_s FROM decision AS other
    WHERE other.program = ?1 AND other.candidate = ?2 AND other.trial_id IS NOT NULL
      AND other.at_s > ?3 - ?4 AND other.at_s <= ?3 + min(?4, 60)
      AND NOT EXISTS (SELECT 1 FROM trial WHERE trial.trial_id = other.trial_id AND trial.id <= ?5)";

impl Store {
    /// Records a decision. A decision that is no trial and equals the one before is left out: a program that
    /// starts every second must not fill the store.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn record(&self, program: RowId, decided: &Decided) -> Result<(), StoreError> {
        let repeats = self.latest(program)?.is_some_and(|last| {
            !decided.trial
                && !last.trial
                && last.candidate == decided.candidate
                && last.reason == decided.reason
        });
        if repeats {
            return Ok(());
        }
        let sql =
            "INSERT INTO decision (program, at_s, candidate, trial, reason, because, trial_id, retest_s)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let Decided { at_s, candidate, trial, begun, reason, because } = decided;
        let (trial_id, retest_s) = begun.clone().unzip();
        self.run(sql, params![program, at_s, candidate, trial, reason, because, trial_id, retest_s])?;
        // A store that has many more does not lose all of them at once.
        let old = "DELETE FROM decision WHERE id IN
                   (SELECT id FROM decision WHERE program = ?1 ORDER BY id DESC LIMIT ?2 OFFSET ?2)";
        self.run(old, params![program, DECISIONS_KEPT]).map(drop)
    }

    /// Records that a trial begins and returns true. Does neither if a trial of the same candidate began
    /// within the waiting time and is still under way: of several simultaneous starts, only one is the trial.
    /// `decided.begun` names the trial; without it none begins. `seen` is the newest trial that the decision
    /// was based on ([`Store::newest_trial`]). A trial stored later counts as under way.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn begin(&self, program: RowId, decided: &Decided, seen: RowId) -> Result<bool, StoreError> {
        let Some((trial_id, retest_s)) = &decided.begun else { return Ok(false) };
        // One statement, so that no other process writes between the check and the insert.
        let sql = format!(
            "INSERT INTO decision (program, candidate, at_s, retest_s, trial, reason, because, trial_id)
             SELECT ?1, ?2, ?3, ?4, TRUE, ?6, ?7, ?8 WHERE NOT EXISTS ({UNDER_WAY})"
        );
        let Decided { at_s, candidate, reason, because, .. } = decided;
        let values = params![program, candidate, at_s, retest_s, seen, reason, because, trial_id];
        Ok(self.run(&sql, values)? > 0)
    }

    /// The newest trial that would keep [`Store::begin`] from beginning another one of that candidate at
    /// `at_s` with that waiting time (seconds).
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn under_way(
        &self,
        program: RowId,
        candidate: &str,
        at_s: f64,
        retest_s: f64,
        seen: RowId,
    ) -> Result<Option<Begun>, StoreError> {
        let sql = format!("{UNDER_WAY} ORDER BY other.id DESC LIMIT 1");
        let begun = |row: &Row<'_>| Ok(Begun { trial_id: row.get(0)?, at_s: row.get(1)? });
        self.row(&sql, params![program, candidate, at_s, retest_s, seen], begun)
    }

    /// Number of the newest trial of any program; 0 without any.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn newest_trial(&self) -> Result<RowId, StoreError> {
        Ok(self.row("SELECT max(id) FROM trial", [], |row| row.get(0))?.flatten().unwrap_or(0))
    }

    /// The newest decision.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn latest(&self, program: RowId) -> Result<Option<Decided>, StoreError> {
        Ok(self.decisions(program, 1)?.pop())
    }

    /// The waiting time between tests when a trial began. `None` if `run` did not begin it.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn retest_of(&self, trial_id: &str) -> Result<Option<f64>, StoreError> {
        let sql = "SELECT retest_s FROM decision WHERE trial_id = ?1";
        Ok(self.row(sql, [trial_id], |row| row.get(0))?.flatten())
    }

    /// The newest decisions, newest first.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn decisions(&self, program: RowId, most: u32) -> Result<Vec<Decided>, StoreError> {
        let sql = "SELECT at_s, candidate, trial, reason, because, trial_id, retest_s FROM decision WHERE program = ?1 ORDER BY id DESC LIMIT ?2";
        self.rows(sql, params![program, most], decided_of)
    }
}

fn decided_of(row: &Row<'_>) -> rusqlite::Result<Decided> {
    Ok(Decided {
        at_s: row.get(0)?,
        candidate: row.get(1)?,
        trial: row.get(2)?,
        reason: row.get(3)?,
        because: row.get(4)?,
        begun: row.get::<_, Option<String>>(5)?.zip(row.get(6)?),
    })
}

impl Store {
    /// Pins a program to a candidate, in place of an earlier pin.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn pin(&self, program: RowId, candidate: &str, at_s: f64) -> Result<(), StoreError> {
        let sql = "INSERT INTO pin (program, candidate, at_s) VALUES (?1, ?2, ?3)
                   ON CONFLICT (program) DO UPDATE SET candidate = ?2, at_s = ?3";
        self.run(sql, params![program, candidate, at_s]).map(drop)
    }

    /// Removes the pin. Returns whether there was one.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn unpin(&self, program: RowId) -> Result<bool, StoreError> {
        Ok(self.run("DELETE FROM pin WHERE program = ?1", [program])? > 0)
    }

    /// The candidate a program is pinned to.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn pinned(&self, program: RowId) -> Result<Option<String>, StoreError> {
        self.row("SELECT candidate FROM pin WHERE program = ?1", [program], |row| row.get(0))
    }

    /// Excludes an executable or script. Returns whether it was not excluded before.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn exclude(&self, path: &str, at_s: f64) -> Result<bool, StoreError> {
        let sql = "INSERT INTO exclusion (path, at_s) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        Ok(self.run(sql, params![path, at_s])? > 0)
    }

    /// Removes an exclusion. Returns whether there was one.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn include(&self, path: &str) -> Result<bool, StoreError> {
        Ok(self.run("DELETE FROM exclusion WHERE path = ?1", [path])? > 0)
    }

    /// All excluded paths in alphabetical order.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn exclusions(&self) -> Result<Vec<String>, StoreError> {
        self.rows("SELECT path FROM exclusion ORDER BY path", [], |row| row.get(0))
    }

    /// Whether the executable or the script is excluded.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn is_excluded(&self, path: &str, detail: &str) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM exclusion WHERE path = ?1 OR (path = ?2 AND ?2 <> '')";
        Ok(self.row(sql, [path, detail], |_| Ok(()))?.is_some())
    }

    /// Ends the quarantine of a candidate for a program: crashes up to this time no longer count.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn unblock(&self, program: RowId, candidate: &str, at_s: f64) -> Result<(), StoreError> {
        let sql = "INSERT INTO lift (program, candidate, at_s) VALUES (?1, ?2, ?3)
                   ON CONFLICT (program, candidate) DO UPDATE SET at_s = ?3";
        self.run(sql, params![program, candidate, at_s]).map(drop)
    }

    /// For each candidate, the time up to which its crashes are cleared, Unix time.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn unblocked(&self, program: RowId) -> Result<BTreeMap<String, f64>, StoreError> {
        let sql = "SELECT candidate, at_s FROM lift WHERE program = ?1";
        Ok(self.rows(sql, [program], |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect())
    }
}

/// Revision of the data about a program, in a few numbers: two equal ones mean that nothing was added or
/// removed.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramRevision(Vec<Value>);

impl Store {
    /// The revision of a program now.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn revision(&self, program: RowId) -> Result<ProgramRevision, StoreError> {
        const SQL: &str = "SELECT (SELECT count(*) FROM trial WHERE program = ?1),
            (SELECT coalesce(max(id), 0) FROM trial WHERE program = ?1),
            (SELECT coalesce(max(id), 0) FROM decision WHERE program = ?1),
            (SELECT candidate FROM pin WHERE program = ?1),
            (SELECT coalesce(max(at_s), 0.0) FROM lift WHERE program = ?1),
            (SELECT count(*) FROM exclusion), (SELECT count(*) FROM disabled),
            (SELECT count(*) FROM life_window WHERE program = ?1)";
        let mut statement = self.connection().prepare_cached(SQL)?;
        let columns = statement.column_count();
        let values = statement.query_row([program], |row| (0..columns).map(|at| row.get(at)).collect())?;
        Ok(ProgramRevision(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;

    fn decided(candidate: &str, trial: bool) -> Decided {
        Decided {
            at_s: 1.0,
            candidate: candidate.into(),
            trial,
            reason: "r".into(),
            because: "b".into(),
            begun: None,
        }
    }

    #[test]
    fn a_trial_remembers_the_waiting_time_of_its_day() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let begun = Decided { begun: Some(("t1".into(), 60.0)), ..decided("a", true) };
        store.record(program, &begun).unwrap();
        assert_eq!(store.retest_of("t1").unwrap(), Some(60.0));
        assert_eq!(store.retest_of("t2").unwrap(), None);
        assert_eq!(store.latest(program).unwrap().unwrap(), begun);
    }

    #[test]
    fn of_starts_at_the_same_moment_one_is_the_trial() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let of = |candidate: &str, id: &str, at_s, retest_s| Decided {
            begun: Some((id.into(), retest_s)),
            at_s,
            ..decided(candidate, true)
        };
        let begins = |decided: &Decided| store.begin(program, decided, 0).unwrap();
        assert!(begins(&of("a", "t1", 100.0, 3600.0)));
        assert!(!begins(&of("a", "t2", 100.1, 3600.0)), "t1 is under way");
        assert!(!begins(&of("a", "t2", 99.9, 3600.0)), "t1 read its clock later and wrote earlier");
        let under_way = |candidate, at_s, retest_s| {
            let begun = store.under_way(program, candidate, at_s, retest_s, 0).unwrap();
            begun.map(|begun| (begun.trial_id, begun.at_s))
        };
        assert_eq!(under_way("a", 100.1, 3600.0), Some(("t1".to_owned(), 100.0)), "the same as for begin");
        assert_eq!((under_way("b", 100.1, 3600.0), under_way("a", 100.1, 0.0)), (None, None));
        assert!(begins(&of("b", "t3", 100.2, 3600.0)), "another candidate");
        assert!(begins(&of("a", "t4", 100.3, 0.0)), "no waiting time");
        assert!(begins(&of("a", "t5", 4000.0, 3600.0)), "the waiting time after t1 and t4 is over");
        assert!(!begins(&decided("a", true)), "without a trial id nothing begins");
        assert_eq!(store.latest(program).unwrap().unwrap(), of("a", "t5", 4000.0, 3600.0));
    }

    #[test]
    fn only_changes_and_trials_are_kept() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        for (candidate, trial) in
            [("a", true), ("a", true), ("a", false), ("a", false), ("b", false), ("b", false)]
        {
            store.record(program, &decided(candidate, trial)).unwrap();
        }
        let kept: Vec<_> =
            store.decisions(program, 9).unwrap().into_iter().map(|d| (d.candidate, d.trial)).collect();
        let want = [("b", false), ("a", false), ("a", true), ("a", true)].map(|(c, t)| (c.to_owned(), t));
        assert_eq!(kept, want);
    }

    #[test]
    fn the_newest_decisions_are_kept() {
        let (_folder, store) = temporary();
        let [program, other] = ["/bin/x", "/bin/y"].map(|path| store.program(path, "").unwrap().id);
        store.record(other, &decided("a", false)).unwrap();
        for number in 0..DECISIONS_KEPT + 50 {
            store.record(program, &decided(&number.to_string(), false)).unwrap();
        }
        let kept = store.decisions(program, u32::MAX).unwrap();
        let ends = [kept.first(), kept.last()].map(|decided| decided.unwrap().candidate.clone());
        assert_eq!((kept.len(), ends), (1000, ["1049".to_owned(), "50".to_owned()]));
        assert_eq!(store.decisions(other, 9).unwrap().len(), 1);
    }

    #[test]
    fn a_pin_is_replaced_and_removed() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        store.pin(program, "a", 1.0).unwrap();
        store.pin(program, "b", 2.0).unwrap();
        assert_eq!(store.pinned(program).unwrap().as_deref(), Some("b"));
        assert!(store.unpin(program).unwrap());
        assert!(!store.unpin(program).unwrap());
    }

    #[test]
    fn executables_and_scripts_can_be_excluded() {
        let (_folder, store) = temporary();
        assert!(store.exclude("/a.py", 1.0).unwrap());
        assert!(!store.exclude("/a.py", 1.0).unwrap());
        assert!(store.is_excluded("/bin/python", "/a.py").unwrap());
        assert!(!store.is_excluded("/bin/python", "").unwrap());
        assert_eq!(store.exclusions().unwrap(), ["/a.py"]);
        assert!(store.include("/a.py").unwrap());
        assert!(!store.is_excluded("/bin/python", "/a.py").unwrap());
    }

    #[test]
    fn a_repeated_unblock_has_a_new_date() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        store.unblock(program, "a", 1.0).unwrap();
        store.unblock(program, "a", 5.0).unwrap();
        assert_eq!(store.unblocked(program).unwrap()["a"], 5.0);
    }

    #[test]
    fn every_change_of_a_program_changes_its_revision() {
        let (_folder, store) = temporary();
        let [one, other] = ["/bin/a", "/bin/b"].map(|path| store.program(path, "").unwrap().id);
        let untouched = store.revision(other).unwrap();
        let mut seen = vec![store.revision(one).unwrap()];
        store.pin(one, "jemalloc", 1.0).unwrap();
        seen.push(store.revision(one).unwrap());
        store.pin(one, "mimalloc", 2.0).unwrap();
        seen.push(store.revision(one).unwrap());
        store.unblock(one, "jemalloc", 3.0).unwrap();
        seen.push(store.revision(one).unwrap());
        assert_eq!(store.revision(other).unwrap(), untouched);
        store.exclude("/bin/a", 4.0).unwrap();
        seen.push(store.revision(one).unwrap());
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
        assert_eq!(store.revision(one).unwrap(), seen[4]);
    }
}
