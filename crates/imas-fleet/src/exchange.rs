// SPDX-License-Identifier: Apache-2.0
//! The folder through which imasd (root, no network) and the agent (its own user, no privileges) hand each other files.
//!
//! ```text
//! outbox/NNNNNNNNNNNNNNNNNNNN.json   an aggregate, written by imasd; the agent removes it after the acknowledgement
//! wanted.json                        subjects of the host's own programs, written by imasd
//! inbox/SUBJECT.json                 statistics, written by the agent; imasd reads them as hostile bytes
//! agent.json                         what the agent does: connected since, acknowledged, folded, conflicts, errors
//! ```
//! Files are written under another name and renamed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::aggregate::{self, Aggregate};
use crate::statistics;

/// Bounds of the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Most aggregates.
    pub files: usize,
    /// Most bytes of all together.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { files: 4096, bytes: 8 << 20 }
    }
}

/// Subjects that the agent shall keep up to date.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// `PROGRAM.ENVIRONMENT`, as [`crate::key::subject`] makes them.
    pub subjects: Vec<String>,
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Exchange {
    folder: PathBuf,
}

/// An aggregate that waits in the outbox.
#[derive(Clone, PartialEq, Debug)]
pub struct Waiting {
    /// Its file.
    pub file: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Exchange {
    /// The exchange folder; nothing is made or read yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes the folders where they are missing. Who may write them is up to the caller.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(self.outbox())?;
        fs::create_dir_all(self.inbox())
    }

    /// The folder of aggregates.
    pub fn outbox(&self) -> PathBuf {
        self.folder.join("outbox")
    }

    /// The folder of statistics.
    pub fn inbox(&self) -> PathBuf {
        self.folder.join("inbox")
    }

    /// Adds an aggregate; `order` counts up. Then removes the oldest ones above the bounds: how many.
    pub fn add(&self, order: u64, aggregate: &Aggregate, bounds: Bounds) -> io::Result<u64> {
        let bytes = serde_json::to_vec(aggregate)?;
        write(&self.outbox().join(format!("{order:020}.json")), &bytes)?;
        self.drop_oldest(bounds)
    }

    /// The oldest aggregates, at most `most`. A file that is too large to be one of ours is removed.
    pub fn waiting(&self, most: usize) -> io::Result<Vec<Waiting>> {
        let mut waiting = vec![];
        for (file, size) in self.outbox_files()?.into_iter().take(most) {
            if size > aggregate::MAX_BYTES as u64 {
                remove(&file)?;
                continue;
            }
            match fs::read(&file) {
                Ok(bytes) => waiting.push(Waiting { file, bytes }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(waiting)
    }

    /// Removes an aggregate that the fleet has.
    pub fn acknowledged(&self, waiting: &Waiting) -> io::Result<()> {
        remove(&waiting.file)
    }

    /// Number of aggregates that wait, and their bytes.
    pub fn backlog(&self) -> io::Result<(usize, u64)> {
        let files = self.outbox_files()?;
        Ok((files.len(), files.iter().map(|(_, size)| size).sum()))
    }

    /// Writes what the agent shall keep up to date.
    pub fn want(&self, wanted: &Wanted) -> io::Result<()> {
        write(&self.folder.join("wanted.json"), &serde_json::to_vec(wanted)?)
    }

    /// Reads it; empty where it was not written yet.
    pub fn wanted(&self) -> io::Result<Wanted> {
        match fs::read(self.folder.join("wanted.json")) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Wanted::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the statistics of a subject.
    pub fn deliver(&self, subject: &str, statistics: &[u8]) -> io::Result<()> {
        write(&self.inbox_file(subject), statistics)
    }

    /// The bytes of the statistics of a subject; None where there are none or they are too large.
    pub fn delivered(&self, subject: &str) -> io::Result<Option<Vec<u8>>> {
        let file = self.inbox_file(subject);
        match fs::symlink_metadata(&file) {
            Ok(known) if known.is_file() && known.len() <= statistics::MAX_BYTES as u64 => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        fs::read(file).map(Some)
    }

    fn inbox_file(&self, subject: &str) -> PathBuf {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let plain: String = subject.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        self.inbox().join(format!("{plain}.json"))
    }

    /// Oldest first, with their sizes. Files of other names are none of ours.
    fn outbox_files(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut files = vec![];
        for entry in fs::read_dir(self.outbox())? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = name.to_str().is_some_and(|name| name.len() == 25 && name.ends_with(".json"));
            // The other side may have removed it meanwhile.
            if is_ours && let Ok(known) = entry.metadata() {
                files.push((entry.path(), known.len()));
            }
        }
        files.sort();
        Ok(files)
    }

    fn drop_oldest(&self, bounds: Bounds) -> io::Result<u64> {
        let files = self.outbox_files()?;
        let mut bytes: u64 = files.iter().map(|(_, size)| size).sum();
        let mut left = files.len();
        let mut dropped = 0;
        for (file, size) in files {
            if left <= bounds.files && bytes <= bounds.bytes {
                break;
            }
            remove(&file)?;
            (left, bytes, dropped) = (left - 1, bytes - size, dropped + 1);
        }
        Ok(dropped)
    }
}

/// Writes a file whole or not at all, as seen by whoever reads it.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = file.with_extension("new");
    fs::write(&unfinished, bytes)?;
    fs::rename(unfinished, file)
}

/// Removes a file that may be gone already.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
