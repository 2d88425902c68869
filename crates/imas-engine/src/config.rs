// SPDX-License-Identifier: Apache-2.0
//! The configuration files: `/etc/imas/imas.toml`, then `$XDG_CONFIG_HOME/imas/imas.toml`; the later wins key by key.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_core::Policy;
use imas_core::adaptive::Objective;
use imas_core::adaptive::wishes::{self, ByProgram, Wishes};
use imas_core::paper::Limits;
use imas_report::message::Hinted;
use serde::Deserialize;

use crate::daemon_status::daemon;
use crate::flags::{PolicyName, RulesArgs};
use crate::folders::xdg;
use crate::seconds;

/// The daemon's own, unless it says otherwise.
const DAEMONS_FILE: &str = "/etc/imas/imasd.toml";

/// What the files may say. A flag wins over an environment variable, that over a file.
#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seconds between two tests of one candidate.
    pub retest_s: Option<f64>,
    /// Tests of each candidate under policy `paper`; `adaptive` stops by itself.
    pub max_tests: Option<u32>,
    /// Candidates that `imas run` tests, in place of the catalogue's default set.
    pub candidates: Option<Vec<String>>,
    /// The rules that `imas run` decides by.
    pub policy: Option<PolicyName>,
    /// What matters, for every program that has no word of its own.
    #[serde(default)]
    pub wishes: Wishes,
    /// By path of a program or its script: what matters for it.
    #[serde(default)]
    pub program: ByProgram,
}

impl Config {
    /// The rules for the program at `path` with script `detail`: flags stand above the program's own words, those above the general ones.
    #[must_use]
    pub fn policy(&self, flags: &RulesArgs, path: &str, detail: &str) -> Policy {
        let configured = wishes::of_program(self.wishes, &self.program, path, detail);
        let said = Wishes {
            objective: flags.objective.map(Objective::from),
            max_memory_mib: flags.max_memory,
            ..Wishes::default()
        };
        match flags.policy.or(self.policy).unwrap_or(PolicyName::Adaptive) {
            PolicyName::Paper => Policy::Paper,
            PolicyName::Adaptive => Policy::Adaptive(said.or(configured).settings()),
        }
    }

    /// Reads the files that exist.
    ///
    /// # Errors
    /// When one is wrong; the error names it.
    pub fn read() -> Result<Self> {
        let mut config = Self::default();
        for file in files() {
            config = config.overridden_by(Self::read_file(&file, Self::parse)?);
        }
        Ok(config)
    }

    /// What imasd decides by: those keys of its own file that a decision hangs on. Below `run_dir` it says which that is, while it runs, and
    /// which waiting time its command line set.
    ///
    /// # Errors
    /// When the file is wrong; the error names it.
    pub fn of_the_daemon(run_dir: &Path) -> Result<Self> {
        let status = daemon(run_dir).unwrap_or_default();
        let file = Path::new(status["config"].as_str().unwrap_or(DAEMONS_FILE));
        if std::fs::metadata(file).is_ok_and(|about| !about.is_file()) {
            return Err(Hinted::error(
                format!("{}: not a file", file.display()),
                "imasd names it as its configuration in state/status.json: 'systemctl restart imasd' has it written anew",
            ));
        }
        let config = Self::read_file(file, Self::parse_daemons)?;
        Ok(Self { retest_s: status["retest_s"].as_f64().or(config.retest_s), ..config })
    }

    fn read_file(file: &Path, parse: fn(&str) -> Result<Self, String>) -> Result<Self> {
        let read = match std::fs::read_to_string(file) {
            Ok(text) => parse(&text),
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

    /// imasd has keys that say nothing of decisions; it checks them itself.
    fn parse_daemons(text: &str) -> Result<Self, String> {
        const KEYS: [&str; 6] = ["policy", "retest_s", "max_tests", "candidates", "wishes", "program"];
        let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        table.retain(|key, _| KEYS.contains(&key));
        Self::parse(&table.to_string())
    }

    /// The file's text as settings, or what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if let Some(retest_s) = config.retest_s {
            seconds::check("retest_s", retest_s)?;
        }
        wishes::check(config.wishes, &config.program)?;
        Ok(Self { program: imas_linux::program::by_real_path(config.program), ..config })
    }

    fn overridden_by(self, later: Self) -> Self {
        Self {
            retest_s: later.retest_s.or(self.retest_s),
            max_tests: later.max_tests.or(self.max_tests),
            candidates: later.candidates.or(self.candidates),
            policy: later.policy.or(self.policy),
            wishes: later.wishes.or(self.wishes),
            program: joined(self.program, later.program),
        }
    }

    /// The paper's limits with what was configured.
    #[must_use]
    pub fn limits(&self, retest_flag: Option<f64>) -> Limits {
        let paper = Limits::default();
        Limits {
            max_tests: self.max_tests.unwrap_or(paper.max_tests),
            retest_s: retest_flag.or(self.retest_s).unwrap_or(paper.retest_s),
        }
    }
}

