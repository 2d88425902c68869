// SPDX-License-Identifier: Apache-2.0
//! The tables. No released version has others yet, so nothing is migrated.
//!
//! A copy in memory, for commands that only read. What they add to it does not reach the file.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params_from_iter};

use crate::{BUSY, Store, StoreError, believe_nothing, check_kind, is_foreign};

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
/// When the tables are from another version, or cannot be made.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    if is_current(connection)? {
        return Ok(());
    }
    // Where several processes open a new store at once, one makes the tables while the others wait.
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

impl Store {
    /// A copy of the file in memory, with its tables. Empty if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, is not a store, or is of another version.
    pub fn view(path: &Path) -> Result<Self, StoreError> {
        let open = |error| StoreError::Open { path: path.to_owned(), error };
        let mut copy = Connection::open_in_memory().map_err(open)?;
        believe_nothing(&copy).map_err(open)?;
        copy.pragma_update(None, "foreign_keys", false).map_err(open)?;
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::Io { path: path.to_owned(), error }),
            Ok(_) => copy_all(&reader(path)?, &copy)?,
        }
        prepare(&mut copy)?;
        copy.pragma_update(None, "foreign_keys", true).map_err(open)?;
        Ok(Self { connection: copy, set_aside: None })
    }
}

/// The file, opened for reading alone.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let open = |error| StoreError::Open { path: path.to_owned(), error };
    check_kind(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(open)?;
    connection.busy_timeout(BUSY).map_err(open)?;
    believe_nothing(&connection).map_err(open)?;
    match is_foreign(&connection).map_err(open)? {
        true => Err(StoreError::Foreign(path.to_owned())),
        false => Ok(connection),
    }
}

/// Copies the tables with their rows, then the indexes, within one read transaction.
fn copy_all(from: &Connection, to: &Connection) -> Result<(), StoreError> {
    const PARTS: &str = "SELECT type, name, sql FROM sqlite_schema
        WHERE type IN ('table', 'index') AND sql IS NOT NULL AND name NOT LIKE 'sqlite%'
        ORDER BY type DESC, rowid";
    from.execute_batch("BEGIN")?;
    to.execute_batch("BEGIN")?;
    let mut statement = from.prepare(PARTS)?;
    let parts = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    for part in parts {
        let (kind, name, sql) = part?;
        // SQLite reads only the first statement of such a text. The maker of the file may have added others: they are
        // an error here.
        to.execute(&sql, [])?;
        if kind == "table" {
            copy_rows(from, to, &name)?;
        }
    }
    let version: i64 = from.pragma_query_value(None, "user_version", |row| row.get(0))?;
    to.execute_batch("COMMIT")?;
    to.pragma_update(None, "user_version", version)?;
    Ok(())
}

fn copy_rows(from: &Connection, to: &Connection, table: &str) -> Result<(), StoreError> {
    let table = table.replace('"', "\"\"");
    let mut rows = from.prepare(&format!("SELECT * FROM \"{table}\""))?;
    let columns = rows.column_count();
    let places = vec!["?"; columns].join(", ");
    let mut insert = to.prepare(&format!("INSERT INTO \"{table}\" VALUES ({places})"))?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>()?;
        insert.execute(params_from_iter(values))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;

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

    #[test]
    fn an_addition_to_a_view_does_not_reach_the_file() {
        let (folder, store) = temporary();
        let path = folder.path().join("imas.db");
        let known = store.program("/bin/a", "").unwrap();
        store.pin(known.id, "jemalloc", 1.0).unwrap();
        let view = Store::view(&path).unwrap();
        assert_eq!(view.programs().unwrap(), std::slice::from_ref(&known));
        assert_eq!(view.pinned(known.id).unwrap().as_deref(), Some("jemalloc"));
        let new = view.program("/bin/b", "").unwrap();
        assert_ne!(new.id, known.id);
        assert_eq!(store.programs().unwrap(), [known]);
    }

    #[test]
    fn no_statement_of_the_file_runs_but_those_that_make_its_tables() {
        let (folder, store) = temporary();
        let (path, other) = (folder.path().join("imas.db"), folder.path().join("other.db"));
        drop(store);
        let theirs = Connection::open(&path).unwrap();
        theirs.execute_batch("PRAGMA writable_schema = ON").unwrap();
        let more = format!("; ATTACH '{}' AS other; CREATE TABLE other.made (x)", other.display());
        let changed = theirs.execute("UPDATE sqlite_schema SET sql = sql || ?1 WHERE name = 'pin'", [more]);
        assert_eq!(changed.unwrap(), 1);
        drop(theirs);
        assert!(Store::view(&path).is_err());
        assert!(!other.exists());
    }

    #[test]
    fn a_store_that_is_not_there_is_empty_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/imas.db");
        assert!(Store::view(&path).unwrap().programs().unwrap().is_empty());
        assert!(!path.parent().unwrap().exists());
        std::fs::write(folder.path().join("text"), "no database\n".repeat(100)).unwrap();
        assert!(Store::view(&folder.path().join("text")).unwrap_err().is_damage());
    }
}
