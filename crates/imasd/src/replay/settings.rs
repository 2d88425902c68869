// SPDX-License-Identifier: Apache-2.0
//! The section `[replay]` of the configuration.

use std::path::{Path, PathBuf};

use imas_engine::seconds;
use serde::Deserialize;

/// Where recordings are by default.
const FOLDER: &str = "/var/cache/imas/recordings";
/// In a user's own tree they are in this folder beside the store.
const FOLDER_BESIDE_STORE: &str = "recordings";

/// Whether imasd records and replays programs, and within which bounds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReplaySettings {
    /// Whether it does.
    pub(crate) enabled: bool,
    /// The folder of the recordings; absent: [`Self::folder`].
    pub(crate) folder: Option<PathBuf>,
    /// Most bytes of the raw files of one recording, 8 for a malloc call.
    pub(crate) most_bytes: u64,
    /// Most recordings that are asked for, grow or wait at a time.
    pub(crate) most_waiting: usize,
    /// A recording ends after this time, seconds, or with the program.
    pub(crate) window_s: f64,
    /// The replays of one recording may take this time, seconds; then they are given up.
    pub(crate) limit_s: f64,
    /// Nothing is replayed while some task waits for CPU, disk or memory for more than this part of the time, per
    /// cent, as the kernel's pressure figures have it.
    pub(crate) most_pressure: f64,
    /// At which priority.
    pub(crate) priority: ReplayPriority,
}

/// The priority of replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReplayPriority {
    /// They get the CPU and the disk when nobody else wants them.
    #[default]
    Idle,
    /// That of imasd, for machines that are never idle.
    Normal,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            folder: None,
            most_bytes: 64 << 20,
            most_waiting: 4,
            window_s: 600.0,
            limit_s: 900.0,
            most_pressure: 20.0,
            priority: ReplayPriority::Idle,
        }
    }
}

impl ReplaySettings {
    /// What is wrong with it, with the name of the key.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            return Err("[replay] folder: a whole path, beginning with /".to_owned());
        }
        if !(0.0..=100.0).contains(&self.most_pressure) {
            return Err(format!(
                "[replay] most_pressure = {}: not a number from 0 to 100",
                self.most_pressure
            ));
        }
        let durations = [("[replay] window_s", self.window_s), ("[replay] limit_s", self.limit_s)];
        durations.into_iter().try_for_each(|(key, value)| seconds::check(key, value).map(|_| ()))
    }

    /// The folder of the recordings.
    pub(crate) fn folder(&self, store: &Path, is_own_tree: bool) -> PathBuf {
        match &self.folder {
            Some(folder) => folder.clone(),
            None if is_own_tree => store.with_file_name(FOLDER_BESIDE_STORE),
            None => PathBuf::from(FOLDER),
        }
    }
}
