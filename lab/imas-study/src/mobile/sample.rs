// SPDX-License-Identifier: Apache-2.0
//! The raw samples: JSON lines, appended one by one and never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use imas_core::raw_runs::data::{DataHeader, Line};
use imas_core::run::RawRun;
use serde::{Deserialize, Serialize};

use crate::error::{StudyError, StudyResult};

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

impl MobilePart {
    /// The name of the part in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Benchmarks => "benchmarks",
            Self::UseCase => "use-case",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Size, Self::Benchmarks, Self::UseCase].into_iter().find(|part| part.name() == name)
    }
}

/// The figures of one run under one candidate. This is also the format of lines that were written before
/// samples became records like all others ([`RawRun`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct MobileSample {
    /// The part.
    pub part: MobilePart,
    /// The test: `library`, `minimal`, `chunks`, `threads-N`, `timed` or `use-case`.
    pub test: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Round, from 0. Runs of one round are compared with each other.
    pub round: u32,
    /// Time at which the sample began, seconds since 1970.
    #[serde(default)]
    pub at_s: f64,
    /// Load of the machine before the sample, one-minute average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// The figures by name: bytes, nanoseconds an operation, free blocks of an order.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Use case: the allocator that served each program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<String, String>,
    /// Reason why the sample is not valid. None where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The key that identifies a sample.
pub type MobileKey = (MobilePart, String, String, u32);

impl MobileSample {
    /// Converts a record to a sample. None if it is not one.
    #[must_use]
    pub fn of(run: RawRun) -> Option<Self> {
        let part = MobilePart::named(run.part.as_deref()?)?;
        let failed = (!run.ok).then(|| run.message.or(run.why).unwrap_or_default());
        Some(Self {
            part,
            test: run.program,
            candidate: run.candidate,
            round: run.round,
            at_s: run.at_s,
            load1: run.load1,
            figures: run.figures,
            served: run.served,
            failed,
        })
    }

    /// The key of this sample.
    #[must_use]
    pub fn key(&self) -> MobileKey {
        (self.part, self.test.clone(), self.candidate.clone(), self.round)
    }
}

/// The samples in a text, each key once.
#[must_use]
pub fn mobile_samples(text: &str) -> Vec<MobileSample> {
    Samples::parse(text).samples
}

/// Value of [`DataHeader::imas`] in a file of samples.
pub const MOBILE: &str = "mobile";

/// The contents of the files.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) headers: Vec<DataHeader>,
    /// The samples. Of several with the same key, the first one.
    pub(crate) samples: Vec<MobileSample>,
    /// Number of lines that are neither sample nor header.
    pub(crate) unreadable: usize,
}

impl Samples {
    pub(crate) fn read(files: &[PathBuf]) -> StudyResult<Self> {
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

    /// Adds the samples of another file. Its rounds are different rounds, so they get the next numbers. A
    /// sample that is there already, made at the same instant, is added once.
    fn join(&mut self, mut other: Self) {
        let next = self.samples.iter().map(|sample| sample.round.saturating_add(1)).max().unwrap_or(0);
        let instant =
            |sample: &MobileSample| (sample.test.clone(), sample.candidate.clone(), sample.at_s.to_bits());
        let seen: BTreeSet<_> = self.samples.iter().map(instant).collect();
        // Two samples without a time cannot be distinguished.
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
            let old = serde_json::from_str::<MobileSample>(line).ok();
            let sample = match Line::parse(line) {
                Ok(Line::Header(header)) if header.imas == MOBILE => {
                    all.headers.push(header);
                    continue;
                }
                Ok(Line::Run(run)) => MobileSample::of(*run),
                _ => old,
            };
            match sample {
                Some(sample) if seen.insert(sample.key()) => all.samples.push(sample),
                Some(_) => {}
                None => all.unreadable += 1,
            }
        }
        all
    }

    /// Candidates with a sample: `system` first, then in the order of the file.
    pub(crate) fn candidates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !names.contains(&sample.candidate.as_str()) {
                names.push(&sample.candidate);
            }
        }
        // The rounds are in random order. The order of the study is the catalogue's, in which the
        // libraries were measured.
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

    /// A figure of a candidate by round, from valid samples.
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

    /// Values of a figure of a candidate from valid samples, in the order of the rounds.
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
    fn a_record_and_a_line_of_before_give_the_same_sample() {
        let record = RawRun {
            part: Some("size".into()),
            program: "timed".into(),
            candidate: "tlsf".into(),
            ok: true,
            figures: sample(0).figures,
            ..RawRun::default()
        };
        let failed = RawRun { ok: false, message: Some("crash".into()), round: 1, ..record.clone() };
        let lines = [
            serde_json::to_string(&sample(0)).unwrap(),
            serde_json::to_string(&record).unwrap(),
            serde_json::to_string(&failed).unwrap(),
            r#"{"imas":"mobile","schema":1,"versions":{"tlsf":"3.1"}}"#.to_owned(),
            r#"{"part":"si"#.to_owned(),
        ];
        let all = Samples::parse(&lines[1..].join("\n"));
        assert_eq!((all.samples.len(), all.headers.len(), all.unreadable), (2, 1, 1));
        assert_eq!(all.samples[0], sample(0));
        assert_eq!(all.samples[1].failed.as_deref(), Some("crash"));
        assert_eq!(Samples::parse(&lines[0]).samples, [sample(0)], "as it was written before");
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
