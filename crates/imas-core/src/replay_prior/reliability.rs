// SPDX-License-Identifier: Apache-2.0
//! How far predictions by replay were off, measured: mean and standard deviation of ln(live / predicted), by
//! figure, candidate and class of program.
//!
//! A cell with few programs borrows from the candidate's programs of all classes, and these from all
//! candidates: each level counts as `BORROWED` programs in the level below.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Forecast;
use crate::stats::{Moments, mad, median};

/// Number of programs that the wider group counts as.
const BORROWED: f64 = 4.0;
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

/// What of a recorded run tells how far its predictions may be off.
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
pub enum PredictedAxis {
    /// CPU time: a replay sees the allocator's own part alone.
    Cpu,
    /// Mean resident memory.
    Memory,
}

/// Classes of programs that are predicted unequally well.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramClass {
    /// Memory of one thread, little: an allocator's fixed part counts.
    Small,
    /// More memory than that.
    Large,
    /// Memory of several threads that call malloc.
    Threaded,
    /// Little CPU time in the allocator.
    LittleMalloc,
    /// Some.
    SomeMalloc,
    /// Much.
    MuchMalloc,
}

impl PredictedAxis {
    /// The class of a program for this figure.
    pub fn class(self, run: &RecordedRunFacts) -> ProgramClass {
        match self {
            Self::Cpu if run.allocator_share < SHARES[0] => ProgramClass::LittleMalloc,
            Self::Cpu if run.allocator_share < SHARES[1] => ProgramClass::SomeMalloc,
            Self::Cpu => ProgramClass::MuchMalloc,
            Self::Memory if run.threads > 1 => ProgramClass::Threaded,
            Self::Memory if run.peak_bytes < SMALL_BYTES => ProgramClass::Small,
            Self::Memory => ProgramClass::Large,
        }
    }
}

/// Mean and standard deviation of ln(live / predicted).
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct AxisError {
    /// Mean: what the predictions are to be corrected by.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl AxisError {
    /// What a predicted difference of logarithms lets expect.
    pub fn corrected(self, predicted: f64) -> Forecast {
        Forecast { mean: predicted + self.mean, deviation: self.deviation.max(LEAST) }
    }
}

/// Of one figure of one candidate with one class of programs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ErrorEntry {
    /// The figure.
    pub figure: PredictedAxis,
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
    pub error: AxisError,
}

/// How far off one prediction was.
#[derive(Clone, PartialEq, Debug)]
pub struct PredictionError {
    /// The candidate.
    pub candidate: String,
    /// The program.
    pub run: RecordedRunFacts,
    /// ln(live / predicted) of CPU time.
    pub cpu: f64,
    /// The same of memory.
    pub memory: f64,
}

impl PredictionError {
    fn of(&self, figure: PredictedAxis) -> f64 {
        match figure {
            PredictedAxis::Cpu => self.cpu,
            PredictedAxis::Memory => self.memory,
        }
    }
}

/// The table.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ErrorTable {
    /// Format: 1.
    pub schema: u32,
    /// How it was made, for people.
    pub source: String,
    /// From the general to the special: of several that fit, the last one counts.
    pub entries: Vec<ErrorEntry>,
}

/// As the first check of predictions had it, of 13 programs: four of five live figures were within 15 % of
/// the predicted CPU time, and within 10 % of the memory.
fn unknown(figure: PredictedAxis) -> AxisError {
    match figure {
        PredictedAxis::Cpu => AxisError { mean: 0.0, deviation: 0.11 },
        PredictedAxis::Memory => AxisError { mean: 0.0, deviation: 0.075 },
    }
}

impl ErrorTable {
    /// The table of these errors.
    pub fn learn(source: &str, errors: &[PredictionError]) -> Self {
        let figures = [PredictedAxis::Cpu, PredictedAxis::Memory];
        let entries = figures.into_iter().flat_map(|figure| entries_of(figure, errors)).collect();
        Self { schema: 1, source: source.to_owned(), entries }
    }

    /// From JSON.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match (table.schema, table.entries.is_empty()) {
            (1, false) => Ok(table),
            (1, true) => Err("it has no entries".to_owned()),
            (other, _) => Err(format!("format {other} is unknown; 1 is known")),
        }
    }

    /// How far off predictions of the figure are, for the candidate and such a run.
    pub fn of(&self, figure: PredictedAxis, candidate: &str, run: &RecordedRunFacts) -> AxisError {
        let class = figure.class(run);
        let fits = |one: &&ErrorEntry| {
            one.figure == figure
                && one.candidate.as_ref().is_none_or(|name| name == candidate)
                && one.class.is_none_or(|of_entry| of_entry == class)
        };
        self.entries.iter().rfind(fits).map_or_else(|| unknown(figure), |one| one.error)
    }
}

