// SPDX-License-Identifier: Apache-2.0
//! The section `[trim]` of the configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use imas_core::trimming::TrimRule;
use imas_engine::amounts::{duration, size};
use serde::Deserialize;

/// Time between two trims of a process where the section names none.
const USUAL: &str = "10m";
/// More often than once in this time would take pages away that are about to be used.
const SHORTEST: Duration = Duration::from_secs(60);

/// When running processes are trimmed by themselves, and which.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TrimSettings {
    /// `pressure`: while memory is short; without it, always.
    pub(crate) when: Option<TrimWhen>,
    /// Shortest time between two trims of a process.
    pub(crate) every: Option<String>,
    /// Fewest free bytes for which a thread is disturbed.
    pub(crate) at_least: String,
    /// All processes, or those of the listed services.
    pub(crate) of: TrimOf,
    /// Services of the system.
    pub(crate) units: BTreeSet<String>,
    /// Keys that the section does not have.
    #[serde(flatten)]
    pub(crate) unknown: toml::Table,
}

/// Condition of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TrimWhen {
    Pressure,
}

/// Processes that are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TrimOf {
    #[default]
    All,
    Listed,
}

impl Default for TrimSettings {
    fn default() -> Self {
        Self {
            when: None,
            every: None,
            at_least: "32M".to_owned(),
            of: TrimOf::All,
            units: BTreeSet::new(),
            unknown: toml::Table::new(),
        }
    }
}

impl TrimSettings {
    /// Checks the section. The error is what is wrong with it, with the name of the key.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(key) = self.unknown.keys().next() {
            return Err(format!("[trim] unknown key `{key}`"));
        }
        self.rule()?;
        match (self.of, self.units.is_empty()) {
            (TrimOf::Listed, true) => {
                Err("[trim] of = \"listed\": units = [\"NAME.service\", ...] lists them".to_owned())
            }
            (TrimOf::All, false) => {
                Err("[trim] units: of = \"listed\" goes with it, or all are trimmed".to_owned())
            }
            _ => match self.units.iter().find(|unit| !unit.ends_with(".service")) {
                Some(unit) => Err(format!("[trim] units: {unit} is no service: its name ends with .service")),
                None => Ok(()),
            },
        }
    }

    /// Whether anything is trimmed.
    pub(crate) fn is_on(&self) -> bool {
        self.when.is_some() || self.every.is_some()
    }

    /// The rule of these settings.
    pub(crate) fn rule(&self) -> Result<TrimRule, String> {
        let every = duration(self.every.as_deref().unwrap_or(USUAL));
        let every = every.map_err(|why| format!("[trim] every: {why}"))?;
        if every < SHORTEST {
            return Err("[trim] every: less than a minute: what is free now is often wanted again".to_owned());
        }
        let at_least = size(&self.at_least).map_err(|why| format!("[trim] at_least: {why}"))?;
        Ok(TrimRule { every, at_least })
    }

    /// Whether the process with this text in its `/proc/PID/cgroup` is meant.
    pub(crate) fn means(&self, cgroup: impl FnOnce() -> String) -> bool {
        match self.of {
            TrimOf::All => true,
            TrimOf::Listed => {
                imas_linux::index::unit_of_cgroup(&cgroup()).is_some_and(|unit| self.units.contains(unit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TrimSettings, String> {
        let settings: TrimSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn nothing_is_trimmed_unless_it_is_asked_for() {
        assert!(!read("").unwrap().is_on() && !read("at_least = '64M'").unwrap().is_on());
        for text in ["when = 'pressure'", "every = '10m'"] {
            assert!(read(text).unwrap().is_on());
        }
        let rule = read("every = '2m'\nat_least = '64M'").unwrap().rule().unwrap();
        assert_eq!(rule, TrimRule { every: Duration::from_secs(120), at_least: 64 << 20 });
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, part) in [
            ("every = '10'", "less than a minute"),
            ("every = 'soon'", "[trim] every: "),
            ("at_least = '0'", "[trim] at_least: "),
            ("ever = '10m'", "[trim] unknown key `ever`"),
            ("when = 'always'", "pressure"),
            ("of = 'listed'", "units = ["),
            ("units = ['a.service']", "of = \"listed\""),
            ("of = 'listed'\nunits = ['nginx']", "nginx is no service"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn services_of_the_system_are_known_by_their_group_and_no_user_has_one() {
        let settings = read("of = 'listed'\nunits = ['db.service']").unwrap();
        let means = |group: &str| settings.means(|| format!("0::{group}\n"));
        assert!(means("/system.slice/db.service") && means("/system.slice/db.service/worker"));
        assert!(!means("/system.slice/web.service") && !means("/"));
        assert!(!means("/user.slice/user-1000.slice/user@1000.service/app.slice/db.service"));
        assert!(read("").unwrap().means(String::new));
    }
}