fn joined(mut first: ByProgram, later: ByProgram) -> ByProgram {
    for (path, wishes) in later {
        let earlier = first.get(&path).copied().unwrap_or_default();
        first.insert(path, wishes.or(earlier));
    }
    first
}

/// The files in the order of reading.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/imas/imas.toml")];
    files.extend(xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("imas/imas.toml")));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::ObjectiveName;

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
    fn the_sample_names_keys_that_exist_with_their_defaults() {
        let sample = include_str!("../../../packaging/etc/imas.toml").lines();
        let keys =
            sample.filter_map(|line| line.strip_prefix('#').filter(|key| !key.starts_with([' ', '#'])));
        let config = Config::parse(&keys.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!(config.policy, Some(PolicyName::Adaptive));
        assert_eq!((config.retest_s, config.max_tests), (Some(3600.0), Some(5)));
        assert_eq!(config.limits(None), Limits::default());
        assert_eq!((config.candidates.is_some(), config.program.len()), (true, 1));
    }

    #[test]
    fn a_programs_own_wishes_stand_above_the_general_ones_and_flags_above_both() {
        let text =
            "[wishes]\nobjective = 'memory'\nmax_memory_mib = 100\n[program.'/bin/x']\nobjective = 'cpu'\n";
        let config = Config::parse(text).unwrap();
        let settings = |flags: RulesArgs, path| match config.policy(&flags, path, "") {
            Policy::Adaptive(settings) => settings,
            Policy::Paper => panic!("not asked for"),
        };
        let own = settings(RulesArgs::default(), "/bin/x");
        assert_eq!((own.objective, own.max_memory_bytes), (Objective::Cpu, Some(100 << 20)));
        assert_eq!(settings(RulesArgs::default(), "/bin/y").objective, Objective::Memory);
        let flags = RulesArgs { objective: Some(ObjectiveName::Balanced), ..RulesArgs::default() };
        assert_eq!(settings(flags, "/bin/x").objective, Objective::Balanced);
        let paper = RulesArgs { policy: Some(PolicyName::Paper), ..RulesArgs::default() };
        assert_eq!(config.policy(&paper, "/bin/x", ""), Policy::Paper);
        assert!(Config::parse("[wishes]\ncpu_margin = 2").is_err());
        assert!(Config::parse("[program.x]\nobjektive = 'cpu'").is_err());
    }

    #[test]
    fn of_the_daemons_file_only_what_decisions_hang_on_is_read() {
        let text = "worth_cpu_s = 1\nretest_s = 60\npolicy = 'paper'\n[wishes]\nobjective = 'cpu'\n[program.'unit x.service']\nmax_memory_mib = 5\n";
        let config = Config::parse_daemons(text).unwrap();
        assert_eq!((config.retest_s, config.policy), (Some(60.0), Some(PolicyName::Paper)));
        assert_eq!(config.wishes.objective, Some(Objective::Cpu));
        assert_eq!(config.program["unit x.service"].max_memory_mib, Some(5));
        assert!(Config::parse_daemons("retest_s = nan").is_err());
    }

    #[test]
    fn the_running_daemon_says_which_file_it_goes_by() {
        let run = tempfile::tempdir().unwrap();
        let file = run.path().join("other.toml");
        std::fs::write(&file, "retest_s = 60\nmax_tests = 3").unwrap();
        std::fs::create_dir(run.path().join("state")).unwrap();
        let said = |config: &Path, retest_s: Option<f64>| {
            let pid = std::process::id();
            let start_ticks = imas_linux::process::start_ticks(pid).unwrap();
            let status = serde_json::json!({"pid": pid, "start_ticks": start_ticks, "config": config, "retest_s": retest_s});
            std::fs::write(run.path().join("state/status.json"), status.to_string()).unwrap();
            Config::of_the_daemon(run.path())
        };
        let limits = said(&file, None).unwrap().limits(None);
        assert_eq!((limits.retest_s, limits.max_tests), (60.0, 3));
        assert_eq!(said(&file, Some(0.0)).unwrap().limits(None).retest_s, 0.0, "its command line wins");
        let absent = said(&run.path().join("no.toml"), None).unwrap();
        assert_eq!(absent, Config::default(), "it need not exist");
        assert!(said(run.path(), None).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(Config::parse("retests = 60").is_err());
    }

    #[test]
    fn a_waiting_time_is_a_number_of_seconds() {
        for bad in ["nan", "inf", "-1", "1e300", "'60'"] {
            assert!(Config::parse(&format!("retest_s = {bad}")).is_err(), "{bad}");
        }
        assert_eq!(Config::parse("retest_s = 0").unwrap().retest_s, Some(0.0));
    }
}
