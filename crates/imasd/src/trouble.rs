// SPDX-License-Identifier: Apache-2.0
//! A store that would not be opened, read or written.

use std::time::Instant;

use anyhow::{Context as _, Result};
use imas_store::{Store, StoreError};

use crate::book::Book;
use crate::cli::Options;
use crate::daemon::Daemon;

impl Daemon {
    /// The store would not write or read. Pages stay where they are until it does.
    pub(crate) fn store_refused(&mut self, error: &StoreError) {
        self.counters.store_refusals += 1;
        if error.is_damage() {
            self.begin_store_anew(&error.to_string());
        } else {
            self.trouble(&error.to_string());
        }
    }

    /// One line, however long it lasts.
    pub(crate) fn trouble(&mut self, what: &str) {
        if !self.trouble_told {
            tracing::error!("{what}; nothing is lost: pages and the last index stay, and it is tried again");
        }
        if !self.store_trouble {
            self.times.tried = Instant::now();
        }
        (self.store_trouble, self.trouble_told) = (true, true);
    }

    fn begin_store_anew(&mut self, why: &str) {
        match Store::begin_anew(&self.options.store) {
            Ok(store) => {
                tell_set_aside(&store, why);
                self.store = store;
                self.book = Book::default();
                self.disabled.clear();
                self.forgiven.clear();
                self.dirty = true;
                self.drop_all_pages();
            }
            Err(error) => {
                self.trouble(&format!("the store is damaged ({why}) and no new one can be begun: {error}"))
            }
        }
    }

    pub(crate) fn try_again(&mut self) {
        self.store_trouble = false;
        for page in self.watched.left_over() {
            self.page_ended(&page);
        }
        if !self.store_trouble {
            self.judge_all();
        }
        if !self.store_trouble {
            self.trouble_told = false;
            tracing::info!("the store works again");
        }
    }
}

/// Opens the store, checks it, and begins a new one if it is damaged.
pub(crate) fn open_store(options: &Options) -> Result<Store> {
    let path = &options.store;
    let store = Store::open(path).with_context(|| format!("the store {}", path.display()))?;
    tell_set_aside(&store, "it cannot be read");
    let wrong = store.check().unwrap_or_else(|error| vec![error.to_string()]);
    let Some(first) = wrong.first() else { return Ok(store) };
    drop(store);
    let store = Store::begin_anew(path)?;
    tell_set_aside(&store, first);
    Ok(store)
}

fn tell_set_aside(store: &Store, why: &str) {
    if let Some(aside) = store.set_aside() {
        tracing::error!(
            "the store was damaged ({why}); it was renamed to {} and a new one begun: every program starts untouched until it is tested again",
            aside.display()
        );
    }
}
