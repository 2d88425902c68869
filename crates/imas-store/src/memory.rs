// SPDX-License-Identifier: Apache-2.0
//! Cached facts about files that are expensive to determine. A fact is valid until the file changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::params;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Store, StoreError};

/// A version of a file: it changes whenever the file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification and change time: seconds, nanoseconds.
    pub times: [i64; 4],
}

impl From<&Metadata> for FileVersion {
    fn from(about: &Metadata) -> Self {
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Self { dev: about.dev(), ino: about.ino(), bytes: about.size(), times }
    }
}

impl Store {
    /// The stored fact of this kind about the file. `None` if there is none or if the file has changed since.
    ///
    /// # Errors
    /// When SQLite returns an error. A stored fact that cannot be read any more counts as missing.
    pub fn recall<T: DeserializeOwned>(&self, file: &Path, kind: &str) -> Result<Option<T>, StoreError> {
        let Ok(about) = std::fs::metadata(file) else { return Ok(None) };
        self.recall_of(file, &about, kind)
    }

    /// The stored fact of this kind about the version of the file, whichever file is at its path now.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn recall_of<T: DeserializeOwned>(
        &self,
        file: &Path,
        version: impl Into<FileVersion>,
        kind: &str,
    ) -> Result<Option<T>, StoreError> {
        let stamp = stamp(version.into());
        let sql = "SELECT fact FROM file_fact WHERE path = ?1 AND kind = ?2 AND stamp = ?3";
        let fact: Option<String> =
            self.row(sql, params![file.to_string_lossy(), kind, stamp], |row| row.get(0))?;
        Ok(fact.and_then(|fact| serde_json::from_str(&fact).ok()))
    }

    /// Stores a fact about the file in its present state, in place of an earlier one.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn remember<T: Serialize>(&self, file: &Path, kind: &str, fact: &T) -> Result<(), StoreError> {
        let Ok(about) = std::fs::metadata(file) else { return Ok(()) };
        self.remember_of(file, &about, kind, fact)
    }

    /// Stores a fact about the version of the file, whichever file is at its path now.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn remember_of<T: Serialize>(
        &self,
        file: &Path,
        version: impl Into<FileVersion>,
        kind: &str,
        fact: &T,
    ) -> Result<(), StoreError> {
        let stamp = stamp(version.into());
        let sql = "INSERT INTO file_fact (path, kind, stamp, fact) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (path, kind) DO UPDATE SET stamp = ?3, fact = ?4";
        let fact = serde_json::to_string(fact)?;
        self.run(sql, params![file.to_string_lossy(), kind, stamp, fact])?;
        let oldest = "DELETE FROM file_fact WHERE rowid <= (SELECT max(rowid) FROM file_fact) - ?1";
        self.run(oldest, [MOST_FACTS]).map(drop)
    }
}

/// Number of facts that are kept. The oldest are deleted, so a user with ever new files cannot fill the disk.
const MOST_FACTS: i64 = 50_000;

/// The version as the table has it.
fn stamp(FileVersion { dev, ino, bytes, times }: FileVersion) -> String {
    format!("{dev}:{ino}:{bytes}:{times:?}")
}

#[cfg(test)]
mod tests {
    use crate::samples::tests::temporary;

    #[test]
    fn a_fact_lasts_until_the_file_changes() {
        let (folder, store) = temporary();
        let file = folder.path().join("lib.so");
        std::fs::write(&file, "a").unwrap();
        store.remember(&file, "loads", &Some("why not")).unwrap();
        let got: Option<Option<String>> = store.recall(&file, "loads").unwrap();
        assert_eq!(got, Some(Some("why not".to_owned())));
        assert_eq!(store.recall::<bool>(&file, "other").unwrap(), None);
        std::fs::write(&file, "ab").unwrap();
        assert_eq!(store.recall::<Option<String>>(&file, "loads").unwrap(), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(store.recall::<Option<String>>(&file, "loads").unwrap(), None);
    }
}
