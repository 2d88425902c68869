// SPDX-License-Identifier: Apache-2.0
//! A copy in memory, for commands that only read. What they add to it does not reach the file.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use crate::{BUSY, Store, StoreError, believe_nothing, check_kind, is_foreign, schema};

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
        schema::prepare(&mut copy)?;
        copy.pragma_update(None, "foreign_keys", true).map_err(open)?;
        Ok(Self { connection: copy, set_aside: None })
    }
}

/// The file, opened for reading alone.
pub(crate) fn reader(path: &Path) -> Result<Connection, StoreError> {
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
