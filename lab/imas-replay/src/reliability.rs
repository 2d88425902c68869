// SPDX-License-Identifier: Apache-2.0
//! How far predictions by replay were off, measured: mean and standard deviation of ln(live / predicted), by
//! figure, candidate and class of program. Intervals of predictions are made from it.
//!
//! A cell with few programs borrows from the candidate's programs of all classes, and these from all
//! candidates: each level counts as `BORROWED` programs in the level below.
//!
//! Predicted figures with their intervals, which follow from how far predictions were off so far.

use imas_core::stats::{Interval, Moments, mad, median, t_quantile};
use serde::{Deserialize, Serialize};

use crate::trace::prediction::Figures;

/// Table of reliability as `imas-lab study replay --reliability` wrote it.
const SHIPPED: &str = include_str!("../replay-reliability.json");
/// Number of programs that the wider group counts as.
pub const BORROWED: f64 = 4.0;
/// The part of the live figures that an interval is made for: four of five.
pub const COVERAGE: f64 = 0.8;
/// Largest error that counts, in robust standard deviations of its group; a larger one is cut to it.
const LIMIT: f64 = 4.0;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// Least standard deviation: no prediction is better known.
const LEAST: f64 = 0.005;
/// A program whose recorded peak is below this is small, bytes.
const SMALL_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Parts of CPU time that the allocator takes: below the first one little, below the second one some.
const SHARES: [f64; 2] = [0.02, 0.10];

/// Facts about a recorded run that show how far its predictions may be off.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct RecordedRunFacts {
    /// Part of the CPU time that is the allocator's, from 0 to 1.
    pub allocator_share: f64,
    /// Peak of resident anonymous memory, bytes.
    pub peak_bytes: f64,
    /// Threads that called malloc.
    pub threads: u64,
}

/// A figure that is predicted.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum PredictedFigure {
    /// CPU time: a replay sees the allocator's own part alone.
    Cpu,
    /// Mean resident memory over time.
    Memory,
    /// Peak of resident memory.
    Peak,
}

/// Classes of programs that are predicted unequally well.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramClass {
    /// Memory of one thread, little: an allocator's fixed part counts.
    Small,
    /// Memory of one thread, more than of a small program.
    Large,
    /// Memory of several threads that call malloc.
    Threaded,
    /// Little CPU time in the allocator.
    LittleMalloc,
    /// Some CPU time in the allocator.
    SomeMalloc,
    /// Much CPU time in the allocator.
    MuchMalloc,
}

impl ProgramClass {
    /// Name of the class in tables and in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Threaded => "threaded",
            Self::LittleMalloc => "little-malloc",
            Self::SomeMalloc => "some-malloc",
            Self::MuchMalloc => "much-malloc",
        }
    }
}

impl PredictedFigure {
    /// All predicted figures.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Peak];

    /// Every class of this figure, in their order.
    #[must_use]
    pub fn classes(self) -> [ProgramClass; 3] {
        match self {
            Self::Cpu => [ProgramClass::LittleMalloc, ProgramClass::SomeMalloc, ProgramClass::MuchMalloc],
            Self::Memory | Self::Peak => [ProgramClass::Small, ProgramClass::Large, ProgramClass::Threaded],
        }
    }

    /// The class of a program for this figure.
    #[must_use]
    pub fn class(self, run: &RecordedRunFacts) -> ProgramClass {
        match self {
            Self::Cpu if run.allocator_share < SHARES[0] => ProgramClass::LittleMalloc,
            Self::Cpu if run.allocator_share < SHARES[1] => ProgramClass::SomeMalloc,
            Self::Cpu => ProgramClass::MuchMalloc,
            Self::Memory | Self::Peak if run.threads > 1 => ProgramClass::Threaded,
            Self::Memory | Self::Peak if run.peak_bytes < SMALL_BYTES => ProgramClass::Small,
            Self::Memory | Self::Peak => ProgramClass::Large,
        }
    }
}

/// Mean and standard deviation of ln(live / predicted).
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct PredictionSpread {
    /// Mean: what the predictions are to be corrected by.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// Spread of the predictions of one figure of one candidate with one class of programs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ReliabilityEntry {
    /// The figure.
    pub figure: PredictedFigure,
    /// The candidate; None: any other one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate: Option<String>,
    /// The class; None: any other one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<ProgramClass>,
    /// Predictions that it was measured with.
    pub count: u32,
    /// Mean and standard deviation.
    #[serde(flatten)]
    pub error: PredictionSpread,
}

impl ReliabilityEntry {
    fn fits(&self, figure: PredictedFigure, candidate: &str, class: Option<ProgramClass>) -> bool {
        self.figure == figure
            && self.candidate.as_ref().is_none_or(|name| name == candidate)
            && self.class.is_none_or(|of_entry| Some(of_entry) == class)
    }
}

