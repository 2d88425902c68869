// SPDX-License-Identifier: Apache-2.0
//! What a candidate sets in a runtime.

use serde::{Deserialize, Serialize};

use super::{Runtime, VersionRange, limit};

/// What a candidate sets in a runtime, beside its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSettings {
    /// The runtime. No program of another gets the candidate.
    pub runtime: Runtime,
    /// The versions of the runtime that have these settings.
    pub versions: VersionRange,
    /// Arguments that are put behind the program's name.
    pub arguments: Vec<String>,
    /// Beginnings of options, and variables: where the user gives one, the candidate is not offered.
    pub yields_to: Vec<String>,
    /// Nothing of ours is loaded into the program, and the variables stay in its environment. True only of a
    /// candidate that was fitted to a program (`runtime_start`).
    pub is_bare: bool,
}

impl RuntimeSettings {
    /// No settings of the runtime yet, for all its versions.
    #[must_use]
    pub fn of(runtime: Runtime) -> Self {
        let versions = VersionRange::default();
        Self { runtime, versions, arguments: vec![], yields_to: vec![], is_bare: false }
    }

    /// What is wrong with the settings, or with these variables beside them.
    ///
    /// # Errors
    /// What is wrong, as a clause for people.
    pub fn check<'a>(&'a self, values: impl Iterator<Item = &'a String>) -> Result<(), String> {
        let mut texts = self.arguments.iter().chain(values);
        match texts.find(|text| !limit::is_right(text) || text.contains('\0')) {
            Some(text) => Err(format!("'{text}' has no share of the memory limit that can be read")),
            None if !self.arguments.is_empty() && self.runtime != Runtime::Jvm => {
                Err("'arguments' are for the JVM".to_owned())
            }
            None => Ok(()),
        }
    }
}
