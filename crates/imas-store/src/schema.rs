// SPDX-License-Identifier: Apache-2.0
//! The tables. A released migration is never edited; a change is a new one at the end.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::StoreError;

const FIRST: &str = "
CREATE TABLE program (
    id      INTEGER PRIMARY KEY,
    path    TEXT NOT NULL,              -- resolved path of the executable
    detail  TEXT NOT NULL DEFAULT '',   -- script, jar or class of an interpreter
    UNIQUE (path, detail)
) STRICT;

-- Raw figures; appended, never changed.
CREATE TABLE trial (
    id                INTEGER PRIMARY KEY,
    trial_id          TEXT NOT NULL UNIQUE, -- a page harvested twice is stored once
    program           INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate         TEXT NOT NULL,
    build_id          TEXT NOT NULL,        -- of the executable
    allocator_version TEXT NOT NULL,
    made_s            REAL NOT NULL,        -- Unix time
    retest_s          REAL,                 -- waiting time between tests in force when it began
    uneventful        INTEGER NOT NULL,     -- a production start that did not crash: nothing but its number matters
    sample            TEXT NOT NULL         -- imas_core::sample::Sample as JSON
) STRICT;
CREATE INDEX trial_of_program ON trial (program, made_s);
CREATE INDEX uneventful_start ON trial (program, id) WHERE uneventful;

-- One row each time a decision differs from the one before, and one per trial begun.
CREATE TABLE decision (
    id        INTEGER PRIMARY KEY,
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    at_s      REAL NOT NULL,
    candidate TEXT NOT NULL,
    trial     INTEGER NOT NULL,
    trial_id  TEXT,                         -- of a trial begun
    retest_s  REAL,                         -- waiting time between tests in force then
    reason    TEXT NOT NULL,                -- id of the reason
    because   TEXT NOT NULL                 -- the sentence and the evidence, for people
) STRICT;
CREATE INDEX decision_of_program ON decision (program, id);
CREATE INDEX decision_of_trial ON decision (trial_id) WHERE trial_id IS NOT NULL;

CREATE TABLE pin (
    program   INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    at_s      REAL NOT NULL
) STRICT;

CREATE TABLE exclusion (
    path TEXT PRIMARY KEY,                  -- resolved path of an executable or script
    at_s REAL NOT NULL
) STRICT;

CREATE TABLE lift (
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    at_s      REAL NOT NULL,
    PRIMARY KEY (program, candidate)
) STRICT;

-- What was found out about a file; void as soon as the file changes.
CREATE TABLE file_fact (
    path   TEXT NOT NULL,
    kind   TEXT NOT NULL,
    stamp  TEXT NOT NULL,                   -- device, inode, size, modification and change time
    fact   TEXT NOT NULL,                   -- JSON
    PRIMARY KEY (path, kind)
) STRICT;
";

pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let migrations = Migrations::new(vec![M::up(FIRST)]);
    match migrations.to_latest(connection) {
        // Another process may have done it between our look at the version and our turn to write.
        Err(_) if migrations.pending_migrations(connection)? == 0 => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migrations_are_sound() {
        Migrations::new(vec![M::up(FIRST)]).validate().unwrap();
    }

    #[test]
    fn many_may_open_a_new_store_at_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("imas.db");
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        crate::Store::open(&path).unwrap();
                    });
                }
            });
        }
    }
}
