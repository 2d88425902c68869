// SPDX-License-Identifier: Apache-2.0
//! The policies that decide a program's next start.

use serde::{Deserialize, Serialize};

use crate::adaptive::Settings;

/// One of the two policies.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Algorithms 1, 8, 9 and 10 of the IMAS paper.
    Paper,
    /// [`crate::adaptive`], the default.
    Adaptive(Settings),
}

impl Default for Policy {
    fn default() -> Self {
        Self::Adaptive(Settings::default())
    }
}
