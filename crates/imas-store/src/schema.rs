// SPDX-License-Identifier: Apache-2.0
//! The tables. No released version has others yet, so nothing is migrated.

use rusqlite::{Connection, TransactionBehavior};

use crate::StoreError;

/// Version of the tables, in the file's `user_version`. Commits before the first release had 1 to 9.
pub(crate) const VERSION: i64 = 10;

const TABLES: &str = "
CREATE TABLE program (
    id     INTEGER PRIMARY KEY,
    domain INTEGER NOT NULL DEFAULT -1,     -- -1: the owner's own store; 4294967295: everybody's; else a uid
    path   TEXT NOT NULL,                   -- resolved path of the executable
    detail TEXT NOT NULL DEFAULT '',        -- script, jar or class of an interpreter; name of the start
    UNIQUE (domain, path, detail)
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
CREATE INDEX eventful_trial ON trial (made_s) WHERE NOT uneventful;

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

-- Trials that the index offers. The process that makes the page runs the trial. Deleted when the trial is
-- stored or withdrawn.
CREATE TABLE offer (
    token     TEXT PRIMARY KEY,             -- 16 hexadecimal digits, the page's name
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    retest_s  REAL NOT NULL,                -- waiting time between tests then in force
    at_s      REAL NOT NULL
) STRICT;
CREATE INDEX offer_of_program ON offer (program);

-- Processes that were seen alive and own a page: only those pages count.
CREATE TABLE witness (
    uid         INTEGER NOT NULL,
    page        TEXT NOT NULL,              -- name in the user's folder
    boot_id     TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    program     INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate   TEXT NOT NULL,
    PRIMARY KEY (uid, page)
) STRICT;

-- Allocators that harmed several programs: given to nobody until the library changes or the operator unblocks
-- them.
CREATE TABLE disabled (
    allocator TEXT PRIMARY KEY,
    version   TEXT NOT NULL,
    at_s      REAL NOT NULL,
    why       TEXT NOT NULL,
    lifted_s  REAL                          -- when the operator gave it back; what it did before is cleared
) STRICT;

-- What was published of a trial; kind: pair, void or crash.
CREATE TABLE fleet_published (
    trial INTEGER NOT NULL REFERENCES trial (id) ON DELETE CASCADE,
    kind  TEXT NOT NULL,
    PRIMARY KEY (trial, kind)
) STRICT, WITHOUT ROWID;

-- What was published of a program's residuals, in all.
CREATE TABLE fleet_residual (
    program  INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    subject  TEXT NOT NULL,                 -- program and environment as the fleet names them
    residual TEXT NOT NULL                  -- JSON
) STRICT;

-- The present boot and its messages so far.
CREATE TABLE fleet_boot (
    boot_id TEXT PRIMARY KEY,               -- of the kernel
    name    TEXT NOT NULL,                  -- random: a part of the messages' ids
    batch   INTEGER NOT NULL DEFAULT 0,     -- messages in this boot
    place   INTEGER NOT NULL                -- of the newest message
) STRICT;

-- Messages that are not written into the exchange folder yet.
CREATE TABLE fleet_message (
    place   INTEGER PRIMARY KEY,            -- the order of sending, over all boots
    boot    TEXT NOT NULL,
    batch   INTEGER NOT NULL,
    message TEXT NOT NULL                   -- JSON
) STRICT;

-- Statistics received from the fleet.
CREATE TABLE fleet_statistics (
    program    INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    subject    TEXT NOT NULL,
    statistics TEXT NOT NULL,               -- JSON
    known_s    REAL NOT NULL DEFAULT 0      -- Unix time of the first of this subject: it is checked later only
) STRICT;

-- As which host imasd takes part; no row: it does not.
CREATE TABLE fleet_member (
    host      TEXT NOT NULL,
    share     REAL NOT NULL,                -- of the hosts that may be in a trial of one program
    turn_s    REAL NOT NULL DEFAULT 600,    -- seconds of a turn
    reached_s REAL NOT NULL DEFAULT 0       -- Unix time of the last contact; without one a host tries as if alone
) STRICT;

-- Memory of a process in one part of its life; appended, never changed.
CREATE TABLE life_window (
    program  INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    process  TEXT NOT NULL,                 -- of a trial: trial_id
    is_trial INTEGER NOT NULL,              -- else it was left untouched
    build_id TEXT NOT NULL,                 -- of the executable
    machine  TEXT NOT NULL,                 -- page settings and CPU count
    begun_s  REAL NOT NULL,                 -- Unix time
    until_s  REAL NOT NULL,                 -- age of the process at the end of the window
    figures  TEXT NOT NULL,                 -- imas_core::service_life::LifeWindow as JSON
    PRIMARY KEY (program, process, until_s)
) STRICT, WITHOUT ROWID;
";

/// Makes the tables of a new file.
///
/// # Errors
/// When the tables are those of another version, or cannot be made.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    if is_current(connection)? {
        return Ok(());
    }
    // Of several processes that open a new store at once, one makes the tables while the others wait.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !is_current(&transaction)? {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(transaction.commit()?)
}

/// Whether the file has its tables already; false for a new file.
pub(crate) fn is_current(connection: &Connection) -> Result<bool, StoreError> {
    match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
        VERSION => Ok(true),
        0 => Ok(false),
        found => Err(StoreError::OtherVersion { found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_another_version_are_left_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        drop(crate::Store::open(&path).unwrap());
        for other in [VERSION - 1, VERSION + 1] {
            let connection = Connection::open(&path).unwrap();
            connection.pragma_update(None, "user_version", other).unwrap();
            drop(connection);
            let opened =
                [crate::Store::open(&path), crate::Store::open_read_only(&path), crate::Store::view(&path)];
            for refused in opened {
                let error = refused.unwrap_err();
                assert!(matches!(error, StoreError::OtherVersion { found } if found == other), "{error}");
                assert!(!error.is_damage());
            }
            let left: i64 = Connection::open(&path)
                .unwrap()
                .pragma_query_value(None, "user_version", |row| row.get(0))
                .unwrap();
            assert_eq!(left, other);
        }
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
                        // The limit allows for a slow disk. An error "busy" here came without waiting.
                        crate::Store::open_within(&path, std::time::Duration::from_secs(300)).unwrap();
                    });
                }
            });
        }
    }
}
