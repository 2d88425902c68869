// SPDX-License-Identifier: Apache-2.0
//! State of imasd that must survive kill -9: the trials on offer, the processes seen with their pages, the
//! disabled allocators.

use std::collections::BTreeMap;

use imas_core::TrialRecord;
use rusqlite::{Row, params};
use serde::Serialize;

use crate::decisions::Decided;
use crate::{RowId, Store, StoreError};

/// A trial that the index offers to the first process that starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Name of the page: 16 hexadecimal digits.
    pub token: String,
    /// The program it is for.
    pub program: RowId,
    /// The candidate to be tried.
    pub candidate: String,
    /// The waiting time between tests at that time, seconds.
    pub retest_s: f64,
    /// When the trial was offered, Unix time in seconds.
    pub at_s: f64,
}

/// A process that was seen alive, with its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// Owner of the folder and of the process.
    pub uid: u32,
    /// The page's name in the folder.
    pub page: String,
    /// The boot it was seen in.
    pub boot_id: String,
    /// Id of the process.
    pub pid: u32,
    /// When the process started, clock ticks since boot. With the pid it is the identity of the process.
    pub start_ticks: u64,
    /// The program that it was identified as.
    pub program: RowId,
    /// The candidate that it was started under.
    pub candidate: String,
}

/// An allocator that is offered to no program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disabled {
    /// Name of the allocator in the catalogue, without a setting.
    pub allocator: String,
    /// The disabled version. Another version is offered again.
    pub version: String,
    /// When the allocator was disabled, Unix time in seconds.
    pub at_s: f64,
    /// The reason, for people.
    pub why: String,
}

impl Store {
    /// Stores an offered trial.
    ///
    /// # Errors
    /// When SQLite returns an error: the trial must not be offered then.
    pub fn add_offer(&self, offer: &Offer) -> Result<(), StoreError> {
        let sql = "INSERT INTO offer (token, program, candidate, retest_s, at_s) VALUES (?1, ?2, ?3, ?4, ?5)";
        let Offer { token, program, candidate, retest_s, at_s } = offer;
        self.run(sql, params![token, program, candidate, retest_s, at_s]).map(drop)
    }

