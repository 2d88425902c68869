// SPDX-License-Identifier: Apache-2.0
//! Programs and their trials.
//!
//! Trust domains: which samples a decision may use.
//!
//! Samples of root and of system accounts count for every user. Samples of a user count for that user alone.

use std::collections::BTreeMap;

use imas_core::hang::may_have_hung;
use imas_core::sample::PageKind;
use imas_core::{Sample, TrialRecord, printable};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, params};
use serde::{Deserialize, Serialize, Serializer};

use crate::{RowId, Store, StoreError};

/// Number of uneventful production starts kept of each program and candidate. With those that crashed or may have hung
/// meanwhile it is enough to estimate a crash rate.
const UNEVENTFUL_KEPT: u32 = 100;
/// Most production starts kept of each program and candidate that crashed or may have hung.
const HARMED_KEPT: u32 = 1000;

/// Condition for the production starts of program ?1 under candidate ?2 that crashed or may have hung.
const HARMED: &str =
    r#"program = ?1 AND candidate = ?2 AND NOT uneventful AND instr(sample, '"kind":"flight"')"#;

/// A program known to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredProgram {
    /// Number of the program in the store.
    pub id: RowId,
    /// Trust domain of the program.
    #[serde(skip_serializing_if = "Domain::is_own")]
    pub domain: Domain,
    /// Resolved path of the executable.
    pub path: String,
    /// Script, jar or main class of an interpreter; `as NAME` where the name it is started by counts; else empty.
    pub detail: String,
}

/// One line for people. It is never used as a key.
impl std::fmt::Display for StoredProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printable::name(&self.path))?;
        if !self.detail.is_empty() {
            write!(f, " {}", printable::name(&self.detail))?;
        }
        if let Domain::User(uid) = self.domain { write!(f, " (of uid {uid})") } else { Ok(()) }
    }
}

