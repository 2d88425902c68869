// SPDX-License-Identifier: Apache-2.0
//! Publications of this host to its fleet, and the statistics that it received.
//!
//! Publications are marked trial by trial, in the transaction that also stores the message. So a message
//! exists exactly once for each trial, whenever the process is killed. Its file is written afterwards, from
//! the stored message and always the same, and only then the message is removed.

use std::collections::BTreeSet;

use rusqlite::{Row, params};

use crate::{RowId, Store, StoreError};

/// Content of a message about a trial: a trial that crashed yields no figures, and is a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// The trial's difference to `system`.
    Pair,
    /// The fact that the trial yielded no figures.
    Void,
    /// The fact that the trial crashed or hung.
    Crash,
}

impl MarkKind {
    fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Void => "void",
            Self::Crash => "crash",
        }
    }
}

/// Evidence of one program that is to be published.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// The program.
    pub program: RowId,
    /// The subject as which the fleet knows the program.
    pub subject: &'a str,
    /// Ids of the trials that the messages contain.
    pub marks: &'a [(String, MarkKind)],
    /// The residuals that are published, this publication included, as JSON.
    pub residual: &'a str,
    /// The messages, without boot and number.
    pub messages: &'a [String],
    /// The kernel's boot id.
    pub boot_id: &'a str,
    /// Now, microseconds since 1970.
    pub now_us: u64,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Counts up over all boots: the order of sending.
    pub place: u64,
    /// Name of the boot in which it was stored.
    pub boot: String,
    /// Number of the message within the boot.
    pub batch: u64,
    /// The message.
    pub message: String,
}

/// Statistics of the fleet about a program.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredStatistics {
    /// Subject that the program was to the fleet then.
    pub subject: String,
    /// The statistics as JSON.
    pub statistics: String,
    /// When the first statistics of this subject were stored, seconds since 1970.
    pub known_s: f64,
}

/// Membership of imasd in a fleet; commands that explain its decisions go by the same.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetMember {
    /// Name of this host.
    pub host: String,
    /// Greatest share of the hosts in a trial of one program at a time.
    pub share: f64,
    /// Length of a turn in seconds.
    pub turn_s: f64,
}