/// A prediction that was compared with live runs.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckedPrediction {
    /// The figure that was predicted.
    pub figure: PredictedFigure,
    /// Name of the candidate.
    pub candidate: String,
    /// The recorded run of the program.
    pub run: RecordedRunFacts,
    /// ln(live / predicted); one that is not finite does not count.
    pub off: f64,
}

/// The table.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct ReliabilityTable {
    /// Format: 1.
    pub schema: u32,
    /// Origin of the table, for people.
    pub source: String,
    /// Programs that it was made from.
    #[serde(default)]
    pub programs: u32,
    /// Entries from the general to the special: of several that fit, the last one counts.
    pub entries: Vec<ReliabilityEntry>,
}

/// Spread of predictions that nothing is learned of yet. It is from the first check of predictions, of 13
/// programs: four of five live figures were within 15 % of the predicted CPU time, and within 10 % of the
/// memory.
fn unknown(figure: PredictedFigure) -> PredictionSpread {
    match figure {
        PredictedFigure::Cpu => PredictionSpread { mean: 0.0, deviation: 0.11 },
        PredictedFigure::Memory | PredictedFigure::Peak => PredictionSpread { mean: 0.0, deviation: 0.075 },
    }
}

impl ReliabilityTable {
    /// Table from JSON.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match (table.schema, table.entries.is_empty()) {
            (1, false) => Ok(table),
            (1, true) => Err("it has no entries".to_owned()),
            (other, _) => Err(format!("format {other} is unknown; 1 is known")),
        }
    }

    /// How far off predictions of the figure are, for the candidate and such a run.
    #[must_use]
    pub fn of(&self, figure: PredictedFigure, candidate: &str, run: &RecordedRunFacts) -> PredictionSpread {
        let class = Some(figure.class(run));
        let fits = |one: &&ReliabilityEntry| one.fits(figure, candidate, class);
        self.entries.iter().rfind(fits).map_or_else(|| unknown(figure), |one| one.error)
    }

    /// Factors on a predicted figure between which four of five live figures are expected; the middle is 1. None
    /// where nothing was measured of the figure.
    #[must_use]
    pub fn factors(
        &self,
        figure: PredictedFigure,
        candidate: &str,
        run: &RecordedRunFacts,
    ) -> Option<Interval> {
        let class = Some(figure.class(run));
        let entry = self.entries.iter().rfind(|one| one.fits(figure, candidate, class))?;
        let n = f64::from(entry.count) + BORROWED;
        // The next prediction has its own spread, and the mean's.
        let spread = entry.error.deviation * (1.0 + 1.0 / n).sqrt();
        let reach = t_quantile((1.0 - COVERAGE) / 2.0, n - 1.0) * spread;
        let (lo, hi) = ((entry.error.mean - reach).exp(), (entry.error.mean + reach).exp());
        // The predicted figure itself stays in its interval.
        Some(Interval { lo: lo.min(1.0), mid: 1.0, hi: hi.max(1.0) })
    }
}

/// Returns the table of the program itself.
#[must_use]
pub fn shipped() -> ReliabilityTable {
    // The test below reads it; without one all predictions have the same.
    ReliabilityTable::parse(SHIPPED).unwrap_or_default()
}

impl PredictionSpread {
    /// Mean and deviation of these, beside a wider group that counts as `borrowed` of them.
    #[must_use]
    pub fn of(offs: Vec<f64>, wider: Self, borrowed: f64) -> Self {
        let offs = limited(offs, wider);
        let seen: Moments = offs.iter().map(|&off| (off, 0.0)).collect();
        let count = f64::from(seen.count);
        let mean = (count * seen.mean_x + borrowed * wider.mean) / (count + borrowed);
        let squares: f64 = offs.iter().map(|off| (off - mean).powi(2)).sum();
        let of_wider = borrowed * (wider.deviation.powi(2) + (wider.mean - mean).powi(2));
        Self { mean, deviation: ((squares + of_wider) / (count + borrowed)).sqrt().max(LEAST) }
    }
}

/// One program for which a replay fails altogether must not hide how well it does with the others.
fn limited(mut errors: Vec<f64>, wider: PredictionSpread) -> Vec<f64> {
    let Some((middle, spread)) = median(&errors).zip(mad(&errors)) else { return errors };
    let most = LIMIT * (TO_SIGMA * spread).max(wider.deviation / 2.0);
    errors.iter_mut().for_each(|error| *error = error.clamp(middle - most, middle + most));
    errors
}

/// A figure with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictedRange {
    /// The figure.
    pub value: f64,
    /// Lower limit. In the study of predictions, four of five live figures lay between the limits.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

/// Predicted figures of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// CPU seconds.
    pub cpu_s: PredictedRange,
    /// Peak bytes.
    pub peak_bytes: PredictedRange,
    /// Mean bytes.
    pub mean_bytes: PredictedRange,
    /// Bytes at the end. Their interval is the mean's: live runs have no such figure.
    pub end_bytes: PredictedRange,
}

