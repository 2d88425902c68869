// SPDX-License-Identifier: Apache-2.0
//! The raw samples: JSON lines, appended one by one and never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, StudyError};

/// Which part of the study a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum MobilePart {
    /// Size of the library, and of the memory it adds to a minimal process.
    #[default]
    Size,
    /// Time of the benchmark programs.
    Benchmarks,
    /// Memory of the machine while programs run and after they were stopped.
    UseCase,
}

/// What one run under one candidate gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct MobileSample {
    /// The part.
    pub part: MobilePart,
    /// What was run: `library`, `minimal`, `chunks`, `threads-N`, `timed` or `use-case`.
    pub test: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Runs of one round are compared with each other; from 0.
    pub round: u32,
    /// When it began, seconds since 1970.
    #[serde(default)]
    pub at_s: f64,
    /// Load of the machine before it, one-minute average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// By name: bytes, nanoseconds an operation, free blocks of an order.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Use case: who served the malloc calls of each program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<String, String>,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What names a sample.
pub type MobileKey = (MobilePart, String, String, u32);

impl MobileSample {
    /// What names this sample.
    #[must_use]
    pub fn key(&self) -> MobileKey {
        (self.part, self.test.clone(), self.candidate.clone(), self.round)
    }
}

/// First line of each session; holds for those after it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MobileHeader {
    /// Always "mobile".
    pub imas: String,
    /// 1.
    pub schema: u32,
    /// When the session began, seconds since 1970.
    pub began_unix_s: f64,
    /// Seed of the orders.
    pub seed: u64,
    /// The machine.
    pub host: serde_json::Value,
    /// Version of each candidate.
    pub versions: BTreeMap<String, String>,
    /// Load of the machine before the first run, one-minute average.
    pub load1: Option<f64>,
}

/// The file of raw samples, open for appending.
#[derive(Debug)]
pub struct MobileRecord {
    path: PathBuf,
    file: File,
}

/// Name of the file in the folder of the study.
const FILE: &str = "mobile.jsonl";

impl MobileRecord {
    /// Opens the file for appending and reads what is in it; a last line that a kill cut short is cut off.
    ///
    /// # Errors
    /// When it has samples and `resume` is not set, or it cannot be read or written.
    pub fn open(folder: &Path, resume: bool) -> Result<(Self, Vec<MobileSample>)> {
        let path = folder.join(FILE);
        let fail = |source| StudyError::Write { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(fail)?;
        let mut file = File::options().read(true).append(true).create(true).open(&path).map_err(fail)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let samples = Samples::parse(&String::from_utf8_lossy(&text[..whole])).samples;
        if !samples.is_empty() && !resume {
            return Err(StudyError::HasSamples { path });
        }
        if whole < text.len() {
            file.set_len(whole as u64).map_err(fail)?;
            file.seek(SeekFrom::End(0)).map_err(fail)?;
        }
        Ok((Self { path, file }, samples))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one line by a single write.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let fail = |source| StudyError::Write { path: self.path.clone(), source };
        let mut text = serde_json::to_vec(line).map_err(|error| fail(std::io::Error::other(error)))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(fail)
    }
}

/// What the files hold.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) headers: Vec<MobileHeader>,
    /// Each key once, the first that was written.
    pub(crate) samples: Vec<MobileSample>,
    /// Lines that are neither.
    pub(crate) unreadable: usize,
}

impl Samples {
    pub(crate) fn read(files: &[PathBuf]) -> Result<Self> {
        let mut samples = Self::default();
        for path in files {
            let text = std::fs::read_to_string(path)
                .map_err(|source| StudyError::Read { path: path.clone(), source })?;
            samples.join(Self::parse(&text));
        }
        if samples.samples.is_empty() {
            return Err(StudyError::NoSamples { lines: samples.unreadable });
        }
        Ok(samples)
    }

