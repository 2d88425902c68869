// SPDX-License-Identifier: Apache-2.0
//! Trust domains: which samples a decision may use.
//!
//! Samples of root and of system accounts count for every user. Samples of a user count for that user alone.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Serialize, Serializer};

/// Stored number of the owner's own domain.
const OWN: i64 = -1;
/// Stored number of everybody's domain. It is the same number as the index's `IMAS_ANY_UID`.
const EVERYBODY: i64 = u32::MAX as i64;

/// The trust domain of programs and samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The store of one user, as `imas run` keeps it. All of its samples are the owner's.
    Own,
    /// Measured by root or a system account; counts for every user.
    Everybody,
    /// Measured by this user's processes; counts for this user alone.
    User(u32),
}

impl Domain {
    /// Whether this is a user's own store.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// Whether its samples count for every user.
    #[must_use]
    pub fn is_everybodys(&self) -> bool {
        *self == Self::Everybody
    }

    /// A word for logs and JSON: `own`, `everybody` or the uid.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Own => "own".to_owned(),
            Self::Everybody => "everybody".to_owned(),
            Self::User(uid) => uid.to_string(),
        }
    }
}

impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word())
    }
}

impl ToSql for Domain {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(match self {
            Self::Own => OWN,
            Self::Everybody => EVERYBODY,
            Self::User(uid) => i64::from(*uid),
        }))
    }
}

impl FromSql for Domain {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            OWN => Ok(Self::Own),
            EVERYBODY => Ok(Self::Everybody),
            other => u32::try_from(other).map(Self::User).map_err(|_| FromSqlError::OutOfRange(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;

    #[test]
    fn one_path_is_a_program_of_its_own_in_each_domain() {
        let (_folder, store) = temporary();
        let domains = [Domain::Own, Domain::Everybody, Domain::User(1000), Domain::User(1001)];
        let programs = domains.map(|domain| store.program_in(domain, "/bin/x", "").unwrap());
        for (program, domain) in programs.iter().zip(domains) {
            assert_eq!(program.domain, domain);
            assert_eq!(store.find_program_in(domain, "/bin/x", "").unwrap().as_ref(), Some(program));
        }
        assert_eq!(store.programs_at("/bin/x").unwrap().len(), 4);
    }
}
