// SPDX-License-Identifier: Apache-2.0
//! A store that another process writes, opened for reading.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use imas_store::{Store, StoreError};

/// A store that is followed. It is opened again where its file is another one.
#[derive(Debug)]
pub struct FollowedStore {
    path: PathBuf,
    store: Option<Store>,
    /// Number by which SQLite counts changes of others, and the identity of the file.
    seen: Option<(i64, u64)>,
    problem: Option<StoreError>,
}

impl FollowedStore {
    /// The store in that file, which is not opened yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, store: None, seen: None, problem: None }
    }

    /// The store as the last look found it; None where it could not be read.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Why the last look could not read the store.
    #[must_use]
    pub fn problem(&self) -> Option<&StoreError> {
        self.problem.as_ref()
    }

    /// Whether another process has written to the store since the last look, or the file is another one. A store
    /// that cannot be read is opened again at the next look.
    pub fn look(&mut self) -> bool {
        let (seen, problem) = match self.changes() {
            Ok(seen) => (Some(seen), None),
            Err(error) => (None, Some(error)),
        };
        if problem.is_some() {
            self.store = None;
        }
        self.problem = problem;
        std::mem::replace(&mut self.seen, seen) != seen
    }

    fn changes(&mut self) -> Result<(i64, u64), StoreError> {
        let inode = std::fs::metadata(&self.path).map_or(0, |about| about.ino());
        let is_other = self.seen.is_some_and(|(_, before)| before != inode);
        let store = match self.store.take().filter(|_| !is_other) {
            Some(store) => store,
            None => Store::open_read_only(&self.path)?,
        };
        Ok((self.store.insert(store).foreign_changes()?, inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_another_file_and_a_missing_one_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut followed = FollowedStore::new(path.clone());
        assert!(!followed.look() && followed.problem().is_some());
        let other = Store::open(&path).unwrap();
        assert!(followed.look() && followed.problem().is_none() && !followed.look());
        other.program("/bin/x", "").unwrap();
        assert!(followed.look() && !followed.look());
        drop(other);
        std::fs::remove_file(&path).unwrap();
        assert!(followed.look() && followed.store().is_none());
        Store::open(&path).unwrap();
        assert!(followed.look() && followed.store().is_some());
    }
}
