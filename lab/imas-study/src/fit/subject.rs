// SPDX-License-Identifier: Apache-2.0
//! The allocators of the study.

use crate::error::StudyResult;
use crate::program::locate;
use std::path::{Path, PathBuf};

/// Number of [`Subject`]s.
pub(crate) const SUBJECTS: usize = 5;

/// An allocator under which the programs run. All tables have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    System,
    First,
    Next,
    Best,
    Worst,
}

impl Subject {
    pub(crate) const ALL: [Self; SUBJECTS] = [Self::System, Self::First, Self::Next, Self::Best, Self::Worst];
    pub(crate) const POLICIES: [Self; 4] = [Self::First, Self::Next, Self::Best, Self::Worst];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::First => "first fit",
            Self::Next => "next fit",
            Self::Best => "best fit",
            Self::Worst => "worst fit",
        }
    }

    /// The library to preload; None for the system.
    pub(crate) fn library(self, library_dir: &Path) -> StudyResult<Option<PathBuf>> {
        let policy = match self {
            Self::System => return Ok(None),
            Self::First => "first",
            Self::Next => "next",
            Self::Best => "best",
            Self::Worst => "worst",
        };
        locate(library_dir, &format!("allocators/libimas-fit-{policy}.so")).map(Some)
    }
}
