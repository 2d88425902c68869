// SPDX-License-Identifier: Apache-2.0
//! The basis of a settled decision: files, variables, time and pressure. The decision holds while they are unchanged.

use std::path::{Path, PathBuf};

use imas_core::ProfileView;
use imas_core::adaptive::{Objective, weight};
use imas_core::decision::{Conditions, RestsOn};
use imas_engine::config;
use imas_engine::decide::valid_until_s;
use imas_engine::flags::variable;
use imas_engine::folders;
use imas_linux::clock::now_unix_s;
use imas_linux::file_stamp::StampedPath;
use serde::{Deserialize, Serialize};

use crate::command_line::cli::{Places, RunArgs};
use imas_engine::context::Context;

/// Variables that lead to other files.
const VARIABLES: [&str; 5] = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "IMAS_LIB_DIR", "IMAS_STORE"];
/// Changes whenever libraries of the system do; and what every process is given.
const OF_THE_LOADER: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld.so.preload"];
/// A decision without a profile is looked at again after this time, in seconds.
const LONGEST_S: f64 = 3600.0;

/// The rules and the variables by which a start is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    rules: String,
    variables: Vec<Option<String>>,
}

impl Asked {
    pub(crate) fn of(args: &RunArgs, places: &Places) -> Self {
        let value = |name: &&str| variable(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            rules: format!("{:?} {:?}", args.rules.policy, places.retest),
            variables: VARIABLES.iter().map(value).collect(),
        }
    }
}

/// All that a decision rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Basis {
    asked: Asked,
    files: Vec<StampedPath>,
    rests_on: RestsOn,
    /// Unix time in seconds: from when, and until when at most, it holds.
    from_s: f64,
    until_s: f64,
}

impl Basis {
    /// The basis as it is now: read before the decision is made. `executable` is the program's file.
    pub(crate) fn now(asked: Asked, context: &Context, executable: &Path) -> Self {
        let from_s = now_unix_s();
        let files = files(context, executable).iter().map(|file| StampedPath::now(file)).collect();
        Self { asked, files, rests_on: RestsOn::Nothing, from_s, until_s: from_s + LONGEST_S }
    }

    /// Limits the basis to the time at which this profile may lead to another decision.
    pub(crate) fn until(self, profile: &ProfileView) -> Self {
        Self { until_s: valid_until_s(profile, self.from_s), ..self }
    }

    pub(super) fn under(self, rests_on: RestsOn) -> Self {
        Self { rests_on, ..self }
    }

    pub(super) fn with<'a>(mut self, files: impl Iterator<Item = &'a PathBuf>) -> Self {
        self.files.extend(files.map(|file| StampedPath::now(file)));
        self
    }

    /// Whether the decision still stands. What costs least is asked first.
    pub(super) fn holds(&self, asked: &Asked) -> bool {
        self.asked == *asked
            && (self.from_s..self.until_s).contains(&now_unix_s())
            && self.files.iter().all(StampedPath::is_unchanged)
            && self.is_under_the_same_pressure()
    }

    fn is_under_the_same_pressure(&self) -> bool {
        let RestsOn::Weight(w) = self.rests_on else { return true };
        // Damped by the weight of the decision: it stands until the weight has moved.
        imas_engine::decide::conditions().is_ok_and(|now| {
            let now = Conditions { weight_before: Some(w), ..now };
            weight(&now, Objective::Auto).w == w
        })
    }
}

/// The files: the store and its log, this program, what is started, catalogues, configuration.
fn files(context: &Context, executable: &Path) -> Vec<PathBuf> {
    let mut log = context.store_path.clone().into_os_string();
    log.push("-wal");
    let ours = std::env::current_exe().unwrap_or_default();
    let mut files = vec![context.store_path.clone(), log.into(), ours, executable.to_owned()];
    files.extend(OF_THE_LOADER.map(PathBuf::from));
    files.extend(config::files());
    files.extend(folders::catalogue_folders());
    files.extend(folders::catalogues_of_user(&context.lib_dir));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked { rules: String::new(), variables: vec![None] }
    }

    fn basis(file: &Path) -> Basis {
        let now_s = now_unix_s();
        Basis {
            asked: asked(),
            files: vec![StampedPath::now(file)],
            rests_on: RestsOn::Nothing,
            from_s: now_s - 1.0,
            until_s: now_s + 1000.0,
        }
    }

    #[test]
    fn it_holds_until_a_file_a_variable_or_the_time_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let fresh = basis(&file);
        assert!(fresh.holds(&asked()));
        assert!(!fresh.holds(&Asked { variables: vec![Some("/other".to_owned())], ..asked() }));
        assert!(!fresh.holds(&Asked { rules: "paper".to_owned(), ..asked() }));
        let late = now_unix_s() + 1000.0;
        assert!(!Basis { until_s: now_unix_s() - 0.5, ..fresh.clone() }.holds(&asked()), "it is over");
        assert!(
            !Basis { from_s: late, until_s: late + 1.0, ..fresh.clone() }.holds(&asked()),
            "the clock was set back"
        );
        std::fs::write(&file, "").unwrap();
        assert!(!fresh.holds(&asked()));
    }

    #[test]
    fn it_follows_the_pressure_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let now = imas_engine::decide::conditions().unwrap();
        let w = weight(&Conditions { weight_before: None, ..now }, Objective::Auto).w;
        let other = if w < 0.5 { 1.0 } else { 0.0 };
        let under = |w| basis(&folder.path().join("none")).under(RestsOn::Weight(w));
        assert!(!under(other).holds(&asked()), "the weight is {w} now");
    }
}
