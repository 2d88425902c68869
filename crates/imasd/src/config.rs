// SPDX-License-Identifier: Apache-2.0
//! The daemon's configuration, `/etc/imas/imasd.toml`: every key has a default and the file need not exist.

use std::path::Path;

use anyhow::{Result, bail};
use imas_core::adaptive::wishes::{self, ByProgram, Wishes};
use imas_core::paper::Limits;
use imas_core::policy::Policy;
use imas_engine::seconds;
use serde::Deserialize;

/// Rules by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PolicyName {
    /// [`Policy::Adaptive`].
    #[default]
    Adaptive,
    /// [`Policy::Paper`].
    Paper,
}

/// What the file may say.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The rules to decide by.
    pub(crate) policy: PolicyName,
    /// Seconds between two tests of one candidate.
    pub(crate) retest_s: f64,
    /// Tests of each candidate under policy `paper`; `adaptive` stops by itself.
    pub(crate) max_tests: u32,
    /// Candidates that are tested, in place of the catalogue's default set.
    pub(crate) candidates: Option<Vec<String>>,
    /// A program is worth a trial once one of its processes has used so much CPU, seconds. Being placed costs a start one more
    /// exec, about a millisecond: a hundredth of this.
    pub(crate) worth_cpu_s: f64,
    /// Or once one has lived so long, seconds: its memory counts then, whatever CPU it used.
    pub(crate) worth_life_s: f64,
    /// A process under trial that lives so long, seconds, gives its sample then, and not at its end.
    pub(crate) sample_after_s: f64,
    /// Or once it has made so many malloc calls of all classes, whichever comes first; absent: only time closes a sample.
    pub(crate) sample_after_operations: Option<u64>,
    /// Programs known at most; the index and our memory grow with them.
    pub(crate) most_programs: usize,
    /// Pages at most in one user's folder.
    pub(crate) most_pages_of_user: usize,
    /// Pages watched at most in all.
    pub(crate) most_pages: usize,
    /// What matters, for every program that has no word of its own.
    pub(crate) wishes: Wishes,
    /// By path of a program or its script, or by unit: what matters for it.
    pub(crate) program: ByProgram,
}

impl Default for Config {
    fn default() -> Self {
        let paper = Limits::default();
        Self {
            policy: PolicyName::default(),
            retest_s: paper.retest_s,
            max_tests: paper.max_tests,
            candidates: None,
            worth_cpu_s: 0.1,
            worth_life_s: 30.0,
            sample_after_s: 600.0,
            sample_after_operations: None,
            most_programs: 10_000,
            most_pages_of_user: 1_024,
            most_pages: 8_192,
            wishes: Wishes::default(),
            program: ByProgram::new(),
        }
    }
}

impl Config {
    /// Reads the file; one that is not there says nothing.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => bail!("{}: {error}", file.display()),
        };
        Self::parse(&text).map_err(|why| anyhow::anyhow!("{}: {}", file.display(), why.trim_end()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if config.sample_after_operations == Some(0) {
            return Err("sample_after_operations: at least 1, or leave it out".to_owned());
        }
        wishes::check(config.wishes, &config.program)?;
        let durations = [
            ("retest_s", config.retest_s),
            ("worth_cpu_s", config.worth_cpu_s),
            ("worth_life_s", config.worth_life_s),
            ("sample_after_s", config.sample_after_s),
        ];
        for (key, value) in durations {
            seconds::check(key, value)?;
        }
        Ok(Self { program: imas_linux::program::by_real_path(config.program), ..config })
    }

    /// The rules for the program at `path` with that detail.
    pub(crate) fn policy(&self, path: &str, detail: &str) -> Policy {
        match self.policy {
            PolicyName::Adaptive => {
                Policy::Adaptive(wishes::of_program(self.wishes, &self.program, path, detail).settings())
            }
            PolicyName::Paper => Policy::Paper,
        }
    }

    /// The limits of the policy; `retest` from the command line wins.
    pub(crate) fn limits(&self, retest: Option<f64>) -> Limits {
        Limits { max_tests: self.max_tests, retest_s: retest.unwrap_or(self.retest_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::adaptive::Objective;

    #[test]
    fn the_sample_names_keys_that_exist_with_their_defaults() {
        let sample = include_str!("../../../packaging/etc/imasd.toml").lines();
        let keys =
            sample.filter_map(|line| line.strip_prefix('#').filter(|key| !key.starts_with([' ', '#'])));
        let config = Config::parse(&keys.collect::<Vec<_>>().join("\n")).unwrap();
        let left = Config::default();
        assert_eq!(
            (config.policy, config.retest_s, config.max_tests),
            (left.policy, left.retest_s, left.max_tests)
        );
        assert_eq!((config.worth_cpu_s, config.worth_life_s), (left.worth_cpu_s, left.worth_life_s));
        assert_eq!(config.sample_after_s, left.sample_after_s);
        assert_eq!((config.candidates.is_some(), config.program.len()), (true, 1));
    }

    #[test]
    fn wishes_are_those_of_the_program() {
        let text = "[wishes]\nobjective = 'memory'\n[program.'unit nginx.service']\nobjective = 'cpu'\nmax_memory_mib = 7";
        let config = Config::parse(text).unwrap();
        let of = |detail| match config.policy("/usr/sbin/nginx", detail) {
            Policy::Adaptive(settings) => (settings.objective, settings.max_memory_bytes),
            Policy::Paper => panic!("not asked for"),
        };
        assert_eq!(of("unit nginx.service"), (Objective::Cpu, Some(7 << 20)));
        assert_eq!(of(""), (Objective::Memory, None));
    }

    #[test]
    fn a_missing_file_is_the_defaults_and_a_misspelt_key_an_error() {
        assert_eq!(Config::read(Path::new("/nonexistent/imasd.toml")).unwrap(), Config::default());
        assert!(Config::parse("retests_s = 1").unwrap_err().contains("retests_s"));
        assert!(Config::parse("worth_cpu_s = -1").is_err());
        assert!(
            Config::parse("sample_after_s = 1e300").is_err()
                && Config::parse("sample_after_s = nan").is_err()
        );
        assert!(Config::parse("sample_after_operations = 0").unwrap_err().contains("at least 1"));
        assert!(Config::parse("[wishes]\nmax_memory_mib = 0").unwrap_err().contains("at least 1"));
        assert!(Config::parse("[program.nginx]\nobjective = 'cpu'").unwrap_err().contains("whole path"));
        assert_eq!(Config::parse("retest_s = 0").unwrap().limits(None).retest_s, 0.0);
        assert_eq!(Config::default().limits(Some(5.0)).retest_s, 5.0);
    }
}