impl Store {
    /// Begins a boot of that kernel boot id, unless it was begun; `name` is a random one for it. A store that
    /// was begun anew in the same boot gets another name: its messages are others.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn begin_fleet_boot(&self, boot_id: &str, name: &str) -> Result<(), StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        let sql = "INSERT OR IGNORE INTO fleet_boot (boot_id, name, place)
                   SELECT ?1, ?2, coalesce(max(place), 0) FROM fleet_boot";
        transaction.execute(sql, params![boot_id, name])?;
        transaction.execute("DELETE FROM fleet_boot WHERE boot_id <> ?1", [boot_id])?;
        Ok(transaction.commit()?)
    }

    /// The trials of the program that were published, and what of them.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn published_marks(&self, program: RowId) -> Result<BTreeSet<(String, MarkKind)>, StoreError> {
        let sql = "SELECT trial_id, kind FROM fleet_published JOIN trial ON trial.id = fleet_published.trial
                   WHERE trial.program = ?1";
        let mark = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let kinds = [MarkKind::Pair, MarkKind::Void, MarkKind::Crash];
        let of = |(trial, word): (String, String)| {
            kinds.into_iter().find(|kind| kind.word() == word).map(|kind| (trial, kind))
        };
        Ok(self.rows(sql, [program], mark)?.into_iter().filter_map(of).collect())
    }

    /// The program's residuals that were published under that subject, as JSON. None before the first
    /// publication.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn published_residual(&self, program: RowId, subject: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT residual FROM fleet_residual WHERE program = ?1 AND subject = ?2";
        self.row(sql, params![program, subject], |row| row.get(0))
    }

    /// In one transaction: marks the trials and stores the messages. On return both survive a power cut: a
    /// message whose marks were lost would be published a second time.
    ///
    /// # Errors
    /// When SQLite returns an error, or a trial was published before: nothing is stored then.
    pub fn publish(&self, publication: &Publication<'_>) -> Result<(), StoreError> {
        self.connection().pragma_update(None, "synchronous", "full")?;
        let published = self.publish_at_once(publication);
        self.connection().pragma_update(None, "synchronous", "normal")?;
        published
    }

    fn publish_at_once(&self, publication: &Publication<'_>) -> Result<(), StoreError> {
        let Publication { program, subject, marks, residual, messages, boot_id, now_us } = *publication;
        let transaction = self.connection().unchecked_transaction()?;
        let mark = "INSERT INTO fleet_published (trial, kind) SELECT id, ?2 FROM trial WHERE trial_id = ?1";
        for (trial, kind) in marks {
            transaction.prepare_cached(mark)?.execute(params![trial, kind.word()])?;
        }
        let sql = "INSERT INTO fleet_residual (program, subject, residual) VALUES (?1, ?2, ?3)
                   ON CONFLICT (program) DO UPDATE SET subject = ?2, residual = ?3";
        transaction.prepare_cached(sql)?.execute(params![program, subject, residual])?;
        let count = "UPDATE fleet_boot SET batch = batch + 1, place = max(place + 1, ?2) WHERE boot_id = ?1";
        let add = "INSERT INTO fleet_message (place, boot, batch, message)
                   SELECT place, name, batch - 1, ?2 FROM fleet_boot WHERE boot_id = ?1";
        for message in messages {
            let counted =
                transaction.prepare_cached(count)?.execute(params![boot_id, now_us.cast_signed()])?;
            let added = transaction.prepare_cached(add)?.execute(params![boot_id, message])?;
            if (counted, added) != (1, 1) {
                return Err(StoreError::Sql(rusqlite::Error::QueryReturnedNoRows)); // the boot was not begun
            }
        }
        Ok(transaction.commit()?)
    }

    /// Messages that are not written yet, oldest first, at most `most`.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn fleet_messages(&self, most: u32) -> Result<Vec<StoredMessage>, StoreError> {
        let sql = "SELECT place, boot, batch, message FROM fleet_message ORDER BY place LIMIT ?1";
        let message = |row: &Row<'_>| {
            Ok(StoredMessage {
                place: row.get::<_, i64>(0)?.cast_unsigned(),
                boot: row.get(1)?,
                batch: row.get::<_, i64>(2)?.cast_unsigned(),
                message: row.get(3)?,
            })
        };
        self.rows(sql, [most], message)
    }

    /// Removes a message that is written.
    ///
    /// # Errors
    /// When SQLite returns an error: it is written again then, as it was.
    pub fn forget_message(&self, place: u64) -> Result<(), StoreError> {
        let sql = "DELETE FROM fleet_message WHERE place = ?1";
        self.run(sql, [place.cast_signed()]).map(drop)
    }

    /// Removes the oldest messages beyond that number. Returns how many.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn drop_messages(&self, most: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM fleet_message WHERE place <=
                   (SELECT place FROM fleet_message ORDER BY place DESC LIMIT 1 OFFSET ?1)";
        Ok(self.run(sql, [most])? as u64)
    }

    /// Number of messages that are not written yet.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn count_messages(&self) -> Result<u64, StoreError> {
        let count = self.row("SELECT count(*) FROM fleet_message", [], |row| row.get::<_, i64>(0))?;
        Ok(count.unwrap_or(0).cast_unsigned())
    }

    /// Forgets the fleet's statistics of the program as anything but that subject.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn keep_statistics_of(&self, program: RowId, subject: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM fleet_statistics WHERE program = ?1 AND subject <> ?2";
        self.run(sql, params![program, subject]).map(drop)
    }

    /// Stores the fleet's statistics of a program, in place of earlier ones. Where these were of the same
    /// subject, their time stays.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn set_statistics(&self, program: RowId, stored: &StoredStatistics) -> Result<(), StoreError> {
        let sql = "INSERT INTO fleet_statistics AS old (program, subject, statistics, known_s)
                   VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (program) DO UPDATE SET subject = ?2, statistics = ?3,
                   known_s = CASE WHEN old.subject = ?2 THEN old.known_s ELSE ?4 END";
        let StoredStatistics { subject, statistics, known_s } = stored;
        self.run(sql, params![program, subject, statistics, known_s]).map(drop)
    }

    /// The fleet's statistics of a program.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn statistics(&self, program: RowId) -> Result<Option<StoredStatistics>, StoreError> {
        let sql = "SELECT subject, statistics, known_s FROM fleet_statistics WHERE program = ?1";
        let stored = |row: &Row<'_>| {
            Ok(StoredStatistics { subject: row.get(0)?, statistics: row.get(1)?, known_s: row.get(2)? })
        };
        self.row(sql, [program], stored)
    }

    /// Joins a fleet as that host, or leaves it: its statistics are forgotten then.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn set_fleet_member(&self, member: Option<&FleetMember>) -> Result<(), StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        let reached_s = self.fleet_reached_s()?;
        transaction.execute("DELETE FROM fleet_member", [])?;
        let sql = "INSERT INTO fleet_member (host, share, turn_s, reached_s) VALUES (?1, ?2, ?3, ?4)";
        match member {
            Some(FleetMember { host, share, turn_s }) => {
                transaction.execute(sql, params![host, share, turn_s, reached_s])?
            }
            None => transaction.execute("DELETE FROM fleet_statistics", [])?,
        };
        Ok(transaction.commit()?)
    }

    /// Forgets the fleet's statistics of a subject, and that anything was published of it: the fleet has
    /// forgotten it. Returns the programs that had statistics.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn forget_statistics(&self, subject: &str) -> Result<Vec<RowId>, StoreError> {
        let transaction = self.connection().unchecked_transaction()?;
        let sql = "DELETE FROM fleet_statistics WHERE subject = ?1 RETURNING program";
        let programs: Vec<RowId> = self.rows(sql, [subject], |row| row.get(0))?;
        if !programs.is_empty() {
            transaction.execute("DELETE FROM fleet_residual WHERE subject = ?1", [subject])?;
        }
        transaction.commit()?;
        Ok(programs)
    }

    /// The fleet was reached at that time, in seconds since 1970.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn note_fleet_reached(&self, at_s: f64) -> Result<(), StoreError> {
        self.run("UPDATE fleet_member SET reached_s = ?1", [at_s]).map(drop)
    }

    /// When the fleet was reached last, in seconds since 1970; 0 where it never was.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn fleet_reached_s(&self) -> Result<f64, StoreError> {
        Ok(self.row("SELECT reached_s FROM fleet_member", [], |row| row.get(0))?.unwrap_or(0.0))
    }

    /// The fleet member as which imasd takes part; None where it takes part in no fleet.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn fleet_member(&self) -> Result<Option<FleetMember>, StoreError> {
        let member =
            |row: &Row<'_>| Ok(FleetMember { host: row.get(0)?, share: row.get(1)?, turn_s: row.get(2)? });
        self.row("SELECT host, share, turn_s FROM fleet_member", [], member)
    }
}