impl Store {
    /// The program's row in the owner's own store, made if it is new.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn program(&self, path: &str, detail: &str) -> Result<StoredProgram, StoreError> {
        self.program_in(Domain::Own, path, detail)
    }

    /// The program's row in a domain, made if it is new.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn program_in(&self, domain: Domain, path: &str, detail: &str) -> Result<StoredProgram, StoreError> {
        if let Some(known) = self.find_program_in(domain, path, detail)? {
            return Ok(known);
        }
        let sql = "INSERT INTO program (domain, path, detail) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        self.run(sql, params![domain, path, detail])?;
        let made = self.find_program_in(domain, path, detail)?;
        made.ok_or(StoreError::Sql(rusqlite::Error::QueryReturnedNoRows))
    }

    /// The program of exactly that domain, path and detail.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn find_program_in(
        &self,
        domain: Domain,
        path: &str,
        detail: &str,
    ) -> Result<Option<StoredProgram>, StoreError> {
        let sql =
            "SELECT id, domain, path, detail FROM program WHERE domain = ?1 AND path = ?2 AND detail = ?3";
        self.row(sql, params![domain, path, detail], program_of)
    }

    /// All programs whose executable or script has that path, in the order they became known.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn programs_at(&self, path: &str) -> Result<Vec<StoredProgram>, StoreError> {
        let sql = "SELECT id, domain, path, detail FROM program WHERE path = ?1 OR detail = ?1 ORDER BY id";
        self.rows(sql, [path], program_of)
    }

    /// The program of that number.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn program_numbered(&self, id: RowId) -> Result<Option<StoredProgram>, StoreError> {
        self.row("SELECT id, domain, path, detail FROM program WHERE id = ?1", [id], program_of)
    }

    /// All programs, in the order they became known.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn programs(&self) -> Result<Vec<StoredProgram>, StoreError> {
        self.rows("SELECT id, domain, path, detail FROM program ORDER BY id", [], program_of)
    }

    /// Appends a trial and commits. Returns `false` if that trial is stored already.
    ///
    /// # Errors
    /// When SQLite returns an error: the caller must keep the page then.
    pub fn add_trial(&self, program: RowId, trial: &TrialRecord) -> Result<bool, StoreError> {
        let sql = "INSERT INTO trial (trial_id, program, candidate, build_id, allocator_version, made_s, retest_s, uneventful, sample)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (trial_id) DO NOTHING";
        let harm = trial.sample.ended.is_crash() || may_have_hung(&trial.sample);
        let is_flight = trial.sample.kind == PageKind::Flight;
        let uneventful = is_flight && !harm;
        let sample = serde_json::to_string(&trial.sample)?;
        let added = self.connection().prepare_cached(sql)?.execute(params![
            trial.sample.trial_id,
            program,
            trial.sample.candidate,
            trial.build_id,
            trial.allocator_version,
            trial.sample.made_unix_s,
            trial.retest_s,
            uneventful,
            sample,
        ])?;
        if is_flight {
            self.thin_out(program, &trial.sample.candidate)?;
        }
        if is_flight && harm {
            self.thin_out_harmed(program, &trial.sample.candidate)?;
        }
        Ok(added == 1)
    }

    /// Stores several starts of a program, all or none.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn add_trials(&self, program: RowId, trials: &[TrialRecord]) -> Result<(), StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        for trial in trials {
            self.add_trial(program, trial)?;
        }
        Ok(transaction.commit()?)
    }

    /// Deletes all but the newest production starts under the candidate. They have no figures, and a program that
    /// starts every minute must neither fill the store nor slow down its own start. Trials are never deleted.
    ///
    /// Starts that crashed go with the uneventful ones of their time: else crashes would seem more frequent than they
    /// are. The newest of them stays, of each build and version: where `system` never crashed, one crash is enough.
    fn thin_out(&self, program: RowId, candidate: &str) -> Result<(), StoreError> {
        const UNEVENTFUL: &str = "program = ?1 AND candidate = ?2 AND uneventful";
        let oldest = format!("(SELECT id FROM trial WHERE {UNEVENTFUL} ORDER BY id DESC LIMIT 1 OFFSET ?3)");
        let newest = format!("SELECT max(id) FROM trial WHERE {HARMED} GROUP BY build_id, allocator_version");
        for old in [
            format!("DELETE FROM trial WHERE {UNEVENTFUL} AND id < {oldest}"),
            format!("DELETE FROM trial WHERE {HARMED} AND id < {oldest} AND id NOT IN ({newest})"),
        ] {
            self.run(&old, params![program, candidate, UNEVENTFUL_KEPT - 1])?;
        }
        Ok(())
    }

    /// Deletes all but the newest of those that crashed or may have hung under the candidate. Where the program does
    /// so by itself, the candidate is not quarantined, and each start adds one.
    fn thin_out_harmed(&self, program: RowId, candidate: &str) -> Result<(), StoreError> {
        let old = format!("SELECT id FROM trial WHERE {HARMED} ORDER BY id DESC LIMIT ?3 OFFSET ?3");
        let sql = format!("DELETE FROM trial WHERE id IN ({old})");
        self.run(&sql, params![program, candidate, HARMED_KEPT]).map(drop)
    }

    /// All trials of a program in the order they were made, each with how its process lived on.
    ///
    /// # Errors
    /// When SQLite returns an error, or a sample cannot be read.
    pub fn trials(&self, program: RowId) -> Result<Vec<TrialRecord>, StoreError> {
        let sql = "SELECT build_id, allocator_version, retest_s, sample FROM trial WHERE program = ?1 ORDER BY made_s, id";
        let mut statement = self.connection().prepare_cached(sql)?;
        let rows = statement.query_map([program], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?))
        })?;
        let mut lives = self.lives_of_trials(program)?;
        rows.map(|row| {
            let (build_id, allocator_version, retest_s, sample) = row?;
            let mut sample: Sample = serde_json::from_str(&sample)?;
            sample.life = lives.remove(&sample.trial_id);
            Ok(TrialRecord { build_id, allocator_version, retest_s, sample })
        })
        .collect()
    }

    /// How many threads allocated in the program's trials under executables of that build: each number, and in how many
    /// trials it was that.
    ///
    /// # Errors
    /// When SQLite returns an error, or a sample cannot be read.
    pub fn threads_of_trials(&self, program: RowId, build_id: &str) -> Result<Vec<(u32, u32)>, StoreError> {
        let sql = "SELECT sample FROM trial WHERE program = ?1 AND build_id = ?2 AND NOT uneventful";
        let mut statement = self.connection().prepare_cached(sql)?;
        let samples = statement.query_map(params![program, build_id], |row| row.get::<_, String>(0))?;
        let mut counts = BTreeMap::new();
        for sample in samples {
            let PartOfSample { kind, threads } = serde_json::from_str(&sample?)?;
            if kind == PageKind::Trial {
                *counts.entry(threads).or_insert(0) += 1;
            }
        }
        Ok(counts.into_iter().collect())
    }

    /// Forgets a program: its trials, decisions, pin and cleared crashes. Returns the number of trials.
    ///
    /// # Errors
    /// When SQLite returns an error; nothing is forgotten then.
    pub fn forget(&mut self, program: RowId) -> Result<i64, StoreError> {
        // The transaction reads before it writes. Begun as a reader, it would fail if another process wrote
        // in between.
        let transaction =
            self.connection_mut().transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let trials =
            transaction.query_row("SELECT count(*) FROM trial WHERE program = ?1", [program], |row| {
                row.get::<_, i64>(0)
            })?;
        transaction.execute("DELETE FROM program WHERE id = ?1", [program])?;
        transaction.commit()?;
        Ok(trials)
    }
}

