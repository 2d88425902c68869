// SPDX-License-Identifier: Apache-2.0
//! The folder that `imas bench` of a server was called from, in which the server runs: what the runs leave there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use imas_cli::message::Hinted;

/// Entries beyond this number are not looked at.
const MOST_ENTRIES: usize = 10_000;
/// Names that a note has at most.
const MOST_NAMED: usize = 3;

/// The caller's folder before the first run.
pub(super) struct CallerFolder {
    path: PathBuf,
    before: BTreeMap<OsString, Option<SystemTime>>,
}

impl CallerFolder {
    /// The folder as it is now.
    ///
    /// # Errors
    /// When there is none any more, as after `rmdir`.
    pub(super) fn now() -> Result<Self> {
        let path = std::env::current_dir().map_err(|error| {
            Hinted::error(
                format!("the server cannot run in this folder: {error}"),
                "go to a folder that exists, or give each run a fresh one with --fresh-folder",
            )
        })?;
        Ok(Self { before: entries(&path), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A note on what the runs made or changed here, but for the file `ours`: the second run did not begin like the
    /// first one.
    pub(super) fn left_behind(&self, ours: Option<&Path>) -> Option<String> {
        let ours = ours.and_then(Path::file_name);
        let is_new = |(name, changed): &(OsString, Option<SystemTime>)| {
            Some(name.as_os_str()) != ours && self.before.get(name) != Some(changed)
        };
        let new: Vec<OsString> =
            entries(&self.path).into_iter().filter(is_new).map(|(name, _)| name).collect();
        let named: Vec<String> = new.iter().take(MOST_NAMED).map(|name| text(name)).collect();
        let more = match new.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!new.is_empty()).then(|| {
            format!(
                "the runs wrote {}{more} in this folder, so a later one may not have begun like the first; \
                 --fresh-folder gives each run a folder of its own",
                named.join(", ")
            )
        })
    }
}

/// Names of a folder and when each was changed last. What cannot be read is not there.
fn entries(folder: &Path) -> BTreeMap<OsString, Option<SystemTime>> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_ENTRIES);
    let changed = |entry: &std::fs::DirEntry| entry.metadata().and_then(|it| it.modified()).ok();
    all.map(|entry| (entry.file_name(), changed(&entry))).collect()
}

fn text(name: &OsStr) -> String {
    imas_core::printable::text(&name.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

    use super::*;

    #[test]
    fn what_the_runs_write_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.ru"), "").unwrap();
        let caller = CallerFolder { path: folder.path().to_owned(), before: entries(folder.path()) };
        assert_eq!(caller.left_behind(None), None);
        std::fs::write(folder.path().join("raw.jsonl"), "").unwrap();
        assert_eq!(caller.left_behind(Some(Path::new("raw.jsonl"))), None);
        for name in ["a", "b", "dump.rdb", "z"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let note = caller.left_behind(Some(Path::new("raw.jsonl"))).unwrap();
        assert!(note.contains("wrote a, b, dump.rdb and 1 more in this folder"), "{note}");
    }
}
