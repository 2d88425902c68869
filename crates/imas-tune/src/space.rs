// SPDX-License-Identifier: Apache-2.0
//! The settings that are searched, read from a TOML file of `[[setting]]` tables (`allocators/tuning.toml`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Why a file of settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// Not TOML, or a key is unknown or missing.
    #[error("{0}")]
    Syntax(String),
    /// An entry contradicts itself.
    #[error("{allocator} {name}: {what}")]
    Setting {
        /// Its allocator.
        allocator: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// All settings of all allocators.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Space {
    settings: Vec<TunedSetting>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedSetting {
    /// The allocator, as the catalogue names it.
    pub allocator: String,
    /// As the allocator names it, in lower case.
    pub name: String,
    /// Its values.
    pub values: TunedValues,
}

/// The values of a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum TunedValues {
    /// Whole numbers.
    Numbers {
        /// The smallest.
        from: i64,
        /// The largest.
        to: i64,
        /// How far two numbers are apart.
        scale: Scale,
        /// What the allocator takes if nothing is set.
        default: i64,
    },
    /// Words; the first is what the allocator takes if nothing is set.
    Words(Vec<String>),
}

/// How far two numbers are apart in the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// By their difference.
    #[default]
    Linear,
    /// By their ratio, counted from one below the smallest.
    Log,
}

/// Values of the settings that are not at their default, by name.
pub type SettingsPoint = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    setting: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    allocator: String,
    name: String,
    from: Option<i64>,
    to: Option<i64>,
    #[serde(default)]
    scale: Scale,
    default: Option<i64>,
    default_per_cpu: Option<i64>,
    words: Option<Vec<String>>,
}

impl Space {
    /// Reads the text of a file. `cpus`: of the machine, for defaults that depend on it.
    ///
    /// # Errors
    /// When it is not such a file, or an entry contradicts itself.
    pub fn read(text: &str, cpus: u32) -> Result<Self, SpaceError> {
        let file: File = toml::from_str(text).map_err(|error| SpaceError::Syntax(error.to_string()))?;
        if file.schema != 1 {
            return Err(SpaceError::Syntax(format!("schema {} is not known, only 1 is", file.schema)));
        }
        let mut names = BTreeSet::new();
        let mut settings = Vec::new();
        for entry in file.setting {
            let wrong = |what| SpaceError::Setting {
                allocator: entry.allocator.clone(),
                name: entry.name.clone(),
                what,
            };
            if !names.insert((entry.allocator.clone(), entry.name.clone())) {
                return Err(wrong("is there twice"));
            }
            let values = entry.values(cpus).map_err(wrong)?;
            settings.push(TunedSetting { allocator: entry.allocator, name: entry.name, values });
        }
        Ok(Self { settings })
    }

    /// The allocators that have settings, in the order of the file.
    #[must_use]
    pub fn allocators(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.settings.iter().map(|setting| setting.allocator.as_str()).collect();
        all.dedup();
        all
    }

    /// The settings of one allocator.
    pub fn settings_of<'a>(&'a self, allocator: &'a str) -> impl Iterator<Item = &'a TunedSetting> {
        self.settings.iter().filter(move |setting| setting.allocator == allocator)
    }
}

impl Entry {
    fn values(&self, cpus: u32) -> Result<TunedValues, &'static str> {
        let given =
            (self.from, self.to, self.default.or_else(|| Some(self.default_per_cpu? * i64::from(cpus))));
        match (given, &self.words) {
            ((None, None, None), Some(words)) if words.len() > 1 => Ok(TunedValues::Words(words.clone())),
            ((Some(from), Some(to), Some(default)), None) if from < to => {
                // A machine with many CPUs may have a default above what is worth a search.
                Ok(TunedValues::Numbers { from, to: to.max(default), scale: self.scale, default })
            }
            ((Some(_), Some(_), Some(_)), None) => Err("'from' must be below 'to'"),
            (_, None) => Err("it needs 'from', 'to' and 'default' (or 'default_per_cpu'), or 'words'"),
            (_, Some(_)) => Err("'words' are two at least, and stand alone"),
        }
    }
}

/// The name under which IMAS takes these settings of an allocator: `jemalloc?narenas:1,thp:always`, or the
/// allocator's alone.
#[must_use]
pub fn candidate_name(allocator: &str, point: &SettingsPoint) -> String {
    if point.is_empty() {
        return allocator.to_owned();
    }
    let pairs: Vec<String> = point.iter().map(|(name, value)| format!("{name}:{value}")).collect();
    format!("{allocator}?{}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &str) -> Result<Space, SpaceError> {
        Space::read(&format!("schema = 1\n{entries}"), 2)
    }

    const NUMBER: &str = "[[setting]]\nallocator = 'a'\nname = 'n'\nfrom = 1\nto = 64\nscale = 'log'\n";

    #[test]
    fn a_default_may_depend_on_the_machine() {
        let space = read(&format!("{NUMBER}default_per_cpu = 4")).unwrap();
        let values = &space.settings_of("a").next().unwrap().values;
        assert_eq!(*values, TunedValues::Numbers { from: 1, to: 64, scale: Scale::Log, default: 8 });
        let many = Space::read(&format!("schema = 1\n{NUMBER}default_per_cpu = 4"), 64).unwrap();
        let values = &many.settings_of("a").next().unwrap().values;
        assert_eq!(*values, TunedValues::Numbers { from: 1, to: 256, scale: Scale::Log, default: 256 });
    }

    #[test]
    fn entries_that_contradict_themselves_are_named() {
        for (entries, what) in [
            (NUMBER.to_owned(), "a n: it needs"),
            (format!("{NUMBER}default = 1\n{NUMBER}default = 1"), "a n: is there twice"),
            (format!("{NUMBER}default = 1\nwords = ['a', 'b']"), "a n: 'words'"),
            (format!("{NUMBER}default = 1").replace("64", "1"), "a n: 'from' must"),
            (format!("{NUMBER}default = 1\nsize = 1"), "unknown field"),
            ("[[setting]]\nallocator = 'a'\nname = 'n'\nwords = ['only']".to_owned(), "a n: 'words'"),
        ] {
            let error = read(&entries).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn the_name_is_that_of_the_command_line() {
        let point = SettingsPoint::from([("thp".into(), "always".into()), ("narenas".into(), "1".into())]);
        assert_eq!(candidate_name("jemalloc", &point), "jemalloc?narenas:1,thp:always");
        assert_eq!(candidate_name("jemalloc", &SettingsPoint::new()), "jemalloc");
    }
}
