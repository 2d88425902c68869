// SPDX-License-Identifier: Apache-2.0
//! The table of how far predictions by replay were off, learned from predictions that live runs have judged.

use std::collections::BTreeMap;

use imas_replay::reliability::{
    BORROWED, CheckedPrediction, PredictedFigure, PredictionSpread, ProgramClass, RecordedRunFacts,
    ReliabilityEntry, ReliabilityTable,
};

/// The table of these predictions, of `programs` programs.
pub(super) fn learned(source: &str, programs: u32, checked: &[CheckedPrediction]) -> ReliabilityTable {
    let entries = PredictedFigure::ALL.into_iter().flat_map(|figure| entries_of(figure, checked));
    ReliabilityTable { schema: 1, source: source.to_owned(), programs, entries: entries.collect() }
}

/// Entries for a figure: of all candidates together, then of each candidate, each followed by its classes.
/// Empty where nothing was predicted.
fn entries_of(figure: PredictedFigure, checked: &[CheckedPrediction]) -> Vec<ReliabilityEntry> {
    let learn = |candidate: Option<&str>, class, of_cell: &[&CheckedPrediction], wider| {
        let offs: Vec<f64> = of_cell.iter().map(|one| one.off).collect();
        ReliabilityEntry {
            figure,
            candidate: candidate.map(str::to_owned),
            class,
            count: u32::try_from(offs.len()).unwrap_or(u32::MAX),
            error: PredictionSpread::of(offs, wider, BORROWED),
        }
    };
    let counts = |one: &&CheckedPrediction| one.figure == figure && one.off.is_finite();
    let everything: Vec<&CheckedPrediction> = checked.iter().filter(counts).collect();
    if everything.is_empty() {
        return vec![];
    }
    let unknown = ReliabilityTable::default().of(figure, "", &RecordedRunFacts::default());
    let all = learn(None, None, &everything, unknown);
    let wider = all.error;
    let mut entries = vec![all];
    let mut by_candidate: BTreeMap<&str, Vec<&CheckedPrediction>> = BTreeMap::new();
    everything.iter().for_each(|one| by_candidate.entry(&one.candidate).or_default().push(one));
    for (name, of_it) in by_candidate {
        let of_all = learn(Some(name), None, &of_it, wider);
        let wider = of_all.error;
        entries.push(of_all);
        let mut classes: BTreeMap<ProgramClass, Vec<&CheckedPrediction>> = BTreeMap::new();
        of_it.iter().for_each(|one| classes.entry(figure.class(&one.run)).or_default().push(one));
        let of_class = |(class, of_class): (ProgramClass, Vec<&CheckedPrediction>)| {
            learn(Some(name), Some(class), &of_class, wider)
        };
        entries.extend(classes.into_iter().map(of_class));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.05, peak_bytes: 1e9, threads: 1 };
    const SMALL: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.01, peak_bytes: 1e6, threads: 1 };
    const THREADED: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.5, peak_bytes: 1e6, threads: 4 };

    fn errors(candidate: &str, run: RecordedRunFacts, memory: &[f64]) -> Vec<CheckedPrediction> {
        let of = |&off: &f64| {
            [(PredictedFigure::Memory, off), (PredictedFigure::Cpu, 0.0)]
                .map(|(figure, off)| CheckedPrediction { figure, candidate: candidate.to_owned(), run, off })
        };
        memory.iter().flat_map(of).collect()
    }

    #[test]
    fn each_candidate_and_class_has_its_own_once_there_are_programs() {
        let mut all = errors("lean", LARGE, &[0.0; 40]);
        all.extend(errors("fat", LARGE, &[0.3, 0.5].repeat(20)));
        all.extend(errors("fat", SMALL, &[0.4]));
        let table = learned("a test", 1, &all);
        let memory = |candidate, run| table.of(PredictedFigure::Memory, candidate, &run);
        let (lean, fat) = (memory("lean", LARGE), memory("fat", LARGE));
        assert!(lean.mean.abs() < 0.03 && lean.deviation < 0.08, "{lean:?}");
        assert!((fat.mean - 0.4).abs() < 0.03 && (fat.deviation - 0.1).abs() < 0.05, "{fat:?}");
        let of_one = memory("fat", SMALL);
        assert!(of_one.mean > 0.3 && of_one.deviation > 0.5 * fat.deviation, "it borrows: {of_one:?}");
        assert!(memory("fat", THREADED).mean > 0.3, "of all classes");
        assert!(memory("new", SMALL).deviation > fat.deviation, "as wide as all together");
        assert_eq!(table.of(PredictedFigure::Cpu, "fat", &SMALL).mean, 0.0, "the other figure");
    }

    #[test]
    fn one_failed_replay_does_not_hide_the_others() {
        let mut memory = [0.01, -0.01].repeat(10);
        memory.push(3.0);
        let table = learned("a test", 1, &errors("a", SMALL, &memory));
        let of_it = table.of(PredictedFigure::Memory, "a", &SMALL);
        assert!(of_it.deviation < 0.1 && of_it.mean < 0.05, "{of_it:?}");
    }
}