/// The part of a stored sample that [`Store::threads_of_trials`] needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PartOfSample {
    kind: PageKind,
    threads: u32,
}

fn program_of(row: &Row<'_>) -> rusqlite::Result<StoredProgram> {
    Ok(StoredProgram { id: row.get(0)?, domain: row.get(1)?, path: row.get(2)?, detail: row.get(3)? })
}

/// Stored number of the owner's own domain.
const OWN: i64 = -1;
/// Stored number of everybody's domain. It is the same number as the index's `IMAS_ANY_UID`.
const EVERYBODY: i64 = u32::MAX as i64;

/// The trust domain of programs and samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The store of one user, as `imas run` keeps it. All of its samples are the owner's.
    Own,
    /// Measured by root or a system account; counts for every user.
    Everybody,
    /// Measured by this user's processes; counts for this user alone.
    User(u32),
}

impl Domain {
    /// Whether this is a user's own store.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// Whether its samples count for every user.
    #[must_use]
    pub fn is_everybodys(&self) -> bool {
        *self == Self::Everybody
    }

    /// A word for logs and JSON: `own`, `everybody` or the uid.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Own => "own".to_owned(),
            Self::Everybody => "everybody".to_owned(),
            Self::User(uid) => uid.to_string(),
        }
    }
}

impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word())
    }
}

impl ToSql for Domain {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(match self {
            Self::Own => OWN,
            Self::Everybody => EVERYBODY,
            Self::User(uid) => i64::from(*uid),
        }))
    }
}

impl FromSql for Domain {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            OWN => Ok(Self::Own),
            EVERYBODY => Ok(Self::Everybody),
            other => u32::try_from(other).map(Self::User).map_err(|_| FromSqlError::OutOfRange(other)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use imas_core::Candidate;
    use imas_core::quarantine::quarantined;
    use imas_core::sample::Ended;

    use super::*;

    pub(crate) fn temporary() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        (folder, store)
    }

    fn trial(id: &str, made_unix_s: f64) -> TrialRecord {
        let sample =
            Sample { trial_id: id.into(), candidate: "jemalloc".into(), made_unix_s, ..Sample::default() };
        TrialRecord { build_id: "b".into(), allocator_version: "5".into(), retest_s: Some(60.0), sample }
    }

    #[test]
    fn a_program_has_one_row() {
        let (_folder, store) = temporary();
        let first = store.program("/bin/python", "/a.py").unwrap();
        assert_eq!(store.program("/bin/python", "/a.py").unwrap(), first);
        let other = store.program("/bin/python", "/b.py").unwrap();
        assert_ne!(first.id, other.id);
        assert_eq!(store.programs_at("/bin/python").unwrap().len(), 2);
        assert_eq!(store.programs_at("/b.py").unwrap(), std::slice::from_ref(&other));
        assert_eq!(store.program_numbered(other.id).unwrap().unwrap().to_string(), "/bin/python /b.py");
    }

