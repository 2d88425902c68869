// SPDX-License-Identifier: Apache-2.0
//! The configuration files: `/etc/imas/imas.toml`, then `$XDG_CONFIG_HOME/imas/imas.toml`; the later wins key by key.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_core::paper::Limits;
use serde::Deserialize;

use crate::message::Hinted;

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
        let read = match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        };
        read.map_err(|why| {
            Hinted::error(
                format!("{}: {}", file.display(), why.trim_end()),
                "correct the file, or move it away: every key has a default",
            )
        })
    }

    /// The file's text as settings, or what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        match config.retest_s {
            Some(seconds) if !(seconds.is_finite() && seconds >= 0.0) => {
                Err(format!("retest_s = {seconds}: not a number of seconds from 0 on"))
            }
            _ => Ok(config),
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
        assert!(Config::parse("retests = 60").is_err());
    }

    #[test]
    fn a_waiting_time_is_a_number_of_seconds() {
        for bad in ["nan", "inf", "-1", "'60'"] {
            assert!(Config::parse(&format!("retest_s = {bad}")).is_err(), "{bad}");
        }
        assert_eq!(Config::parse("retest_s = 0").unwrap().retest_s, Some(0.0));
    }
}
