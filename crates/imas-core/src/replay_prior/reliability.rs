// SPDX-License-Identifier: Apache-2.0
//! How far predictions by replay were off, measured: mean and standard deviation of ln(live / predicted), by
//! candidate and class of program.
//!
//! A cell with few programs borrows from the candidate's programs of all classes, and these from all candidates:
//! each level counts as [`BORROWED`] programs in the level below.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Forecast;
use crate::stats::{Moments, mad, median};

/// Number of programs that the wider group counts as.
const BORROWED: f64 = 4.0;
/// A single error counts at most so many robust standard deviations of its group.
const LIMIT: f64 = 4.0;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// Least standard deviation: no prediction is better known.
const LEAST: f64 = 0.005;
/// A program whose recorded peak is below this is small, bytes.
const SMALL_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// Classes of programs that are predicted unequally well.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramClass {
    /// Little memory: an allocator's fixed part counts.
    #[default]
    Small,
    /// More memory than that.
    Large,
    /// Several threads called malloc.
    Threaded,
}

impl ProgramClass {
    /// Of a recorded run: threads that called malloc, and the peak of resident anonymous memory in bytes.
    pub fn of(threads: u64, peak_bytes: f64) -> Self {
        match (threads > 1, peak_bytes < SMALL_BYTES) {
            (true, _) => Self::Threaded,
            (false, true) => Self::Small,
            (false, false) => Self::Large,
        }
    }
}

/// Mean and standard deviation of ln(live / predicted).
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct AxisReliability {
    /// Mean: what the predictions are to be corrected by.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl AxisReliability {
    /// What a predicted difference of logarithms lets expect.
    pub fn corrected(self, predicted: f64) -> Forecast {
        Forecast { mean: predicted + self.mean, deviation: self.deviation.max(LEAST) }
    }
}

/// Of one candidate with one class of programs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ReliabilityEntry {
    /// The candidate; None: any other one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate: Option<String>,
    /// The class; None: any other one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<ProgramClass>,
    /// Programs that it was measured with.
    pub programs: u32,
    /// Of CPU time.
    pub cpu: AxisReliability,
    /// Of memory.
    pub memory: AxisReliability,
}

/// How far off one prediction was.
#[derive(Clone, PartialEq, Debug)]
pub struct PredictionError {
    /// The candidate.
    pub candidate: String,
    /// The program's class.
    pub class: ProgramClass,
    /// ln(live / predicted) of CPU time.
    pub cpu: f64,
    /// The same of memory.
    pub memory: f64,
}

/// The table.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ReliabilityTable {
    /// Format: 1.
    pub schema: u32,
    /// How it was made, for people.
    pub source: String,
    /// From the general to the special: of several that fit, the last one counts.
    pub entries: Vec<ReliabilityEntry>,
}

/// As the first check of predictions had it, of 13 programs: four of five live figures were within 15 % of the
/// predicted CPU time, and within 10 % of the memory.
const UNKNOWN: [AxisReliability; 2] =
    [AxisReliability { mean: 0.0, deviation: 0.11 }, AxisReliability { mean: 0.0, deviation: 0.075 }];

impl ReliabilityTable {
    /// The table of these errors.
    pub fn learn(source: &str, errors: &[PredictionError]) -> Self {
        let all = ReliabilityEntry::learn(None, None, errors.iter(), UNKNOWN);
        let mut entries = vec![all.clone()];
        let mut by_candidate: BTreeMap<&str, Vec<&PredictionError>> = BTreeMap::new();
        errors.iter().for_each(|one| by_candidate.entry(&one.candidate).or_default().push(one));
        for (name, of_it) in by_candidate {
            let of_all = ReliabilityEntry::learn(Some(name), None, of_it.iter().copied(), all.axes());
            let mut classes: BTreeMap<ProgramClass, Vec<&PredictionError>> = BTreeMap::new();
            of_it.iter().for_each(|one| classes.entry(one.class).or_default().push(one));
            let of_class = |(class, errors): (ProgramClass, Vec<&PredictionError>)| {
                ReliabilityEntry::learn(Some(name), Some(class), errors.into_iter(), of_all.axes())
            };
            let special: Vec<ReliabilityEntry> = classes.into_iter().map(of_class).collect();
            entries.push(of_all);
            entries.extend(special);
        }
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

    /// Reliability of predictions for the candidate and a program of that class.
    pub fn of(&self, candidate: &str, class: ProgramClass) -> ReliabilityEntry {
        let fits = |one: &&ReliabilityEntry| {
            one.candidate.as_ref().is_none_or(|name| name == candidate)
                && one.class.is_none_or(|of_entry| of_entry == class)
        };
        self.entries.iter().rfind(fits).cloned().unwrap_or(ReliabilityEntry {
            candidate: None,
            class: None,
            programs: 0,
            cpu: UNKNOWN[0],
            memory: UNKNOWN[1],
        })
    }
}

impl ReliabilityEntry {
    fn learn<'a>(
        candidate: Option<&str>,
        class: Option<ProgramClass>,
        errors: impl Iterator<Item = &'a PredictionError> + Clone,
        wider: [AxisReliability; 2],
    ) -> Self {
        let axis = |of: fn(&PredictionError) -> f64, wider| {
            learn_axis(errors.clone().map(of).filter(|error| error.is_finite()).collect(), wider)
        };
        Self {
            candidate: candidate.map(str::to_owned),
            class,
            programs: u32::try_from(errors.clone().count()).unwrap_or(u32::MAX),
            cpu: axis(|one| one.cpu, wider[0]),
            memory: axis(|one| one.memory, wider[1]),
        }
    }

