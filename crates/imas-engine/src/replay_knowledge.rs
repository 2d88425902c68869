// SPDX-License-Identifier: Apache-2.0
//! What replays of a recorded run predicted of a program, corrected by how far off such predictions were.

use imas_core::adaptive::Point;
use imas_core::reliability::{CheckedPrediction, PredictedFigure, RecordedRunFacts, ReliabilityTable};
use imas_core::{ProfileView, ReplayPrior};
use imas_store::predictions::StoredCheck;
use imas_store::{RowId, Store, StoreError};

/// Reliability of predictions, as `imas-lab study replay --reliability` measured it. It is part of the programs, so
/// all of them go by the same one.
const SHIPPED: &str = include_str!("../replay-reliability.json");
/// Predictions older than this no longer count, seconds: as trials, 90 days.
const MAX_AGE_S: f64 = 90.0 * 24.0 * 3600.0;

/// The predictions of a program that hold for its present build on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayKnowledge {
    /// When the predictions were made, Unix time in seconds.
    pub at_s: f64,
    prior: ReplayPrior,
    run: RecordedRunFacts,
}

impl ReplayKnowledge {
    /// Reads the knowledge from the store. None where there are no predictions, or these are of another build
    /// or other page settings.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(
        store: &Store,
        program: RowId,
        build_id: &str,
        machine: &str,
    ) -> Result<Option<Self>, StoreError> {
        let stored = store.predictions(program)?;
        let holds = stored.filter(|stored| stored.build_id == build_id && stored.machine == machine);
        let Some(stored) = holds else { return Ok(None) };
        let own: Vec<_> = store.checks_of_others(program)?.iter().flat_map(checked).collect();
        let table = shipped().corrected_by(&own);
        Ok(Some(Self {
            at_s: stored.at_s,
            prior: ReplayPrior::new(&stored.differences, &stored.run, &table),
            run: stored.run,
        }))
    }

    /// What the program's own trials say of the predictions, of every candidate that they prove to differ from
    /// `system`, or to be no better; the others would teach noise.
    #[must_use]
    pub fn checks(&self, profile: &ProfileView) -> Vec<StoredCheck> {
        let Some(adaptive) = &profile.adaptive else { return vec![] };
        let checked = adaptive.checked_predictions();
        let stored = |(candidate, off): (String, Point)| StoredCheck {
            candidate,
            run: self.run,
            cpu: off.cpu,
            memory: off.memory,
        };
        checked.into_iter().map(stored).collect()
    }

    /// The prior at `now_unix_s`; None once it is too old.
    #[must_use]
    pub fn prior(&self, now_unix_s: f64) -> Option<&ReplayPrior> {
        (now_unix_s - self.at_s <= MAX_AGE_S).then_some(&self.prior)
    }
}

/// Checked predictions of CPU time and of memory, from a stored check.
fn checked(stored: &StoredCheck) -> [CheckedPrediction; 2] {
    let of = |(figure, off)| CheckedPrediction {
        figure,
        candidate: stored.candidate.clone(),
        run: stored.run,
        off,
    };
    [(PredictedFigure::Cpu, stored.cpu), (PredictedFigure::Memory, stored.memory)].map(of)
}

/// The shipped table.
#[must_use]
pub fn shipped() -> ReliabilityTable {
    // The test below reads it; without one all predictions have the same.
    ReliabilityTable::parse(SHIPPED).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::Candidate;
    use imas_core::replay_prior::PredictedDifference;
    use imas_store::predictions::StoredPredictions;

    #[test]
    fn the_shipped_table_is_sound() {
        let table = ReliabilityTable::parse(SHIPPED).unwrap();
        assert!(table.schema == 1 && table.programs > 60, "{} programs", table.programs);
    }

    #[test]
    fn predictions_hold_for_the_build_the_machine_and_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let program = store.program("/bin/a", "").unwrap().id;
        let difference = PredictedDifference {
            candidate: "jemalloc".to_owned(),
            version: "5.3".to_owned(),
            cpu: -0.2,
            memory: 0.1,
        };
        let made = StoredPredictions {
            at_s: 100.0,
            build_id: "b".to_owned(),
            machine: "m".to_owned(),
            run: RecordedRunFacts::default(),
            differences: vec![difference],
        };
        store.set_predictions(program, &made).unwrap();
        let read = |build_id, machine| ReplayKnowledge::read(&store, program, build_id, machine).unwrap();
        assert!(read("b2", "m").is_none() && read("b", "m2").is_none());
        let known = read("b", "m").unwrap();
        assert!(known.prior(100.0 + 2.0 * MAX_AGE_S).is_none());
        let candidates = |version| [Candidate::system(""), Candidate::new("jemalloc", version, &[])];
        let evidence = known.prior(200.0).unwrap().evidence(&candidates("5.3"));
        assert!((evidence.candidates[1].as_ref().unwrap().predicted.cpu + 0.2).abs() < 1e-12);
        assert_eq!(known.prior(200.0).unwrap().evidence(&candidates("6")).candidates, [None, None]);
    }
}
