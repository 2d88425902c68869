// SPDX-License-Identifier: Apache-2.0
//! The store: samples and decisions as events, and the operator's overrides.
//!
//! One SQLite file, which several processes may use at once. Samples are appended and never changed.
//! `imas-core` computes every conclusion (profile, picks, quarantine) anew from them, so a better policy can
//! be replayed over old samples. [`Store`] opens the file and sets a damaged one aside; [`Store::view`] is a copy in
//! memory for commands that only read.

pub mod daemon;
pub mod decisions;
pub mod fleet;
pub mod lives;
pub mod memory;
pub mod samples;
mod schema;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Params, Row};

/// A row's number.
pub type RowId = i64;

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    set_aside: Option<PathBuf>,
}

/// Errors of the store. None of them may keep a program from starting.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum StoreError {
    /// The folder could not be made or the file not reached.
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// SQLite returned an error.
    #[error("{}: {error}", .path.display())]
    Open { path: PathBuf, error: rusqlite::Error },
    /// A database of another program.
    #[error("{}: no store of imas", .0.display())]
    Foreign(PathBuf),
    /// A statement failed.
    #[error("the store refused: {0}")]
    Sql(#[from] rusqlite::Error),
    /// The tables are from another version of IMAS.
    #[error(
        "the store's schema does not fit this version of imas: its number is {found}, and here it is {}",
        schema::VERSION
    )]
    OtherVersion { found: i64 },
    /// A stored value could not be written as or read from JSON.
    #[error("a stored value cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// Number of log pages at which SQLite writes the log back: 400 KiB. The next opening reads the log again.
const LOG_PAGES: u32 = 100;
/// How long a statement waits for another process before it fails, unless it is set otherwise.
pub const BUSY: Duration = Duration::from_secs(5);

impl Store {
    /// Opens the store, making file and folder (mode 0700) if they are missing. A damaged file is renamed and
    /// a new one created: see [`Store::set_aside`].
    ///
    /// # Errors
    /// When the file cannot be opened, or belongs to another version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_within(path, BUSY)
    }

    /// Opens the store as [`Store::open`] does, and waits at most `timeout` for other processes. The start of
    /// a program must not wait long.
    ///
    /// # Errors
    /// When [`Store::open`] would fail, and when the store stays locked.
    pub fn open_within(path: &Path, timeout: Duration) -> Result<Self, StoreError> {
        match Self::open_as_it_is(path, timeout) {
            Err(error) if error.is_damage() => {
                let aside = set_aside(path)?;
                let mut store = Self::try_open(path, timeout)?;
                store.set_aside = Some(aside);
                Ok(store)
            }
            opened => opened,
        }
    }

    /// Opens a store whose file the user named. A file that is no store is left unchanged.
    ///
    /// # Errors
    /// When [`Store::open_within`] would fail, and when the file is damaged or something else.
    pub fn open_as_it_is(path: &Path, timeout: Duration) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        Self::try_open(path, timeout)
    }

    /// Opens an existing store for reading alone.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let connection = schema::reader(path)?;
        // A file without a version is empty or belongs to another program.
        match schema::is_current(&connection)? {
            true => Ok(Self { connection, set_aside: None }),
            false => Err(StoreError::Foreign(path.to_owned())),
        }
    }

    fn try_open(path: &Path, timeout: Duration) -> Result<Self, StoreError> {
        let open = |error| StoreError::Open { path: path.to_owned(), error };
        check_kind(path)?;
        let mut connection = Connection::open(path).map_err(open)?;
        connection.busy_timeout(timeout).map_err(open)?;
        believe_nothing(&connection).map_err(open)?;
        if is_foreign(&connection).map_err(open)? {
            return Err(StoreError::Foreign(path.to_owned()));
        }
        // WAL allows readers and a writer at once. With NORMAL, committed data survive a crash of this
        // process. A power cut may undo the last moments, but it also loses the trial pages, which are in
        // memory.
        use_wal(&connection, timeout).map_err(open)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(open)?;
        // On closing, SQLite would write the log back and delete it: four fsyncs before the exec of every
        // program. So the log stays. The process that fills it writes it back.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(open)?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES).map_err(open)?;
        schema::prepare(&mut connection)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(open)?;
        Ok(Self { connection, set_aside: None })
    }

    /// Renames the file, whatever its contents, and creates a new one.
    ///
    /// # Errors
    /// When the file cannot be renamed, or no new one be made.
    pub fn begin_anew(path: &Path) -> Result<Self, StoreError> {
        let aside = set_aside(path)?;
        let mut store = Self::open(path)?;
        store.set_aside = Some(aside);
        Ok(store)
    }

    /// The new path of the damaged file that was set aside. The caller reports it to the user.
    #[must_use]
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// SQLite's own check of every page. Returns the problems; empty if there are none.
    ///
    /// # Errors
    /// When the check itself cannot run.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    /// A number that changes when another connection has written to the file, but not when this one has.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn foreign_changes(&self) -> Result<i64, StoreError> {
        Ok(self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The rows that a statement selects.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_map(values, read)?.collect::<Result<_, _>>()?)
    }

    /// The row that a statement selects; None without one.
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.query_row(values, read).optional()?)
    }

    /// Runs a statement. Returns the number of rows that it wrote or deleted.
    pub(crate) fn run(&self, sql: &str, values: impl Params) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }
}

