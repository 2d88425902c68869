// SPDX-License-Identifier: Apache-2.0
//! How far the predictions of replays were off so far, and the interval that follows for the next one.
//!
//! An entry has mean and standard deviation of ln(live / predicted) over programs, for a figure, a candidate and
//! a class of programs. Both ratios are to `system`. CPU time is classed by the allocator's own part of it,
//! because a replay sees only that part; memory is classed by its size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::{Interval, mean_and_deviation, t_quantile};

/// A figure that is predicted.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
pub enum PredictedFigure {
    /// CPU time.
    Cpu,
    /// Mean resident memory over time.
    Memory,
    /// Peak of resident memory.
    Peak,
}

/// What of a recorded run tells how far its predictions may be off.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RecordedFacts {
    /// The allocator's part of the CPU time, from 0 to 1 (more where the replay is slower than the program).
    pub allocator_share: f64,
    /// Highest resident memory in bytes.
    pub peak_bytes: f64,
}

/// Stands for every candidate.
pub const ANY: &str = "*";
/// Stands for every class.
pub const ALL: &str = "all";
/// The part of the live figures that an interval is made for: four of five.
pub const COVERAGE: f64 = 0.8;
/// An entry of fewer predictions is not used where a wider one exists.
const FEWEST: u32 = 10;

const MIB: f64 = (1 << 20) as f64;
const SHARES: [(f64, &str); 2] = [(0.02, "share-below-2"), (0.10, "share-2-to-10")];
const SIZES: [(f64, &str); 2] = [(16.0 * MIB, "below-16-mib"), (64.0 * MIB, "16-to-64-mib")];

impl PredictedFigure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Peak];

    /// The class of a program for this figure.
    #[must_use]
    pub fn class(self, facts: &RecordedFacts) -> &'static str {
        let (value, limits, highest) = match self {
            Self::Cpu => (facts.allocator_share, SHARES, "share-above-10"),
            Self::Memory | Self::Peak => (facts.peak_bytes, SIZES, "above-64-mib"),
        };
        limits.into_iter().find(|(limit, _)| value < *limit).map_or(highest, |(_, class)| class)
    }

    /// Every class of this figure, in their order.
    #[must_use]
    pub fn classes(self) -> [&'static str; 3] {
        match self {
            Self::Cpu => [SHARES[0].1, SHARES[1].1, "share-above-10"],
            Self::Memory | Self::Peak => [SIZES[0].1, SIZES[1].1, "above-64-mib"],
        }
    }
}

/// A prediction that was compared with live runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckedPrediction<'a> {
    /// What was predicted.
    pub figure: PredictedFigure,
    /// Name in the catalogue.
    pub candidate: &'a str,
    /// Of the program.
    pub facts: RecordedFacts,
    /// ln(live / predicted).
    pub off: f64,
}

/// How far off the predictions of a figure were, for a candidate and a class.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ReliabilityEntry {
    /// What was predicted.
    pub figure: PredictedFigure,
    /// Name in the catalogue, or [`ANY`].
    pub candidate: String,
    /// [`PredictedFigure::class`], or [`ALL`].
    pub class: String,
    /// Number of predictions.
    pub n: u32,
    /// Mean of ln(live / predicted).
    pub mean: f64,
    /// Its standard deviation.
    pub deviation: f64,
}

/// All entries.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct ReliabilityTable {
    /// Programs that it was made from.
    pub programs: u32,
    /// In the order of figure, candidate, class.
    #[serde(default, rename = "entry")]
    pub entries: Vec<ReliabilityEntry>,
}

type EntryKey<'a> = (PredictedFigure, &'a str, &'a str);