#[cfg(test)]
mod tests {
    use imas_core::{Sample, TrialRecord};

    use super::*;
    use crate::samples::tests::temporary;

    fn with_trials(store: &Store) -> RowId {
        let program = store.program("/bin/x", "").unwrap().id;
        for name in ["a", "b"] {
            let sample = Sample { trial_id: name.into(), ..Sample::default() };
            store.add_trial(program, &TrialRecord { sample, ..TrialRecord::default() }).unwrap();
        }
        program
    }

    fn publication<'a>(
        program: RowId,
        marks: &'a [(String, MarkKind)],
        messages: &'a [String],
    ) -> Publication<'a> {
        Publication { program, subject: "s", marks, residual: "{}", messages, boot_id: "b", now_us: 5 }
    }

    #[test]
    fn a_trial_is_published_once() {
        let (_folder, store) = temporary();
        let program = with_trials(&store);
        store.begin_fleet_boot("b", "first").unwrap();
        let (a, messages) = ([("a".to_owned(), MarkKind::Pair)], ["1".to_owned(), "2".to_owned()]);
        store.publish(&publication(program, &a, &messages)).unwrap();
        let both = [("b".to_owned(), MarkKind::Void), a[0].clone()];
        assert!(store.publish(&publication(program, &both, &messages)).is_err());
        assert_eq!(
            store.published_marks(program).unwrap(),
            a.into_iter().collect(),
            "nothing of it is stored"
        );
        assert_eq!(store.published_residual(program, "s").unwrap().as_deref(), Some("{}"));
        assert_eq!(store.published_residual(program, "of another build").unwrap(), None);
        let stored = store.fleet_messages(9).unwrap();
        let ids: Vec<_> =
            stored.iter().map(|m| (m.place, m.boot.as_str(), m.batch, m.message.as_str())).collect();
        assert_eq!(ids, [(5, "first", 0, "1"), (6, "first", 1, "2")]);
        store.forget_message(5).unwrap();
        assert_eq!(store.fleet_messages(9).unwrap(), stored[1..]);
    }

    #[test]
    fn messages_keep_their_names_in_the_next_boot_and_places_count_on() {
        let (_folder, store) = temporary();
        let program = with_trials(&store);
        let messages = ["1".to_owned()];
        assert!(store.publish(&publication(program, &[], &messages)).is_err(), "no boot was begun");
        for (boot_id, name) in [("a", "first"), ("a", "again"), ("b", "second")] {
            store.begin_fleet_boot(boot_id, name).unwrap();
            store.publish(&Publication { boot_id, ..publication(program, &[], &messages) }).unwrap();
        }
        let stored = store.fleet_messages(9).unwrap();
        let ids: Vec<_> = stored.iter().map(|m| (m.place, m.boot.as_str(), m.batch)).collect();
        assert_eq!(ids, [(5, "first", 0), (6, "first", 1), (7, "second", 0)], "the clock stood still");
        assert_eq!(store.drop_messages(3).unwrap(), 0);
        assert_eq!(store.drop_messages(1).unwrap(), 2);
        assert_eq!(store.fleet_messages(9).unwrap(), stored[2..]);
    }

    #[test]
    fn leaving_the_fleet_forgets_its_statistics() {
        let (_folder, mut store) = temporary();
        let program = with_trials(&store);
        let member = FleetMember { host: "h".into(), share: 0.05, turn_s: 30.0 };
        store.set_fleet_member(Some(&member)).unwrap();
        store.set_fleet_member(Some(&member)).unwrap();
        let stored = StoredStatistics { subject: "s".into(), statistics: "{}".into(), known_s: 7.0 };
        store.set_statistics(program, &stored).unwrap();
        assert_eq!(store.fleet_member().unwrap(), Some(member));
        assert_eq!(store.statistics(program).unwrap(), Some(stored.clone()));
        store.set_fleet_member(None).unwrap();
        assert_eq!((store.fleet_member().unwrap(), store.statistics(program).unwrap()), (None, None));
        store.set_statistics(program, &stored).unwrap();
        assert!(store.forget_statistics("of another").unwrap().is_empty());
        assert_eq!(store.forget_statistics("s").unwrap(), [program]);
        assert_eq!(
            (store.statistics(program).unwrap(), store.forget_statistics("s").unwrap()),
            (None, vec![])
        );
        let newer = StoredStatistics { statistics: "[]".into(), known_s: 9.0, ..stored.clone() };
        for one in [&stored, &newer] {
            store.set_statistics(program, one).unwrap();
        }
        let known = store.statistics(program).unwrap().unwrap();
        assert_eq!((known.statistics.as_str(), known.known_s), ("[]", 7.0), "the time of the first");
        let upgraded = StoredStatistics { subject: "t".into(), ..newer };
        store.set_statistics(program, &upgraded).unwrap();
        assert_eq!(store.statistics(program).unwrap(), Some(upgraded));
        store.forget(program).unwrap();
        assert_eq!(store.statistics(program).unwrap(), None);
    }
}
