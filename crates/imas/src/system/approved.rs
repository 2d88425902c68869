// SPDX-License-Identifier: Apache-2.0
//! Which library files passed the battery: written down when they are put in place, compared by `status`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// A file as it was when it passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    path: PathBuf,
    dev: u64,
    ino: u64,
    bytes: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl Identity {
    /// The identity of the file at the path; links are followed.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let facts = std::fs::metadata(path)?;
        Ok(Self {
            path: std::fs::canonicalize(path)?,
            dev: facts.dev(),
            ino: facts.ino(),
            bytes: facts.size(),
            mtime_ns: facts.mtime() * 1_000_000_000 + facts.mtime_nsec(),
            ctime_ns: facts.ctime() * 1_000_000_000 + facts.ctime_nsec(),
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    stubs: Vec<Identity>,
}

/// Writes down the identities of the stubs that are linked now.
pub(super) fn write(machine: &Machine) -> Result<()> {
    let links = machine.placements()?;
    let stubs = links.iter().filter_map(|placement| Identity::of(&placement.link).ok()).collect();
    let text = serde_json::to_string_pretty(&Record { schema: 1, stubs })?;
    let path = machine.approved();
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .with_context(|| path.display().to_string())
}

/// Identities of the stubs that were written down; none when there is no record.
pub(super) fn read(machine: &Machine) -> Vec<Identity> {
    let text = std::fs::read_to_string(machine.approved()).unwrap_or_default();
    serde_json::from_str::<Record>(&text).map_or_else(|_| vec![], |record| record.stubs)
}