impl ReliabilityTable {
    /// From the checked predictions of `programs` programs.
    #[must_use]
    pub fn of<'a>(programs: u32, checked: impl IntoIterator<Item = CheckedPrediction<'a>>) -> Self {
        let mut offs: BTreeMap<EntryKey<'a>, Vec<f64>> = BTreeMap::new();
        for one in checked.into_iter().filter(|one| one.off.is_finite()) {
            for candidate in [ANY, one.candidate] {
                for class in [ALL, one.figure.class(&one.facts)] {
                    offs.entry((one.figure, candidate, class)).or_default().push(one.off);
                }
            }
        }
        let entry = |((figure, candidate, class), offs): (EntryKey<'_>, Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(&offs);
            ReliabilityEntry {
                figure,
                candidate: candidate.to_owned(),
                class: class.to_owned(),
                n: u32::try_from(offs.len()).unwrap_or(u32::MAX),
                mean,
                deviation,
            }
        };
        Self { programs, entries: offs.into_iter().map(entry).collect() }
    }

    /// The entry that fits best: of the candidate and the class if it has enough predictions, else of the
    /// candidate, else of the class, else of all. None where the table has none for the figure.
    #[must_use]
    pub fn entry(
        &self,
        figure: PredictedFigure,
        candidate: &str,
        facts: &RecordedFacts,
    ) -> Option<&ReliabilityEntry> {
        let class = figure.class(facts);
        let keys = [(candidate, class), (candidate, ALL), (ANY, class), (ANY, ALL)];
        let find = |(candidate, class): (&str, &str)| {
            let is_it =
                |one: &&ReliabilityEntry| (one.candidate.as_str(), one.class.as_str()) == (candidate, class);
            self.entries.iter().filter(|one| one.figure == figure).find(is_it)
        };
        let found: Vec<&ReliabilityEntry> = keys.into_iter().filter_map(find).collect();
        let enough = found.iter().find(|one| one.n >= FEWEST);
        enough.or_else(|| found.last()).copied()
    }

    /// Factors on a predicted figure between which four of five live figures are expected; the middle is 1. None
    /// where nothing is known of the figure.
    #[must_use]
    pub fn factors(
        &self,
        figure: PredictedFigure,
        candidate: &str,
        facts: &RecordedFacts,
    ) -> Option<Interval> {
        let entry = self.entry(figure, candidate, facts).filter(|entry| entry.n > 1)?;
        let n = f64::from(entry.n);
        // Of the next prediction: its own spread, and that of the mean.
        let reach = t_quantile((1.0 - COVERAGE) / 2.0, n - 1.0) * entry.deviation * (1.0 + 1.0 / n).sqrt();
        let (lo, hi) = ((entry.mean - reach).exp(), (entry.mean + reach).exp());
        // The predicted figure itself stays in its interval.
        Some(Interval { lo: lo.min(1.0), mid: 1.0, hi: hi.max(1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: RecordedFacts = RecordedFacts { allocator_share: 0.01, peak_bytes: MIB };
    const LARGE: RecordedFacts = RecordedFacts { allocator_share: 0.5, peak_bytes: 100.0 * MIB };

    fn checked(candidate: &str, facts: RecordedFacts, off: f64) -> CheckedPrediction<'_> {
        CheckedPrediction { figure: PredictedFigure::Cpu, candidate, facts, off }
    }

    /// Twelve predictions of each kind: those of `a` for small programs are 0.1 too low on average.
    fn table() -> ReliabilityTable {
        let of = |i: u32| {
            let swing = if i.is_multiple_of(2) { 0.02 } else { -0.02 };
            [checked("a", SMALL, 0.1 + swing), checked("a", LARGE, swing), checked("b", LARGE, 5.0 * swing)]
        };
        ReliabilityTable::of(12, (0..12).flat_map(of).chain([checked("b", SMALL, 0.7)]))
    }

    #[test]
    fn mean_and_deviation_are_those_of_candidate_and_class() {
        let entry = table().entry(PredictedFigure::Cpu, "a", &SMALL).cloned().unwrap();
        assert_eq!((entry.n, entry.class.as_str()), (12, "share-below-2"));
        assert!((entry.mean - 0.1).abs() < 1e-12);
        assert!((entry.deviation - 0.02 * (12.0_f64 / 11.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_class_with_few_predictions_gives_way_to_a_wider_one() {
        let table = table();
        let class = |candidate, facts| {
            let entry = table.entry(PredictedFigure::Cpu, candidate, facts).unwrap();
            (entry.candidate.clone(), entry.class.clone())
        };
        assert_eq!(class("b", &SMALL), ("b".to_owned(), ALL.to_owned()));
        assert_eq!(class("new", &SMALL), (ANY.to_owned(), "share-below-2".to_owned()));
        assert!(table.entry(PredictedFigure::Peak, "a", &SMALL).is_none());
        let few = ReliabilityTable::of(1, [checked("a", SMALL, 0.1)]);
        assert_eq!(few.entry(PredictedFigure::Cpu, "a", &SMALL).unwrap().candidate, ANY);
        assert!(few.factors(PredictedFigure::Cpu, "a", &SMALL).is_none());
    }

    #[test]
    fn the_interval_reaches_to_where_live_figures_were() {
        let table = table();
        let biased = table.factors(PredictedFigure::Cpu, "a", &SMALL).unwrap();
        assert!(biased.lo == 1.0 && biased.contains(0.12_f64.exp()) && !biased.contains(1.2), "{biased:?}");
        let narrow = table.factors(PredictedFigure::Cpu, "a", &LARGE).unwrap();
        let wide = table.factors(PredictedFigure::Cpu, "b", &LARGE).unwrap();
        assert!(narrow.lo > wide.lo && narrow.hi < wide.hi, "{narrow:?} {wide:?}");
    }

    #[test]
    fn classes_have_limits() {
        let facts = |allocator_share, mib| RecordedFacts { allocator_share, peak_bytes: mib * MIB };
        assert_eq!(PredictedFigure::Cpu.class(&facts(0.05, 0.0)), "share-2-to-10");
        assert_eq!(PredictedFigure::Cpu.class(&facts(3.0, 0.0)), "share-above-10");
        assert_eq!(PredictedFigure::Peak.class(&facts(0.0, 16.0)), "16-to-64-mib");
        for figure in PredictedFigure::ALL {
            assert!(figure.classes().contains(&figure.class(&LARGE)));
        }
    }
}
