// SPDX-License-Identifier: Apache-2.0
//! The configuration files: `/etc/imas/imas.toml`, then `$XDG_CONFIG_HOME/imas/imas.toml`; the later wins key by key.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use imas_core::paper::Limits;
use serde::Deserialize;

/// What the files may say. A flag wins over an environment variable, that over a file.
#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Seconds between two tests of one candidate.
    pub(crate) retest_s: Option<f64>,
    /// Tests of each candidate.
    pub(crate) max_tests: Option<u32>,
    /// Candidates that `imas run` tests, in place of the catalogue's default set.
    pub(crate) candidates: Option<Vec<String>>,
}

impl Config {
    /// Reads the files that exist.
    pub(crate) fn read() -> Result<Self> {
        let mut config = Self::default();
        for file in files() {
            config = config.overridden_by(Self::read_file(&file)?);
        }
        Ok(config)
    }

    fn read_file(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("{}", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("{}", file.display())),
        }
    }

    fn overridden_by(self, later: Self) -> Self {
        Self {
            retest_s: later.retest_s.or(self.retest_s),
            max_tests: later.max_tests.or(self.max_tests),
            candidates: later.candidates.or(self.candidates),
        }
    }

    /// The paper's limits with what was configured.
    pub(crate) fn limits(&self, retest_flag: Option<f64>) -> Limits {
        let paper = Limits::default();
        Limits {
            max_tests: self.max_tests.unwrap_or(paper.max_tests),
            retest_s: retest_flag.or(self.retest_s).unwrap_or(paper.retest_s),
        }
    }
}

/// The files in the order of reading.
pub(crate) fn files() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/imas/imas.toml")];
    files.extend(
        crate::context::xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("imas/imas.toml")),
    );
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_files_and_flags_win_key_by_key() {
        let first: Config = toml::from_str("retest_s = 60\nmax_tests = 3").unwrap();
        let second: Config = toml::from_str("retest_s = 0").unwrap();
        let both = first.overridden_by(second);
        assert_eq!((both.limits(None).retest_s, both.limits(None).max_tests), (0.0, 3));
        assert_eq!(both.limits(Some(5.0)).retest_s, 5.0);
        assert_eq!(Config::default().limits(None), Limits::default());
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(toml::from_str::<Config>("retests = 60").is_err());
    }
}