    fn axes(&self) -> [AxisReliability; 2] {
        [self.cpu, self.memory]
    }
}

/// Mean and spread, the wider group's counting as [`BORROWED`] errors.
fn learn_axis(errors: Vec<f64>, wider: AxisReliability) -> AxisReliability {
    let errors = limited(errors, wider);
    let seen: Moments = errors.iter().map(|&error| (error, 0.0)).collect();
    let count = f64::from(seen.count);
    let mean = (count * seen.mean_x + BORROWED * wider.mean) / (count + BORROWED);
    let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
    let borrowed = BORROWED * (wider.deviation.powi(2) + (wider.mean - mean).powi(2));
    AxisReliability { mean, deviation: ((squares + borrowed) / (count + BORROWED)).sqrt().max(LEAST) }
}

/// One program for which a replay fails altogether must not hide how well it does with the others.
fn limited(mut errors: Vec<f64>, wider: AxisReliability) -> Vec<f64> {
    let Some((middle, spread)) = median(&errors).zip(mad(&errors)) else { return errors };
    let most = LIMIT * (TO_SIGMA * spread).max(wider.deviation / 2.0);
    errors.iter_mut().for_each(|error| *error = error.clamp(middle - most, middle + most));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(candidate: &str, class: ProgramClass, memory: &[f64]) -> Vec<PredictionError> {
        let of = |&memory: &f64| PredictionError { candidate: candidate.to_owned(), class, cpu: 0.0, memory };
        memory.iter().map(of).collect()
    }

    #[test]
    fn each_candidate_and_class_has_its_own_once_there_are_programs() {
        let mut all = errors("lean", ProgramClass::Large, &[0.0; 40]);
        all.extend(errors("fat", ProgramClass::Large, &[0.3, 0.5].repeat(20)));
        all.extend(errors("fat", ProgramClass::Small, &[0.4]));
        let table = ReliabilityTable::learn("a test", &all);
        let memory = |candidate, class| table.of(candidate, class).memory;
        let (lean, fat) = (memory("lean", ProgramClass::Large), memory("fat", ProgramClass::Large));
        assert!(lean.mean.abs() < 0.03 && lean.deviation < 0.08, "{lean:?}");
        assert!((fat.mean - 0.4).abs() < 0.03 && (fat.deviation - 0.1).abs() < 0.05, "{fat:?}");
        let of_one = memory("fat", ProgramClass::Small);
        assert!(of_one.mean > 0.3 && of_one.deviation > 0.5 * fat.deviation, "it borrows: {of_one:?}");
        assert_eq!(memory("fat", ProgramClass::Threaded), table.of("fat", ProgramClass::Threaded).memory);
        assert!(memory("new", ProgramClass::Small).deviation > fat.deviation, "as wide as all together");
    }

    #[test]
    fn one_failed_replay_does_not_hide_the_others() {
        let mut memory = [0.01, -0.01].repeat(10);
        memory.push(3.0);
        let table = ReliabilityTable::learn("a test", &errors("a", ProgramClass::Small, &memory));
        let of_it = table.of("a", ProgramClass::Small).memory;
        assert!(of_it.deviation < 0.1 && of_it.mean < 0.05, "{of_it:?}");
    }

    #[test]
    fn a_table_is_read_back_and_a_foreign_one_refused() {
        let table = ReliabilityTable::learn("a test", &errors("a", ProgramClass::Small, &[0.1, 0.2]));
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(ReliabilityTable::parse(&text), Ok(table));
        assert!(
            ReliabilityTable::parse(&text.replace("\"schema\":1", "\"schema\":9")).unwrap_err().contains("9")
        );
        assert!(ReliabilityTable::parse("{}").is_err());
        let none = ReliabilityTable::learn("nothing", &[]);
        assert!((none.of("a", ProgramClass::Small).cpu.deviation - UNKNOWN[0].deviation).abs() < 1e-9);
    }
}
