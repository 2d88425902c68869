// SPDX-License-Identifier: Apache-2.0
//! The operator's overrides: pins, exclusions, quarantines ended by hand.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::{RowId, Store, StoreError};

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

#[cfg(test)]
mod tests {
    use crate::samples::tests::temporary;

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
}
