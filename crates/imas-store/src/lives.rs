// SPDX-License-Identifier: Apache-2.0
//! Processes of services that live on: their memory, window by window ([`imas_core::service_life`]). Windows
//! are appended and never changed.

use std::collections::BTreeMap;

use imas_core::service_life::{LifeWindow, ServiceLife, UntouchedLife};
use rusqlite::{Row, params};

use crate::{RowId, Store, StoreError};

/// Number of untouched processes kept of each program, the newest.
const UNTOUCHED_KEPT: u32 = 64;

/// The process that a window is of.
#[derive(Debug, Clone, PartialEq)]
pub struct LivingProcess {
    /// The program.
    pub program: RowId,
    /// Name of the process: a trial's id, else a name that no other process has.
    pub name: String,
    /// Whether the process runs a trial; else IMAS left it untouched.
    pub is_trial: bool,
    /// Build-id of its executable; empty when it has none.
    pub build_id: String,
    /// Page settings and CPU count of the machine.
    pub machine: String,
    /// When the process began, Unix time in seconds.
    pub begun_s: f64,
}

impl Store {
    /// Appends a window. Returns `false` if the process has it already.
    ///
    /// # Errors
    /// When SQLite returns an error.
    pub fn add_life_window(&self, process: &LivingProcess, window: &LifeWindow) -> Result<bool, StoreError> {
        let sql = "INSERT INTO life_window (program, process, is_trial, build_id, machine, begun_s, until_s, figures)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
        let LivingProcess { program, name, is_trial, build_id, machine, begun_s } = process;
        let figures = serde_json::to_string(window)?;
        let values = params![program, name, is_trial, build_id, machine, begun_s, window.until_s, figures];
        let added = self.run(sql, values)?;
        if !is_trial {
            self.thin_out_untouched(*program)?;
        }
        Ok(added == 1)
    }

    fn thin_out_untouched(&self, program: RowId) -> Result<(), StoreError> {
        let sql = "DELETE FROM life_window WHERE program = ?1 AND NOT is_trial AND begun_s <
                   (SELECT begun_s FROM life_window WHERE program = ?1 AND NOT is_trial
                    GROUP BY process ORDER BY begun_s DESC LIMIT 1 OFFSET ?2)";
        self.run(sql, params![program, UNTOUCHED_KEPT - 1]).map(drop)
    }

    /// Untouched replicas of this build on this state of the machine, in the order in which they began.
    ///
    /// # Errors
    /// When SQLite returns an error, or a window cannot be read.
    pub fn untouched_lives(
        &self,
        program: RowId,
        build_id: &str,
        machine: &str,
    ) -> Result<Vec<UntouchedLife>, StoreError> {
        let sql = "SELECT process, begun_s, figures FROM life_window
                   WHERE program = ?1 AND NOT is_trial AND build_id = ?2 AND machine = ?3
                   ORDER BY begun_s, process, until_s";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows: Vec<(String, f64, String)> = self.rows(sql, params![program, build_id, machine], read)?;
        let mut lives: Vec<(String, UntouchedLife)> = vec![];
        for (name, begun_s, figures) in rows {
            let window = serde_json::from_str(&figures)?;
            match lives.last_mut().filter(|(known, _)| *known == name) {
                Some((_, untouched)) => untouched.life.windows.push(window),
                None => {
                    lives.push((name, UntouchedLife { begun_s, life: ServiceLife { windows: vec![window] } }))
                }
            }
        }
        Ok(lives.into_iter().map(|(_, untouched)| untouched).collect())
    }

    /// How the processes of a program's trials lived on, by trial id.
    pub(crate) fn lives_of_trials(
        &self,
        program: RowId,
    ) -> Result<BTreeMap<String, ServiceLife>, StoreError> {
        let sql = "SELECT process, figures FROM life_window WHERE program = ?1 AND is_trial ORDER BY process, until_s";
        let rows: Vec<(String, String)> = self.rows(sql, [program], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut lives: BTreeMap<String, ServiceLife> = BTreeMap::new();
        for (name, figures) in rows {
            lives.entry(name).or_default().windows.push(serde_json::from_str(&figures)?);
        }
        Ok(lives)
    }
}

#[cfg(test)]
mod tests {
    use imas_core::Sample;
    use imas_core::TrialRecord;
    use imas_core::service_life::Work;

    use super::*;
    use crate::samples::tests::temporary;

    fn window(until_s: f64) -> LifeWindow {
        let work = Some(Work { units: 5.0, cpu_s: 0.25 });
        LifeWindow {
            until_s,
            looks: 16,
            mean_bytes: 1 << 40,
            slope_bytes_per_h: -0.5,
            work,
            ..Default::default()
        }
    }

    fn process(program: RowId, name: &str, is_trial: bool, begun_s: f64) -> LivingProcess {
        let (build_id, machine) = ("b".to_owned(), "m".to_owned());
        LivingProcess { program, name: name.to_owned(), is_trial, build_id, machine, begun_s }
    }

    #[test]
    fn a_trial_is_read_with_the_life_of_its_process() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        for trial_id in ["t", "u"] {
            let sample = Sample { trial_id: trial_id.into(), ..Sample::default() };
            store.add_trial(program, &TrialRecord { sample, ..TrialRecord::default() }).unwrap();
        }
        let of_trial = process(program, "t", true, 1.0);
        for until_s in [1200.0, 600.0] {
            assert!(store.add_life_window(&of_trial, &window(until_s)).unwrap());
        }
        assert!(!store.add_life_window(&of_trial, &window(600.0)).unwrap(), "it is known");
        let trials = store.trials(program).unwrap();
        let life = ServiceLife { windows: vec![window(600.0), window(1200.0)] };
        assert_eq!(trials[0].sample.life, Some(life), "in order of age");
        assert_eq!(trials[1].sample.life, None);
        assert_eq!(store.untouched_lives(program, "b", "m").unwrap(), []);
    }

    #[test]
    fn untouched_replicas_are_those_of_the_build_and_machine_and_the_newest_are_kept() {
        let (_folder, store) = temporary();
        let program = store.program("/bin/x", "").unwrap().id;
        for number in 0..70u32 {
            let replica = process(program, &format!("p{number}"), false, f64::from(number));
            store.add_life_window(&replica, &window(600.0)).unwrap();
            store.add_life_window(&replica, &window(1200.0)).unwrap();
        }
        let lives = store.untouched_lives(program, "b", "m").unwrap();
        assert_eq!((lives.len(), lives[0].begun_s, lives[0].life.windows.len()), (64, 6.0, 2));
        assert_eq!(store.untouched_lives(program, "other", "m").unwrap(), []);
        assert_eq!(store.untouched_lives(program, "b", "other").unwrap(), []);
    }
}
