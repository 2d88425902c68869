// SPDX-License-Identifier: Apache-2.0
//! The daemon's store, and what happens when it cannot be opened, read or written.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_store::{Store, StoreError};

use crate::notify::TroubleLog;

/// Time after which what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The open store.
#[derive(Debug)]
pub(crate) struct KeptStore {
    store: Store,
    path: PathBuf,
    /// Counts what other processes wrote, as it was seen last.
    foreign_changes: i64,
    /// Failures to read or write since the start.
    pub(crate) refusals: u64,
    /// Time when what failed is tried again.
    try_again: Option<Instant>,
    trouble: TroubleLog,
    /// The file that is open.
    file: Option<(u64, u64)>,
}

impl KeptStore {
    /// Opens the store, checks it, and begins a new one if it is damaged.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let store = open(path)?;
        // Before anything else is read of it: what others write from here on is a change.
        let foreign_changes = store.foreign_changes()?;
        let (path, file) = (path.to_owned(), file_at(path));
        Ok(Self {
            store,
            path,
            foreign_changes,
            refusals: 0,
            try_again: None,
            trouble: TroubleLog::default(),
            file,
        })
    }

    pub(crate) fn get(&self) -> &Store {
        &self.store
    }

    pub(crate) fn get_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Whether another process has written to it since the last call.
    pub(crate) fn was_changed(&mut self) -> Result<bool, StoreError> {
        let changes = self.store.foreign_changes()?;
        Ok(std::mem::replace(&mut self.foreign_changes, changes) != changes)
    }

    /// The store could not read or write. Whether it was damaged and a new, empty one was begun.
    pub(crate) fn refused(&mut self, error: &StoreError) -> bool {
        self.refusals += 1;
        if error.is_damage() {
            return self.begin_anew(&error.to_string());
        }
        self.trouble(&error.to_string());
        false
    }

    /// Something on disk could not be written or read: one line in the log, and it is tried again.
    pub(crate) fn trouble(&mut self, what: &str) {
        if self.trouble.began() {
            tracing::error!("{what}; nothing is lost: pages and the last index stay, and it is tried again");
        }
        self.try_again.get_or_insert_with(|| Instant::now() + TRY_AGAIN);
    }

    /// Time when something is to be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.try_again
    }

    /// Whether something is to be tried again now. From here on it counts as mended until it fails once more.
    pub(crate) fn take_retry(&mut self, now: Instant) -> bool {
        let is_due = self.is_in_trouble() && self.try_again.is_some_and(|at| at <= now);
        if is_due {
            self.try_again = None;
        }
        is_due
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.try_again.is_some()
    }

    /// Notes that what was tried again has worked.
    pub(crate) fn works_again(&mut self) {
        self.trouble.ended(Instant::now());
    }

    /// Logs that everything works again, some time after it does.
    pub(crate) fn look_around(&mut self) {
        if self.trouble.is_over(Instant::now()) {
            tracing::info!("the store works again");
        }
    }

    /// Opens what is at the path, if that is another file than the one that is open, or none: what is written to a
    /// file that was removed is lost. Whether another one was opened.
    pub(crate) fn open_if_replaced(&mut self) -> bool {
        if self.file.is_some() && file_at(&self.path) == self.file {
            return false;
        }
        match Self::open(&self.path) {
            Ok(opened) => {
                tracing::error!("{} was removed or replaced: what is there now is used", self.path.display());
                (self.store, self.foreign_changes, self.file) =
                    (opened.store, opened.foreign_changes, opened.file);
                true
            }
            Err(error) => {
                self.trouble(&format!("the store was removed or replaced, and {error:#}"));
                false
            }
        }
    }

    fn begin_anew(&mut self, why: &str) -> bool {
        match Store::begin_anew(&self.path) {
            Ok(store) => {
                log_set_aside(&store, why);
                (self.store, self.file) = (store, file_at(&self.path));
                true
            }
            Err(error) => {
                self.trouble(&format!("the store is damaged ({why}) and no new one can be begun: {error}"));
                false
            }
        }
    }
}

/// Device and inode.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

fn open(path: &Path) -> Result<Store> {
    let store = Store::open(path).with_context(|| format!("the store {}", path.display()))?;
    log_set_aside(&store, "it cannot be read");
    let wrong = match store.check() {
        Ok(wrong) => wrong,
        Err(error) if error.is_damage() => vec![error.to_string()],
        // The disk or memory fails at this moment: no reason to give up what was learned.
        Err(error) => return Err(error).with_context(|| format!("the store {}", path.display())),
    };
    let Some(first) = wrong.first() else { return Ok(store) };
    drop(store);
    let store = Store::begin_anew(path)?;
    log_set_aside(&store, first);
    Ok(store)
}

fn log_set_aside(store: &Store, why: &str) {
    if let Some(aside) = store.set_aside() {
        tracing::error!(
            "the store was damaged ({why}); it was renamed to {} and a new one begun: every program starts untouched until it is tested again",
            aside.display()
        );
    }
}
