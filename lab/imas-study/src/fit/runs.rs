// SPDX-License-Identifier: Apache-2.0
//! The allocators of the study, and every program under each of them, over the seeds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::FitOptions;
use crate::band::Band;
use crate::error::StudyResult;
use crate::program::{figures, locate, rows};

/// Number of programs.
pub(crate) const TESTS: usize = 8;

/// The figures of one run of one program, by the driver's names.
type Figures = BTreeMap<String, u64>;

/// `runs[test - 1][subject]` holds one entry a seed.
#[derive(Debug)]
pub(crate) struct Runs([[Vec<Figures>; SUBJECTS]; TESTS]);

struct Programs {
    driver: PathBuf,
    tests: Vec<PathBuf>,
    libraries: Vec<Option<PathBuf>>,
}

impl Programs {
    fn locate(library_dir: &Path) -> StudyResult<Self> {
        // LD_PRELOAD resolves a relative path from the program's working directory, so the path must be
        // absolute.
        let absolute = std::path::absolute(library_dir).unwrap_or_else(|_| library_dir.to_owned());
        let test = |number| locate(&absolute, &format!("study/fit-test{number}"));
        Ok(Self {
            driver: locate(&absolute, "study/fit-driver")?,
            tests: (1..=TESTS).map(test).collect::<StudyResult<_>>()?,
            libraries: Subject::ALL.iter().map(|s| s.library(&absolute)).collect::<StudyResult<_>>()?,
        })
    }

    fn run(&self, program: &Path, library: Option<&PathBuf>, seed: u32) -> StudyResult<Figures> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(library) = library {
            arguments.extend(["--preload".into(), library.into()]);
        }
        arguments.extend([program.into(), seed.to_string().into()]);
        let figures_of_run: Figures = rows::<(String, u64)>(&self.driver, &arguments)?.into_iter().collect();
        match figures_of_run.get("exit") {
            Some(0) => Ok(figures_of_run),
            Some(code) => Err(figures(program, &format!("it ended with {code}"))),
            None => Err(figures(&self.driver, "no exit status")),
        }
    }
}

impl Runs {
    pub(crate) fn make(options: &FitOptions) -> StudyResult<Self> {
        let programs = Programs::locate(&options.library_dir)?;
        let mut runs: [[Vec<Figures>; SUBJECTS]; TESTS] = Default::default();
        let all = u64::from(options.seeds) * (TESTS * SUBJECTS) as u64;
        let mut done = 0;
        for seed in 1..=options.seeds {
            for (program, of_test) in programs.tests.iter().zip(&mut runs) {
                for (library, of_subject) in programs.libraries.iter().zip(of_test) {
                    of_subject.push(programs.run(program, library.as_ref(), seed)?);
                    done += 1;
                    options.progress.report(done, all);
                }
            }
        }
        Ok(Self(runs))
    }

    /// The runs of `test`, counted from 1. Empty if there is no such test.
    fn of(&self, test: usize, subject: Subject) -> &[Figures] {
        let position = Subject::ALL.iter().position(|s| *s == subject);
        let of_test = test.checked_sub(1).and_then(|i| self.0.get(i));
        of_test.zip(position).and_then(|(t, p)| t.get(p)).map_or(&[], Vec::as_slice)
    }

    /// The figure, if it is the same for every seed. None otherwise.
    pub(crate) fn exact(&self, test: usize, subject: Subject, key: &str) -> Option<u64> {
        let mut values = self.of(test, subject).iter().map(|f| f.get(key).copied());
        let first = values.next()??;
        values.all(|v| v == Some(first)).then_some(first)
    }

    /// The band of the figure over the seeds.
    pub(crate) fn band(&self, test: usize, subject: Subject, key: &str) -> Option<Band> {
        Band::of(&self.values(test, subject, key))
    }

    /// The ratios of the figure under `subject` to that under the system, seed by seed.
    pub(crate) fn ratios(&self, test: usize, subject: Subject, key: &str) -> Vec<f64> {
        let system = self.values(test, Subject::System, key);
        self.values(test, subject, key).iter().zip(system).map(|(ours, base)| ours / base.max(1.0)).collect()
    }

    /// The share of the seeds in which `less` has the lower figure.
    pub(crate) fn share_below(&self, test: usize, key: &str, less: Subject, more: Subject) -> f64 {
        let pairs = self.values(test, less, key).into_iter().zip(self.values(test, more, key));
        crate::band::mean(pairs.map(|(l, m)| if l < m { 1.0 } else { 0.0 }))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "below 2^53: bytes of a small heap, nanoseconds of a second"
    )]
    fn values(&self, test: usize, subject: Subject, key: &str) -> Vec<f64> {
        self.of(test, subject).iter().filter_map(|f| f.get(key)).map(|&v| v as f64).collect()
    }
}

/// Number of [`Subject`]s.
pub(crate) const SUBJECTS: usize = 5;

/// An allocator under which the programs run. All tables have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    System,
    First,
    Next,
    Best,
    Worst,
}

impl Subject {
    pub(crate) const ALL: [Self; SUBJECTS] = [Self::System, Self::First, Self::Next, Self::Best, Self::Worst];
    pub(crate) const POLICIES: [Self; 4] = [Self::First, Self::Next, Self::Best, Self::Worst];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::First => "first fit",
            Self::Next => "next fit",
            Self::Best => "best fit",
            Self::Worst => "worst fit",
        }
    }

    /// The library to preload; None for the system.
    pub(crate) fn library(self, library_dir: &Path) -> StudyResult<Option<PathBuf>> {
        let policy = match self {
            Self::System => return Ok(None),
            Self::First => "first",
            Self::Next => "next",
            Self::Best => "best",
            Self::Worst => "worst",
        };
        locate(library_dir, &format!("allocators/libimas-fit-{policy}.so")).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(system: &[u64], first: &[u64]) -> Runs {
        let mut runs = Runs(Default::default());
        let figures = |v: &u64| Figures::from([("ns".to_owned(), *v)]);
        runs.0[7][0] = system.iter().map(figures).collect();
        runs.0[7][1] = first.iter().map(figures).collect();
        runs
    }

    #[test]
    fn ratios_are_seed_by_seed() {
        assert_eq!(runs(&[10, 20], &[20, 20]).ratios(8, Subject::First, "ns"), [2.0, 1.0]);
    }

    #[test]
    fn exact_needs_every_seed_to_agree() {
        let runs = runs(&[5, 5], &[5, 6]);
        assert_eq!(runs.exact(8, Subject::System, "ns"), Some(5));
        assert_eq!(runs.exact(8, Subject::First, "ns"), None);
        assert_eq!(runs.exact(9, Subject::First, "ns"), None);
    }

    #[test]
    fn a_share_counts_strictly_smaller_seeds() {
        let runs = runs(&[5, 5, 5, 5], &[4, 5, 6, 3]);
        assert!((runs.share_below(8, "ns", Subject::First, Subject::System) - 0.5).abs() < 1e-9);
    }
}