/// Root may read the store of a user, and the user can put anything in its place. Opening a pipe would block,
/// and reading a device would not end.
fn check_kind(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(StoreError::Foreign(path.to_owned())),
        _ => Ok(()), // if metadata cannot be read, SQLite reports the error
    }
}

/// Treats the contents of the file as untrusted: no trigger or view in it runs, and its schema cannot be
/// changed by writing to it.
fn believe_nothing(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(())
}

/// Whether the database has tables, but no version or not the tables of a store. The version alone is not
/// enough: other programs set one, too. One statement, because another process may create the tables
/// meanwhile.
fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    const SEEN: &str = "SELECT (SELECT user_version FROM pragma_user_version), count(*), \
        total(type = 'table' AND name IN ('program', 'trial', 'decision')) FROM sqlite_schema";
    connection.query_row(SEEN, [], |row| {
        let (version, all, ours): (i64, i64, f64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(all > 0 && (version == 0 || ours < 3.0))
    })
}

/// The switch to WAL needs exclusive access and does not wait for it. Of several processes that open a new
/// store at once, all but one would get the error "busy".
fn use_wal(connection: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    let start = Instant::now();
    loop {
        let done = connection.pragma_update(None, "journal_mode", "wal");
        let busy =
            |error: &rusqlite::Error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        if !done.as_ref().is_err_and(busy) || start.elapsed() > timeout {
            return done;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl StoreError {
    /// Whether the file or its folder may not be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ReadOnly))
    }

    /// Whether the file itself is damaged. Waiting does not help then, but [`Store::begin_anew`] does.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let code = match self {
            Self::Open { error, .. } | Self::Sql(error) => error.sqlite_error_code(),
            _ => None,
        };
        matches!(code, Some(DatabaseCorrupt | NotADatabase))
    }
}

fn make_folder(folder: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| StoreError::Io { path: folder.to_owned(), error })
}

