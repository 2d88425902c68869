// SPDX-License-Identifier: Apache-2.0
//! Programs whose next start is to be recorded, and recordings that wait for their replay: one of each
//! program.

use rusqlite::{Row, params};

use crate::{RowId, Store, StoreError};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AskedRecording {
    /// Unix time in seconds.
    pub at_s: f64,
    /// Most bytes of raw files.
    pub limit_bytes: u64,
    /// Seconds from the start; None: to the end of the program.
    pub window_s: Option<f64>,
}

/// The start that is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct BegunRecording {
    /// Unix time in seconds.
    pub at_s: f64,
    /// Where the raw files are.
    pub folder: String,
    /// Build-id of the program.
    pub build_id: String,
    /// Id of the process that is recorded.
    pub pid: u32,
    /// When that process started, clock ticks since boot.
    pub start_ticks: u64,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// Why a recording came to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedRecording {
    /// Unix time in seconds.
    pub at_s: f64,
    /// Why the recording came to nothing, in words.
    pub why: String,
}

/// A program that is to be recorded, or was.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramRecording {
    /// The program.
    pub program: RowId,
    /// What was asked for.
    pub asked: AskedRecording,
    /// The start that is recorded; None before that start.
    pub begun: Option<BegunRecording>,
    /// Set where nothing was learned from it. Then its files are gone, and nothing is recorded until it is asked for
    /// again.
    pub refused: Option<RefusedRecording>,
}

impl ProgramRecording {
    /// Whether the next start is to be recorded.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.begun.is_none() && self.refused.is_none()
    }

    /// The start that was recorded and waits for its replay.
    #[must_use]
    pub fn waiting(&self) -> Option<&BegunRecording> {
        self.begun.as_ref().filter(|_| self.refused.is_none())
    }
}

const COLUMNS: &str = "program, asked_s, limit_bytes, window_s, begun_s, folder, build_id, pid, start_ticks, boot_id, refused, refused_s";

impl Store {
    /// Asks for the next start to be recorded, again where an earlier recording came to nothing. Returns whether that
    /// is new.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn ask_recording(&self, program: RowId, asked: &AskedRecording) -> Result<bool, StoreError> {
        let sql = "INSERT INTO recording (program, asked_s, limit_bytes, window_s) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET asked_s = ?2, limit_bytes = ?3, window_s = ?4, begun_s = NULL,
                   folder = NULL, build_id = NULL, pid = NULL, start_ticks = NULL, boot_id = NULL, refused = NULL,
                   refused_s = NULL WHERE refused IS NOT NULL";
        let limit = asked.limit_bytes.cast_signed();
        Ok(self.run(sql, params![program, asked.at_s, limit, asked.window_s])? > 0)
    }

    /// The recording of the program, asked for or begun.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn recording(&self, program: RowId) -> Result<Option<ProgramRecording>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM recording WHERE program = ?1");
        self.row(&sql, [program], recording_of)
    }

    /// All recordings that are asked for, or were made.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn recordings(&self) -> Result<Vec<ProgramRecording>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM recording ORDER BY asked_s, program");
        self.rows(&sql, [], recording_of)
    }

    /// Takes the recording that is asked for. Returns `false` if another start has taken it, or nothing is
    /// asked.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn begin_recording(&self, program: RowId, begun: &BegunRecording) -> Result<bool, StoreError> {
        let sql = "UPDATE recording SET begun_s = ?2, folder = ?3, build_id = ?4, pid = ?5, start_ticks = ?6,
                   boot_id = ?7 WHERE program = ?1 AND folder IS NULL AND refused IS NULL";
        let BegunRecording { at_s, folder, build_id, pid, start_ticks, boot_id } = begun;
        let ticks = start_ticks.cast_signed();
        Ok(self.run(sql, params![program, at_s, folder, build_id, pid, ticks, boot_id])? > 0)
    }

    /// Nothing was learned from the recording of this build. Returns `false` where there is none.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn refuse_recording(
        &self,
        program: RowId,
        build_id: &str,
        refused: &RefusedRecording,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE recording SET refused = ?2, refused_s = ?3, build_id = ?4 WHERE program = ?1";
        let RefusedRecording { at_s, why } = refused;
        Ok(self.run(sql, params![program, why, at_s, build_id])? > 0)
    }

    /// Removes the recording: it was replayed, failed, or is no longer wanted.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn end_recording(&self, program: RowId) -> Result<bool, StoreError> {
        Ok(self.run("DELETE FROM recording WHERE program = ?1", [program])? > 0)
    }
}

fn recording_of(row: &Row<'_>) -> rusqlite::Result<ProgramRecording> {
    let asked = AskedRecording {
        at_s: row.get(1)?,
        limit_bytes: row.get::<_, i64>(2)?.cast_unsigned(),
        window_s: row.get(3)?,
    };
    let begun = match row.get::<_, Option<String>>(5)? {
        None => None,
        Some(folder) => Some(BegunRecording {
            at_s: row.get(4)?,
            folder,
            build_id: row.get(6)?,
            pid: row.get(7)?,
            start_ticks: row.get::<_, i64>(8)?.cast_unsigned(),
            boot_id: row.get(9)?,
        }),
    };
    let refused = match row.get::<_, Option<String>>(10)? {
        None => None,
        Some(why) => Some(RefusedRecording { at_s: row.get(11)?, why }),
    };
    Ok(ProgramRecording { program: row.get(0)?, asked, begun, refused })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::temporary;

    #[test]
    fn one_start_takes_what_was_asked_for() {
        let (_folder, mut store) = temporary();
        let program = store.program("/bin/a", "").unwrap().id;
        let begun = BegunRecording {
            at_s: 2.0,
            folder: "/tmp/r".to_owned(),
            build_id: "b".to_owned(),
            pid: 7,
            start_ticks: 9,
            boot_id: "boot".to_owned(),
        };
        assert!(!store.begin_recording(program, &begun).unwrap(), "nothing is asked");
        let asked = AskedRecording { at_s: 1.0, limit_bytes: 1 << 30, window_s: Some(60.0) };
        assert!(store.ask_recording(program, &asked).unwrap());
        assert!(!store.ask_recording(program, &asked).unwrap(), "it is asked already");
        assert!(store.begin_recording(program, &begun).unwrap());
        assert!(!store.begin_recording(program, &begun).unwrap(), "another start has it");
        let known = ProgramRecording { program, asked, begun: Some(begun.clone()), refused: None };
        assert_eq!(store.recording(program).unwrap().as_ref(), Some(&known));
        assert_eq!(store.recordings().unwrap(), [known]);
        assert!(store.end_recording(program).unwrap() && store.recordings().unwrap().is_empty());
        assert!(store.ask_recording(program, &asked).unwrap());
        let refused = RefusedRecording { at_s: 5.0, why: "no call was recorded".to_owned() };
        assert!(store.begin_recording(program, &begun).unwrap());
        assert!(store.refuse_recording(program, "b", &refused).unwrap());
        let known = store.recording(program).unwrap().unwrap();
        assert!(known.waiting().is_none() && !known.is_asked());
        assert_eq!(known.refused, Some(refused));
        assert!(!store.begin_recording(program, &begun).unwrap(), "it is not asked for any more");
        assert!(store.ask_recording(program, &asked).unwrap(), "again");
        assert!(store.recording(program).unwrap().unwrap().is_asked());
        store.forget(program).unwrap();
        assert!(store.recordings().unwrap().is_empty());
    }
}
