// SPDX-License-Identifier: Apache-2.0
//! Whether anything stored about a program has changed, for programs that look again and again.

use rusqlite::types::Value;

use crate::{RowId, Store, StoreError};

/// What is stored about a program, in a few numbers: two equal ones mean that nothing was added or removed.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramRevision(Vec<Value>);

impl Store {
    /// The revision of a program now.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn revision(&self, program: RowId) -> Result<ProgramRevision, StoreError> {
        const SQL: &str = "SELECT (SELECT count(*) FROM trial WHERE program = ?1),
            (SELECT coalesce(max(id), 0) FROM trial WHERE program = ?1),
            (SELECT coalesce(max(id), 0) FROM decision WHERE program = ?1),
            (SELECT candidate FROM pin WHERE program = ?1),
            (SELECT coalesce(max(at_s), 0.0) FROM lift WHERE program = ?1),
            (SELECT count(*) FROM exclusion), (SELECT count(*) FROM disabled),
            (SELECT count(*) FROM life_window WHERE program = ?1)";
        let mut statement = self.connection().prepare_cached(SQL)?;
        let columns = statement.column_count();
        let values = statement.query_row([program], |row| (0..columns).map(|at| row.get(at)).collect())?;
        Ok(ProgramRevision(values))
    }
}

#[cfg(test)]
mod tests {
    use crate::samples::tests::temporary;

    #[test]
    fn every_change_of_a_program_changes_its_revision() {
        let (_folder, store) = temporary();
        let [one, other] = ["/bin/a", "/bin/b"].map(|path| store.program(path, "").unwrap().id);
        let untouched = store.revision(other).unwrap();
        let mut seen = vec![store.revision(one).unwrap()];
        store.pin(one, "jemalloc", 1.0).unwrap();
        seen.push(store.revision(one).unwrap());
        store.pin(one, "mimalloc", 2.0).unwrap();
        seen.push(store.revision(one).unwrap());
        store.unblock(one, "jemalloc", 3.0).unwrap();
        seen.push(store.revision(one).unwrap());
        assert_eq!(store.revision(other).unwrap(), untouched);
        store.exclude("/bin/a", 4.0).unwrap();
        seen.push(store.revision(one).unwrap());
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
        assert_eq!(store.revision(one).unwrap(), seen[4]);
    }
}