    /// In one transaction: stores an offered trial, and the decision that it is.
    ///
    /// # Errors
    /// When SQLite returns an error: neither is stored then, and the trial must not be offered.
    pub fn offer_trial(&self, offer: &Offer, decided: &Decided) -> Result<(), StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        self.add_offer(offer)?;
        self.record(offer.program, decided)?;
        Ok(transaction.commit()?)
    }

    /// All offered trials.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn offers(&self) -> Result<Vec<Offer>, StoreError> {
        let offer = |row: &Row<'_>| {
            Ok(Offer {
                token: row.get(0)?,
                program: row.get(1)?,
                candidate: row.get(2)?,
                retest_s: row.get(3)?,
                at_s: row.get(4)?,
            })
        };
        self.rows("SELECT token, program, candidate, retest_s, at_s FROM offer", [], offer)
    }

    /// Withdraws an offer. Returns whether it existed.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn withdraw(&self, token: &str) -> Result<bool, StoreError> {
        Ok(self.run("DELETE FROM offer WHERE token = ?1", [token])? > 0)
    }

    /// Stores a process and its page.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn add_witness(&self, witness: &Witness) -> Result<(), StoreError> {
        let sql = "INSERT INTO witness (uid, page, boot_id, pid, start_ticks, program, candidate)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
        let Witness { uid, page, boot_id, pid, start_ticks, program, candidate } = witness;
        let ticks = start_ticks.cast_signed();
        self.run(sql, params![uid, page, boot_id, pid, ticks, program, candidate]).map(drop)
    }

    /// All processes whose pages are not processed yet.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn witnesses(&self) -> Result<Vec<Witness>, StoreError> {
        let sql = "SELECT uid, page, boot_id, pid, start_ticks, program, candidate FROM witness";
        self.rows(sql, [], witness_of)
    }

    /// The process that was seen to run the trial on offer for the program.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn witness_of_offer(&self, program: RowId) -> Result<Option<Witness>, StoreError> {
        let sql = "SELECT uid, page, boot_id, pid, start_ticks, witness.program, witness.candidate
                   FROM offer JOIN witness ON witness.program = offer.program AND page = token || '.page'
                   WHERE offer.program = ?1";
        self.row(sql, [program], witness_of)
    }

    /// Forgets the process of a page, because the page was processed.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn forget_witness(&self, uid: u32, page: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM witness WHERE uid = ?1 AND page = ?2";
        self.run(sql, params![uid, page]).map(drop)
    }

    /// In one transaction: stores the sample of a process, and removes the offer of that name and, where the
    /// process `has_ended`, its witness. Returns `false` if that trial is stored already. The transaction is
    /// committed on return.
    ///
    /// # Errors
    /// When SQLite returns an error: the page must be kept then.
    pub fn settle(
        &self,
        witness: &Witness,
        trial: &TrialRecord,
        token: Option<&str>,
        has_ended: bool,
    ) -> Result<bool, StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        let added = self.add_trial(witness.program, trial)?;
        if let Some(token) = token {
            self.withdraw(token)?;
        }
        if has_ended {
            self.forget_witness(witness.uid, &witness.page)?;
        }
        transaction.commit()?;
        Ok(added)
    }

    /// Disables an allocator.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn disable(&self, disabled: &Disabled) -> Result<(), StoreError> {
        let sql = "INSERT INTO disabled (allocator, version, at_s, why) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (allocator) DO UPDATE SET version = ?2, at_s = ?3, why = ?4, lifted_s = NULL";
        let Disabled { allocator, version, at_s, why } = disabled;
        self.run(sql, params![allocator, version, at_s, why]).map(drop)
    }

    /// Ends the disabling of an allocator and clears its earlier crashes. Returns whether it was disabled.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn enable(&self, allocator: &str, at_s: f64) -> Result<bool, StoreError> {
        let sql = "UPDATE disabled SET lifted_s = ?2 WHERE allocator = ?1 AND lifted_s IS NULL";
        Ok(self.run(sql, params![allocator, at_s])? > 0)
    }

    /// For each allocator, the time up to which its crashes are cleared, Unix time.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn cleared(&self) -> Result<BTreeMap<String, f64>, StoreError> {
        let sql = "SELECT allocator, lifted_s FROM disabled WHERE lifted_s IS NOT NULL";
        Ok(self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect())
    }

    /// The disabled allocators.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn disabled(&self) -> Result<Vec<Disabled>, StoreError> {
        let sql =
            "SELECT allocator, version, at_s, why FROM disabled WHERE lifted_s IS NULL ORDER BY allocator";
        let disabled = |row: &Row<'_>| {
            Ok(Disabled { allocator: row.get(0)?, version: row.get(1)?, at_s: row.get(2)?, why: row.get(3)? })
        };
        self.rows(sql, [], disabled)
    }
}