    #[test]
    fn a_trial_is_stored_once_and_read_back_in_order() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        assert!(store.add_trial(program, &trial("late", 2.0)).unwrap());
        assert!(store.add_trial(program, &trial("early", 1.0)).unwrap());
        assert!(!store.add_trial(program, &trial("late", 2.0)).unwrap());
        assert_eq!(store.trials(program).unwrap(), [trial("early", 1.0), trial("late", 2.0)]);
    }

    #[test]
    fn of_uneventful_starts_the_newest_are_kept_and_the_last_crash_always() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let start = |number: u32, ended| {
            let mut start = trial(&format!("f{number}"), f64::from(number));
            (start.sample.kind, start.sample.ended) = (PageKind::Flight, ended);
            store.add_trial(program, &start).unwrap();
        };
        store.add_trial(program, &trial("t", 0.0)).unwrap();
        start(1, Ended::Signal { signal: 11 });
        (2..UNEVENTFUL_KEPT + 50).for_each(|number| start(number, Ended::Clean { status: Some(0) }));
        let kept: Vec<String> =
            store.trials(program).unwrap().into_iter().map(|t| t.sample.trial_id).collect();
        assert_eq!(kept.len(), 2 + UNEVENTFUL_KEPT as usize);
        assert_eq!(kept[..3], ["t", "f1", "f50"]);
    }

    #[test]
    fn a_program_that_crashes_by_itself_keeps_its_share_of_crashes_and_its_candidate() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let start = |number: u32, candidate: &str, kind| {
            let mut start = trial(&format!("{candidate}{number}"), f64::from(number));
            (start.sample.candidate, start.sample.kind) = (candidate.into(), kind);
            let crashes = number.is_multiple_of(10);
            start.sample.ended =
                if crashes { Ended::Signal { signal: 11 } } else { Ended::Clean { status: Some(0) } };
            store.add_trial(program, &start).unwrap();
        };
        (0..20).for_each(|number| start(number, "system", PageKind::Trial));
        (0..600).for_each(|number| start(number, "jemalloc", PageKind::Flight));
        (0..5).for_each(|number| start(number, "hoard", PageKind::Flight));
        let records = store.trials(program).unwrap();
        let ends: Vec<Ended> =
            records.iter().filter(|r| r.sample.candidate == "jemalloc").map(|r| r.sample.ended).collect();
        let crashed = ends.iter().filter(|ended| ended.is_crash()).count();
        assert_eq!((crashed, ends.len()), (11, 11 + UNEVENTFUL_KEPT as usize));
        let candidates = [Candidate::system(""), Candidate::new("jemalloc", "5", &["jemalloc"])];
        assert!(quarantined(&records, &candidates, "b", &BTreeMap::new(), 1e3).is_empty());
    }

    #[test]
    fn of_starts_that_crashed_the_newest_of_each_candidate_are_kept() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let crash = |id: &str, candidate: &str, kind| {
            let mut start = trial(id, 0.0);
            start.sample.candidate = candidate.into();
            (start.sample.kind, start.sample.ended) = (kind, Ended::Signal { signal: 11 });
            store.add_trial(program, &start).unwrap();
        };
        crash("t", "jemalloc", PageKind::Trial);
        crash("h", "hoard", PageKind::Flight);
        (0..HARMED_KEPT + 5).for_each(|number| crash(&format!("f{number}"), "jemalloc", PageKind::Flight));
        let kept: Vec<String> =
            store.trials(program).unwrap().into_iter().map(|t| t.sample.trial_id).collect();
        assert_eq!(kept.len(), 2 + HARMED_KEPT as usize);
        assert_eq!(kept[..3], ["t", "h", "f5"]);
    }

    #[test]
    fn forgetting_takes_everything_of_one_program() {
        let (_folder, mut store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let kept = store.program("/bin/y", "").unwrap().id;
        store.add_trial(program, &trial("a", 1.0)).unwrap();
        store.add_trial(kept, &trial("b", 1.0)).unwrap();
        store.pin(program, "jemalloc", 1.0).unwrap();
        assert_eq!(store.forget(program).unwrap(), 1);
        assert!(store.trials(program).unwrap().is_empty());
        assert_eq!(store.pinned(program).unwrap(), None);
        assert_eq!(store.trials(kept).unwrap().len(), 1);
    }

    #[test]
    fn one_path_is_a_program_of_its_own_in_each_domain() {
        let (_folder, store) = temporary();
        let domains = [Domain::Own, Domain::Everybody, Domain::User(1000), Domain::User(1001)];
        let programs = domains.map(|domain| store.program_in(domain, "/bin/x", "").unwrap());
        for (program, domain) in programs.iter().zip(domains) {
            assert_eq!(program.domain, domain);
            assert_eq!(store.find_program_in(domain, "/bin/x", "").unwrap().as_ref(), Some(program));
        }
        assert_eq!(store.programs_at("/bin/x").unwrap().len(), 4);
    }
}