/// Renames the file and SQLite's files beside it, so that their data stay available for inspection.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let with_suffix = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    // Several processes may find the damage within one second. None may overwrite a file that another one set
    // aside.
    let names = (0..).map(|again| match again {
        0 => with_suffix(path, &format!(".corrupt-{seconds}")),
        again => with_suffix(path, &format!(".corrupt-{seconds}-{again}")),
    });
    let mut free = names.skip_while(|name| name.symlink_metadata().is_ok());
    let aside = free.next().unwrap_or_else(|| with_suffix(path, ".corrupt"));
    for suffix in ["", "-wal", "-shm"] {
        let from = with_suffix(path, suffix);
        match std::fs::rename(&from, with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Io { path: from, error });
            }
            _ => {}
        }
    }
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_file_are_made_and_found_again() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/imas.db");
        drop(Store::open(&path).unwrap());
        let store = Store::open(&path).unwrap();
        assert_eq!(store.set_aside(), None);
        assert!(store.check().unwrap().is_empty());
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn closing_leaves_the_log_in_place_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let before = Store::open(&path).unwrap().program("/bin/a", "").unwrap();
        let log = std::fs::metadata(folder.path().join("imas.db-wal")).unwrap();
        assert!(log.len() > 0, "the log was written back at closing");
        assert_eq!(Store::open(&path).unwrap().programs().unwrap(), [before]);
    }

    #[test]
    fn garbage_is_set_aside_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        std::fs::write(&path, "not a database at all, but long enough to look at\n".repeat(50)).unwrap();
        let store = Store::open(&path).unwrap();
        let aside = store.set_aside().unwrap();
        assert!(std::fs::read_to_string(aside).unwrap().starts_with("not a database"));
        assert!(store.check().unwrap().is_empty());
    }

    #[test]
    fn a_store_that_was_set_aside_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let kept: Vec<_> = ["first", "second", "third"]
            .iter()
            .map(|text| {
                // The log of the earlier store would restore its pages over the damage.
                let _ = std::fs::remove_file(folder.path().join("imas.db-wal"));
                std::fs::write(&path, text.repeat(500)).unwrap();
                let store = Store::open(&path).unwrap();
                (text, store.set_aside().unwrap().to_owned())
            })
            .collect();
        for (text, aside) in kept {
            assert!(std::fs::read_to_string(&aside).unwrap().starts_with(text), "{}", aside.display());
        }
    }

    #[test]
    fn an_unreachable_place_is_an_error_that_names_it() {
        let error = Store::open(Path::new("/proc/no/imas.db")).unwrap_err();
        assert!(error.to_string().contains("/proc/no"), "{error}");
    }

    #[test]
    fn only_a_regular_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, zero) = (folder.path().join("fifo.db"), folder.path().join("zero.db"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        for path in [&fifo, &zero, &folder.path().to_owned()] {
            assert!(matches!(Store::open_read_only(path), Err(StoreError::Foreign(_))), "{path:?}");
            assert!(matches!(Store::open(path), Err(StoreError::Foreign(_))), "{path:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no file may be set aside");
    }

    #[test]
    fn triggers_and_views_of_the_file_do_not_run() {
        let (folder, store) = samples::tests::temporary();
        let path = folder.path().join("imas.db");
        store.program("/bin/x", "").unwrap();
        drop(store);
        let theirs = Connection::open(&path).unwrap();
        theirs
            .execute_batch(
                "CREATE TRIGGER evil AFTER INSERT ON program BEGIN UPDATE program SET path = 'evil'; END;
                 ALTER TABLE pin RENAME TO hidden;
                 CREATE VIEW pin AS WITH RECURSIVE n (program) AS (SELECT 1 UNION ALL SELECT program + 1 FROM n)
                     SELECT program, 'evil' AS candidate, 0.0 AS at_s FROM n;",
            )
            .unwrap();
        drop(theirs);
        let store = Store::open(&path).unwrap();
        let new = store.program("/bin/y", "").unwrap();
        assert!(store.programs().unwrap().iter().all(|program| program.path != "evil"));
        assert!(store.pinned(new.id).is_err(), "a view must not serve as a table");
    }

    #[test]
    fn another_programs_database_is_left_alone_whatever_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.db");
        let theirs = Connection::open(&path).unwrap();
        theirs.execute_batch("CREATE TABLE notes (text TEXT); PRAGMA user_version = 2;").unwrap();
        drop(theirs);
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Foreign(_))));
        assert!(matches!(Store::open_read_only(&path), Err(StoreError::Foreign(_))));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