fn witness_of(row: &Row<'_>) -> rusqlite::Result<Witness> {
    Ok(Witness {
        uid: row.get(0)?,
        page: row.get(1)?,
        boot_id: row.get(2)?,
        pid: row.get(3)?,
        start_ticks: row.get::<_, i64>(4)?.cast_unsigned(),
        program: row.get(5)?,
        candidate: row.get(6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;
    use imas_core::Sample;

    fn witness(program: RowId) -> Witness {
        Witness {
            uid: 1000,
            page: "a.page".into(),
            boot_id: "b".into(),
            pid: 7,
            start_ticks: u64::MAX,
            program,
            candidate: "jemalloc".into(),
        }
    }

    #[test]
    fn settling_ends_offer_and_witness_at_once() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let offer =
            Offer { token: "1".into(), program, candidate: "jemalloc".into(), retest_s: 0.0, at_s: 1.0 };
        store.add_offer(&offer).unwrap();
        store.add_witness(&witness(program)).unwrap();
        assert_eq!(store.offers().unwrap(), std::slice::from_ref(&offer));
        assert_eq!(store.witnesses().unwrap(), [witness(program)]);
        let sample = Sample { trial_id: "1".into(), candidate: "jemalloc".into(), ..Sample::default() };
        let trial = TrialRecord { sample, ..TrialRecord::default() };
        assert!(store.settle(&witness(program), &trial, Some("1"), true).unwrap());
        assert!(store.offers().unwrap().is_empty() && store.witnesses().unwrap().is_empty());
        assert_eq!(store.trials(program).unwrap().len(), 1);
        store.add_witness(&witness(program)).unwrap();
        assert!(!store.settle(&witness(program), &trial, Some("1"), false).unwrap(), "stored once");
        assert_eq!(store.witnesses().unwrap(), [witness(program)], "its process goes on");
    }

    #[test]
    fn a_trial_is_stored_with_its_decision_or_not_at_all() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let offer =
            Offer { token: "1".into(), program, candidate: "jemalloc".into(), retest_s: 0.0, at_s: 1.0 };
        let decided = Decided {
            at_s: 1.0,
            candidate: "jemalloc".into(),
            trial: true,
            begun: Some(("1".into(), 0.0)),
            reason: "r".into(),
            because: "b".into(),
        };
        store.connection().execute_batch("ALTER TABLE decision RENAME TO hidden").unwrap();
        assert!(store.offer_trial(&offer, &decided).is_err());
        assert!(store.offers().unwrap().is_empty(), "the same token is free");
        store.connection().execute_batch("ALTER TABLE hidden RENAME TO decision").unwrap();
        store.offer_trial(&offer, &decided).unwrap();
        assert_eq!(store.offers().unwrap(), [offer]);
        assert_eq!(store.latest(program).unwrap(), Some(decided));
    }

    #[test]
    fn the_process_of_a_trial_is_identified_by_its_page() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let offer = |token: &str| Offer {
            token: token.into(),
            program,
            candidate: "jemalloc".into(),
            retest_s: 0.0,
            at_s: 1.0,
        };
        store.add_witness(&witness(program)).unwrap();
        store.add_offer(&offer("b")).unwrap();
        assert_eq!(store.witness_of_offer(program).unwrap(), None, "the witness belongs to an earlier trial");
        store.withdraw("b").unwrap();
        store.add_offer(&offer("a")).unwrap();
        assert_eq!(store.witness_of_offer(program).unwrap(), Some(witness(program)));
        assert_eq!(store.witness_of_offer(program + 1).unwrap(), None);
    }

    #[test]
    fn a_forgotten_program_takes_its_offers_along() {
        let (_folder, mut store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        let offer = Offer { token: "1".into(), program, candidate: "a".into(), retest_s: 0.0, at_s: 1.0 };
        store.add_offer(&offer).unwrap();
        store.add_witness(&witness(program)).unwrap();
        store.forget(program).unwrap();
        assert!(store.offers().unwrap().is_empty() && store.witnesses().unwrap().is_empty());
    }

    #[test]
    fn an_allocator_is_disabled_and_enabled() {
        let (_folder, store) = temporary();
        let disabled =
            Disabled { allocator: "hoard".into(), version: "3".into(), at_s: 1.0, why: "three".into() };
        store.disable(&disabled).unwrap();
        assert_eq!(store.disabled().unwrap(), [disabled]);
        assert!(store.enable("hoard", 5.0).unwrap());
        assert!(!store.enable("hoard", 6.0).unwrap());
        assert!(store.disabled().unwrap().is_empty());
        assert_eq!(store.cleared().unwrap()["hoard"], 5.0);
    }

    #[test]
    fn another_connections_writes_are_noticed_and_our_own_are_not() {
        let (folder, store) = temporary();
        let before = store.foreign_changes().unwrap();
        store.program("/bin/x", "").unwrap();
        assert_eq!(store.foreign_changes().unwrap(), before);
        crate::Store::open(&folder.path().join("imas.db")).unwrap().program("/bin/y", "").unwrap();
        assert_ne!(store.foreign_changes().unwrap(), before);
    }
}