/// The figures of a candidate with their intervals. The figures of the recorded run itself are known.
#[must_use]
pub fn with_ranges(
    figures: &Figures,
    candidate: &str,
    facts: &RecordedRunFacts,
    table: &ReliabilityTable,
) -> Prediction {
    let around = |value: f64, figure| {
        let factors = table.factors(figure, candidate, facts).unwrap_or(Interval::ONE);
        PredictedRange { value, low: value * factors.lo, high: value * factors.hi }
    };
    Prediction {
        cpu_s: around(figures.cpu_s, PredictedFigure::Cpu),
        peak_bytes: around(figures.peak_bytes, PredictedFigure::Peak),
        mean_bytes: around(figures.mean_bytes, PredictedFigure::Memory),
        end_bytes: around(figures.end_bytes, PredictedFigure::Memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.05, peak_bytes: 1e9, threads: 1 };
    const SMALL: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.01, peak_bytes: 1e6, threads: 1 };
    const THREADED: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.5, peak_bytes: 1e6, threads: 4 };

    /// Memory of these candidates: mean and deviation, from a hundred programs.
    fn table(memory: &[(&str, f64, f64)]) -> ReliabilityTable {
        let entry = |&(candidate, mean, deviation): &(&str, f64, f64)| ReliabilityEntry {
            figure: PredictedFigure::Memory,
            candidate: Some(candidate.to_owned()),
            class: None,
            count: 100,
            error: PredictionSpread { mean, deviation },
        };
        ReliabilityTable { schema: 1, entries: memory.iter().map(entry).collect(), ..Default::default() }
    }

    #[test]
    fn each_figure_has_its_own_classes() {
        let of =
            |run: &RecordedRunFacts| [PredictedFigure::Cpu.class(run), PredictedFigure::Memory.class(run)];
        assert_eq!(of(&SMALL), [ProgramClass::LittleMalloc, ProgramClass::Small]);
        assert_eq!(of(&LARGE), [ProgramClass::SomeMalloc, ProgramClass::Large]);
        assert_eq!(of(&THREADED), [ProgramClass::MuchMalloc, ProgramClass::Threaded]);
    }

    #[test]
    fn a_table_is_read_back_and_a_foreign_one_refused() {
        let table = table(&[("a", 0.15, 0.05)]);
        let text = serde_json::to_string(&table).unwrap();
        let again = ReliabilityTable::parse(&text).unwrap();
        assert_eq!(again, table);
        let foreign = ReliabilityTable::parse(&text.replace("\"schema\":1", "\"schema\":9"));
        assert!(foreign.unwrap_err().contains('9'));
        assert!(ReliabilityTable::parse("{}").is_err());
        let none = ReliabilityTable::default();
        assert!((none.of(PredictedFigure::Cpu, "a", &SMALL).deviation - 0.11).abs() < 1e-9);
    }

    #[test]
    fn the_interval_reaches_to_where_live_figures_were() {
        let table = table(&[("a", 0.1, 0.03), ("b", 0.0, 0.1)]);
        let of = |candidate| table.factors(PredictedFigure::Memory, candidate, &SMALL).unwrap();
        let (biased, wide) = (of("a"), of("b"));
        assert!(biased.lo == 1.0 && biased.contains(0.12_f64.exp()) && !biased.contains(1.2), "{biased:?}");
        assert!(wide.lo < 0.9 && wide.hi > 1.1 && wide.contains(1.0), "{wide:?}");
        assert_eq!(table.factors(PredictedFigure::Peak, "a", &SMALL), None, "nothing is known of peaks");
    }

    #[test]
    fn the_shipped_table_is_sound() {
        let table = ReliabilityTable::parse(SHIPPED).unwrap();
        assert!(table.schema == 1 && table.programs > 60, "{} programs", table.programs);
    }

    #[test]
    fn the_interval_of_each_figure_is_its_own() {
        let facts = RecordedRunFacts { allocator_share: 0.05, peak_bytes: 1e6, threads: 1 };
        let table = ReliabilityTable::parse(
            r#"{"schema": 1, "source": "a test", "entries": [
                {"figure": "cpu", "count": 200, "mean": 0.0, "deviation": 0.015},
                {"figure": "memory", "count": 200, "mean": 0.0, "deviation": 0.2}]}"#,
        );
        let table = table.unwrap();
        let figures = Figures { cpu_s: 2.0, peak_bytes: 300.0, mean_bytes: 200.0, end_bytes: 100.0 };
        let all = with_ranges(&figures, "a", &facts, &table);
        assert!(all.cpu_s.low > 1.95 && all.cpu_s.low < 2.0 && all.cpu_s.high < 2.05, "{:?}", all.cpu_s);
        assert!(all.mean_bytes.low < 170.0 && all.mean_bytes.high > 240.0, "{:?}", all.mean_bytes);
        assert!((all.end_bytes.high / 100.0 - all.mean_bytes.high / 200.0).abs() < 1e-12);
        assert_eq!(all.peak_bytes.low, all.peak_bytes.high, "nothing is known of peaks");
    }
}