/// Of all, then of each candidate, each followed by its classes.
fn entries_of(figure: PredictedAxis, errors: &[PredictionError]) -> Vec<ErrorEntry> {
    let learn = |candidate: Option<&str>, class, errors: &[&PredictionError], wider| {
        let values: Vec<f64> =
            errors.iter().map(|one| one.of(figure)).filter(|value| value.is_finite()).collect();
        ErrorEntry {
            figure,
            candidate: candidate.map(str::to_owned),
            class,
            count: u32::try_from(values.len()).unwrap_or(u32::MAX),
            error: learn_axis(values, wider),
        }
    };
    let everything: Vec<&PredictionError> = errors.iter().collect();
    let all = learn(None, None, &everything, unknown(figure));
    let wider = all.error;
    let mut entries = vec![all];
    let mut by_candidate: BTreeMap<&str, Vec<&PredictionError>> = BTreeMap::new();
    errors.iter().for_each(|one| by_candidate.entry(&one.candidate).or_default().push(one));
    for (name, of_it) in by_candidate {
        let of_all = learn(Some(name), None, &of_it, wider);
        let wider = of_all.error;
        entries.push(of_all);
        let mut classes: BTreeMap<ProgramClass, Vec<&PredictionError>> = BTreeMap::new();
        of_it.iter().for_each(|one| classes.entry(figure.class(&one.run)).or_default().push(one));
        entries.extend(
            classes.into_iter().map(|(class, errors)| learn(Some(name), Some(class), &errors, wider)),
        );
    }
    entries
}

/// Mean and spread, the wider group's counting as `BORROWED` errors.
fn learn_axis(errors: Vec<f64>, wider: AxisError) -> AxisError {
    let errors = limited(errors, wider);
    let seen: Moments = errors.iter().map(|&error| (error, 0.0)).collect();
    let count = f64::from(seen.count);
    let mean = (count * seen.mean_x + BORROWED * wider.mean) / (count + BORROWED);
    let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
    let borrowed = BORROWED * (wider.deviation.powi(2) + (wider.mean - mean).powi(2));
    AxisError { mean, deviation: ((squares + borrowed) / (count + BORROWED)).sqrt().max(LEAST) }
}

/// One program for which a replay fails altogether must not hide how well it does with the others.
fn limited(mut errors: Vec<f64>, wider: AxisError) -> Vec<f64> {
    let Some((middle, spread)) = median(&errors).zip(mad(&errors)) else { return errors };
    let most = LIMIT * (TO_SIGMA * spread).max(wider.deviation / 2.0);
    errors.iter_mut().for_each(|error| *error = error.clamp(middle - most, middle + most));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.05, peak_bytes: 1e9, threads: 1 };
    const SMALL: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.01, peak_bytes: 1e6, threads: 1 };
    const THREADED: RecordedRunFacts = RecordedRunFacts { allocator_share: 0.5, peak_bytes: 1e6, threads: 4 };

    fn errors(candidate: &str, run: RecordedRunFacts, memory: &[f64]) -> Vec<PredictionError> {
        let of = |&memory: &f64| PredictionError { candidate: candidate.to_owned(), run, cpu: 0.0, memory };
        memory.iter().map(of).collect()
    }

    #[test]
    fn each_candidate_and_class_has_its_own_once_there_are_programs() {
        let mut all = errors("lean", LARGE, &[0.0; 40]);
        all.extend(errors("fat", LARGE, &[0.3, 0.5].repeat(20)));
        all.extend(errors("fat", SMALL, &[0.4]));
        let table = ErrorTable::learn("a test", &all);
        let memory = |candidate, run| table.of(PredictedAxis::Memory, candidate, &run);
        let (lean, fat) = (memory("lean", LARGE), memory("fat", LARGE));
        assert!(lean.mean.abs() < 0.03 && lean.deviation < 0.08, "{lean:?}");
        assert!((fat.mean - 0.4).abs() < 0.03 && (fat.deviation - 0.1).abs() < 0.05, "{fat:?}");
        let of_one = memory("fat", SMALL);
        assert!(of_one.mean > 0.3 && of_one.deviation > 0.5 * fat.deviation, "it borrows: {of_one:?}");
        assert!(memory("fat", THREADED).mean > 0.3, "of all classes");
        assert!(memory("new", SMALL).deviation > fat.deviation, "as wide as all together");
        assert_eq!(table.of(PredictedAxis::Cpu, "fat", &SMALL).mean, 0.0, "the other figure");
    }

    #[test]
    fn each_figure_has_its_own_classes() {
        let of = |run: &RecordedRunFacts| [PredictedAxis::Cpu.class(run), PredictedAxis::Memory.class(run)];
        assert_eq!(of(&SMALL), [ProgramClass::LittleMalloc, ProgramClass::Small]);
        assert_eq!(of(&LARGE), [ProgramClass::SomeMalloc, ProgramClass::Large]);
        assert_eq!(of(&THREADED), [ProgramClass::MuchMalloc, ProgramClass::Threaded]);
    }

    #[test]
    fn one_failed_replay_does_not_hide_the_others() {
        let mut memory = [0.01, -0.01].repeat(10);
        memory.push(3.0);
        let table = ErrorTable::learn("a test", &errors("a", SMALL, &memory));
        let of_it = table.of(PredictedAxis::Memory, "a", &SMALL);
        assert!(of_it.deviation < 0.1 && of_it.mean < 0.05, "{of_it:?}");
    }

    #[test]
    fn a_table_is_read_back_and_a_foreign_one_refused() {
        let table = ErrorTable::learn("a test", &errors("a", SMALL, &[0.1, 0.2]));
        let text = serde_json::to_string(&table).unwrap();
        let again = ErrorTable::parse(&text).unwrap();
        assert_eq!(again.entries.len(), table.entries.len());
        let foreign = ErrorTable::parse(&text.replace("\"schema\":1", "\"schema\":9"));
        assert!(foreign.unwrap_err().contains('9'));
        assert!(ErrorTable::parse("{}").is_err());
        let none = ErrorTable::learn("nothing", &[]);
        assert!((none.of(PredictedAxis::Cpu, "a", &SMALL).deviation - 0.11).abs() < 1e-9);
    }
}