    /// Rounds of another file are other rounds: they are numbered on. What is there already, made in the same instant, counts once.
    fn join(&mut self, mut other: Self) {
        let next = self.samples.iter().map(|sample| sample.round.saturating_add(1)).max().unwrap_or(0);
        let instant =
            |sample: &MobileSample| (sample.test.clone(), sample.candidate.clone(), sample.at_s.to_bits());
        let seen: BTreeSet<_> = self.samples.iter().map(instant).collect();
        // Without a time nothing tells two samples apart.
        other.samples.retain(|sample| sample.at_s == 0.0 || !seen.contains(&instant(sample)));
        for sample in &mut other.samples {
            sample.round = sample.round.saturating_add(next);
        }
        self.samples.append(&mut other.samples);
        self.headers.append(&mut other.headers);
        self.unreadable += other.unreadable;
    }

    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if let Ok(sample) = serde_json::from_str::<MobileSample>(line) {
                if seen.insert(sample.key()) {
                    all.samples.push(sample);
                }
            } else if let Ok(header) = serde_json::from_str::<MobileHeader>(line) {
                all.headers.push(header);
            } else {
                all.unreadable += 1;
            }
        }
        all
    }

    /// Candidates that have a sample: `system` first, then as they came.
    pub(crate) fn candidates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !names.contains(&sample.candidate.as_str()) {
                names.push(&sample.candidate);
            }
        }
        // Rounds are in random order: the order of the study is that of the catalogue, by which the libraries were measured.
        names.sort_by_key(|name| *name != imas_core::candidate::SYSTEM);
        names
    }

    /// The tests of a part, in alphabetical order.
    pub(crate) fn tests(&self, part: MobilePart) -> BTreeSet<&str> {
        self.samples.iter().filter(|sample| sample.part == part).map(|sample| sample.test.as_str()).collect()
    }

    /// The names of the figures of a test.
    pub(crate) fn figures(&self, test: &str) -> BTreeSet<&str> {
        let of_test = self.samples.iter().filter(|sample| sample.test == test);
        of_test.flat_map(|sample| sample.figures.keys().map(String::as_str)).collect()
    }

    /// A figure of a candidate by round, of the samples that count.
    pub(crate) fn by_round(&self, test: &str, candidate: &str, figure: &str) -> BTreeMap<u32, f64> {
        let counts = |sample: &&MobileSample| {
            sample.failed.is_none() && sample.test == test && sample.candidate == candidate
        };
        let figures = self.samples.iter().filter(counts);
        figures
            .filter_map(|sample| Some((sample.round, *sample.figures.get(figure)?)))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }

    /// The same without the rounds.
    pub(crate) fn values(&self, test: &str, candidate: &str, figure: &str) -> Vec<f64> {
        self.by_round(test, candidate, figure).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32) -> MobileSample {
        MobileSample {
            test: "timed".into(),
            candidate: "tlsf".into(),
            round,
            figures: BTreeMap::from([("malloc".into(), 7.5)]),
            ..MobileSample::default()
        }
    }

    #[test]
    fn what_is_appended_is_read_back_and_a_torn_end_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, before) = MobileRecord::open(folder.path(), false).unwrap();
        assert!(before.is_empty());
        record.append(&sample(0)).unwrap();
        let path = record.path().to_owned();
        drop(record);
        File::options().append(true).open(&path).unwrap().write_all(b"{\"part\":\"si").unwrap();
        let refused = MobileRecord::open(folder.path(), false).unwrap_err();
        assert!(matches!(refused, StudyError::HasSamples { .. }) && refused.hint().is_some());
        let (mut record, before) = MobileRecord::open(folder.path(), true).unwrap();
        assert_eq!(before, [sample(0)]);
        record.append(&sample(1)).unwrap();
        let all = Samples::read(&[path]).unwrap();
        assert_eq!((all.samples.len(), all.unreadable), (2, 0));
        assert_eq!(all.values("timed", "tlsf", "malloc"), [7.5, 7.5]);
    }

    #[test]
    fn rounds_of_another_file_are_other_rounds() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, at_s: f64| {
            let path = folder.path().join(name);
            let text = serde_json::to_string(&MobileSample { at_s, ..sample(0) }).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let (one, two) = (file("one", 1.0), file("two", 2.0));
        let all = Samples::read(&[one, two.clone(), two]).unwrap();
        assert_eq!(all.samples.iter().map(|sample| sample.round).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_sample_that_failed_gives_no_figure() {
        let failed = MobileSample { failed: Some("crash".into()), ..sample(0) };
        let all = Samples::parse(&serde_json::to_string(&failed).unwrap());
        assert!(all.values("timed", "tlsf", "malloc").is_empty());
        assert_eq!(all.candidates(), ["tlsf"]);
    }

    #[test]
    fn a_file_without_samples_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "nothing\n").unwrap();
        let error = Samples::read(&[file.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains('1') && error.hint().is_some(), "{error}");
    }
}
