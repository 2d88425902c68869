// SPDX-License-Identifier: Apache-2.0
//! A store that another process writes, opened for reading, and what was worked out of its programs.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_store::decisions::ProgramRevision;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store, StoreError};

use crate::context::Context;
use crate::flags::RulesArgs;
use crate::program_view::{ProgramView, state_where};

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

// Results about programs, kept until something about a program is stored.

/// A program is worked out anew after this time although nothing was stored: trials grow old, and the machine's
/// pressure changes what is decided.
pub const LASTS: Duration = Duration::from_secs(300);

/// Values that were worked out, one for each program.
#[derive(Debug)]
pub struct ProgramCache<T>(HashMap<RowId, Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    revision: ProgramRevision,
    /// When the value was worked out; None where it is to be worked out anew.
    made: Option<Instant>,
    value: T,
}

impl<T> Default for ProgramCache<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> ProgramCache<T> {
    /// The value of the program, whether it is up to date or not.
    #[must_use]
    pub fn get(&self, program: RowId) -> Option<&T> {
        self.0.get(&program).map(|kept| &kept.value)
    }

    /// Whether the program has to be worked out.
    #[must_use]
    pub fn is_stale(&self, store: &Store, program: RowId) -> bool {
        self.0.get(&program).is_none_or(|kept| {
            kept.made.is_none_or(|made| made.elapsed() > LASTS)
                || store.revision(program).map_or(true, |now| now != kept.revision)
        })
    }

    /// Works the program out: `make` turns its state into the value, given what was kept before.
    ///
    /// # Errors
    /// When the store or /proc cannot be read.
    pub fn work_out(
        &mut self,
        (context, store): (&Context, &Store),
        program: &StoredProgram,
        is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
        make: impl FnOnce(ProgramView, Option<&T>) -> Result<T>,
    ) -> Result<()> {
        // Before the state is read: what is stored meanwhile is seen at the next look.
        let revision = store.revision(program.id)?;
        let state = state_where((context, store), program.clone(), &RulesArgs::of_environment(), is_usable)?;
        let value = make(state, self.get(program.id))?;
        self.0.insert(program.id, Kept { revision, made: Some(Instant::now()), value });
        Ok(())
    }

    /// Has every program worked out anew. Until then its value stays.
    pub fn expire(&mut self) {
        self.0.values_mut().for_each(|kept| kept.made = None);
    }

    /// Keeps what is known of these programs alone.
    pub fn keep(&mut self, is_kept: impl Fn(RowId) -> bool) {
        self.0.retain(|program, _| is_kept(*program));
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
