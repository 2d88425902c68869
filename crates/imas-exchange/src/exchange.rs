// SPDX-License-Identifier: Apache-2.0
//! The folder through which imasd (root, no network) and the agent (its own user, no privileges) hand each
//! other files.
//!
//! ```text
//! outbox/NNNNNNNNNNNNNNNNNNNN.json   an aggregate, written by imasd; the agent removes it after the acknowledgement
//! wanted.json                        subjects of the host's own programs, written by imasd
//! inbox/SUBJECT.json                 statistics, written by the agent; imasd reads them as hostile bytes
//! agent.json                         what the agent does: connected since, acknowledged, folded, conflicts, errors
//! ```
//! Files are written under another name and renamed.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::aggregate::{self, Aggregate};
use crate::folder::Folder;
use crate::statistics;

const OUTBOX: &str = "outbox";
const INBOX: &str = "inbox";
const WANTED: &str = "wanted.json";
const AGENT: &str = "agent.json";
/// Greatest size of `agent.json` in bytes.
const MOST_OF_AGENT: usize = 64 << 10;
/// Greatest size of `wanted.json` in bytes.
const MOST_WANTED: usize = 4 << 20;

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
    /// File of the aggregate.
    pub file: PathBuf,
    /// Content of that file.
    pub bytes: Vec<u8>,
}

impl Exchange {
    /// The exchange folder; nothing is made or read yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes the two inner folders where they are missing. Who may write them is up to the caller.
    pub fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let folder = Folder::open(&self.folder)?;
        folder.make(OUTBOX)?;
        folder.make(INBOX)
    }

    /// The folder itself.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// The folder of aggregates.
    pub fn outbox(&self) -> PathBuf {
        self.folder.join(OUTBOX)
    }

    /// The folder of statistics.
    pub fn inbox(&self) -> PathBuf {
        self.folder.join(INBOX)
    }

    fn open(&self, inner: &str) -> io::Result<Folder> {
        Folder::open(&self.folder)?.inner(inner)
    }

    /// Adds an aggregate; `order` counts up.
    pub fn add(&self, order: u64, aggregate: &Aggregate) -> io::Result<()> {
        self.open(OUTBOX)?.write(&format!("{order:020}.json"), &serde_json::to_vec(aggregate)?)
    }

    /// Removes the oldest aggregates above the bounds: how many. It lists the folder, so it is called once for
    /// several that were added.
    pub fn keep_within(&self, bounds: Bounds) -> io::Result<u64> {
        drop_oldest(&self.open(OUTBOX)?, bounds)
    }

    /// The oldest aggregates, at most `most`. A file that is too large to be one of ours is removed.
    pub fn waiting(&self, most: usize) -> io::Result<Vec<Waiting>> {
        let folder = self.open(OUTBOX)?;
        let mut waiting = vec![];
        for (name, size) in aggregates(&folder)?.into_iter().take(most) {
            if size > aggregate::MAX_BYTES as u64 {
                folder.remove(&name)?;
            } else if let Some(bytes) = folder.read(&name, aggregate::MAX_BYTES)? {
                waiting.push(Waiting { file: self.outbox().join(name), bytes });
            }
        }
        Ok(waiting)
    }

    /// Removes an aggregate that the fleet has.
    pub fn acknowledged(&self, waiting: &Waiting) -> io::Result<()> {
        let name = waiting.file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.open(OUTBOX)?.remove(name)
    }

    /// Number of aggregates that wait, and their bytes.
    pub fn backlog(&self) -> io::Result<(usize, u64)> {
        let files = aggregates(&self.open(OUTBOX)?)?;
        Ok((files.len(), files.iter().map(|(_, size)| size).sum()))
    }

    /// Writes what the agent shall keep up to date.
    pub fn want(&self, wanted: &Wanted) -> io::Result<()> {
        Folder::open(&self.folder)?.write(WANTED, &serde_json::to_vec(wanted)?)
    }

    /// Reads the list of what is wanted; empty where it was not written yet.
    pub fn wanted(&self) -> io::Result<Wanted> {
        match Folder::open(&self.folder)?.read(WANTED, MOST_WANTED)? {
            Some(bytes) => Ok(serde_json::from_slice(&bytes)?),
            None => Ok(Wanted::default()),
        }
    }

    /// The agent's record of itself; `None` where there is none.
    ///
    /// # Errors
    /// When the file cannot be read; [`io::ErrorKind::InvalidData`] where it is no regular file, or too
    /// large.
    pub fn agent(&self) -> io::Result<Option<Vec<u8>>> {
        Folder::open(&self.folder)?.read(AGENT, MOST_OF_AGENT)
    }

    /// Writes the statistics of a subject.
    pub fn deliver(&self, subject: &str, statistics: &[u8]) -> io::Result<()> {
        self.open(INBOX)?.write(&file_name(subject), statistics)
    }

    /// The bytes of the statistics of a subject; `None` where there are none.
    ///
    /// # Errors
    /// When the file cannot be read; [`io::ErrorKind::InvalidData`] where it is no regular file, or too
    /// large.
    pub fn delivered(&self, subject: &str) -> io::Result<Option<Vec<u8>>> {
        self.open(INBOX)?.read(&file_name(subject), statistics::MAX_BYTES)
    }
}

/// The name of the file of a subject in the inbox.
pub fn file_name(subject: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain: String = subject.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{plain}.json")
}

/// Files of the waiting aggregates with their sizes, the oldest first. Files of other names are none of ours.
fn aggregates(folder: &Folder) -> io::Result<Vec<(String, u64)>> {
    let is_ours = |(name, _): &(String, u64)| name.len() == 25 && name.ends_with(".json");
    Ok(folder.files()?.into_iter().filter(is_ours).collect())
}

fn drop_oldest(folder: &Folder, bounds: Bounds) -> io::Result<u64> {
    let files = aggregates(folder)?;
    let mut bytes: u64 = files.iter().map(|(_, size)| size).sum();
    let mut left = files.len();
    let mut dropped = 0;
    for (name, size) in files {
        if left <= bounds.files && bytes <= bounds.bytes {
            break;
        }
        folder.remove(&name)?;
        (left, bytes, dropped) = (left - 1, bytes - size, dropped + 1);
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use imas_core::stats::Moments;

    use super::*;
    use crate::{Environment, ProgramKey};

    fn aggregate(batch: u64) -> Aggregate {
        Aggregate {
            v: crate::payload::VERSION,
            host: "h".into(),
            boot: "b".into(),
            batch,
            program: ProgramKey::new("build-id", &["1"]),
            environment: Environment {
                architecture: "x86_64".into(),
                page_bytes: 4096,
                huge_pages: "madvise".into(),
                cpus: 2,
                threads: None,
            },
            candidates: BTreeMap::new(),
            residual: Moments::default(),
            freedom: 0.0,
        }
    }

    #[test]
    fn the_outbox_is_bounded_and_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        exchange.prepare().unwrap();
        let bounds = Bounds { files: 3, ..Bounds::default() };
        (0..5).for_each(|order| exchange.add(order, &aggregate(order)).unwrap());
        let dropped = exchange.keep_within(bounds).unwrap();
        let read = |waiting: &Waiting| serde_json::from_slice::<Aggregate>(&waiting.bytes).unwrap().batch;
        let waiting = exchange.waiting(10).unwrap();
        assert_eq!((dropped, waiting.iter().map(read).collect::<Vec<_>>()), (2, vec![2, 3, 4]));
        exchange.acknowledged(&waiting[0]).unwrap();
        assert_eq!(exchange.backlog().unwrap().0, 2);
        let one = exchange.backlog().unwrap().1 / 2;
        let few = Bounds { bytes: one + one / 2, ..Bounds::default() };
        exchange.add(4, &aggregate(4)).unwrap(); // the same file again
        assert_eq!(exchange.keep_within(few).unwrap(), 1, "within the bytes");
    }

    #[test]
    fn a_delivery_is_read_by_its_subject() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        exchange.prepare().unwrap();
        exchange.deliver("../x", b"1").unwrap();
        assert_eq!(exchange.delivered("../x").unwrap().unwrap(), b"1");
        assert_eq!(exchange.delivered("y").unwrap(), None);
        assert!(!folder.path().join("x.json").exists());
        let wanted = Wanted { subjects: vec!["a.b".into()] };
        assert_eq!(exchange.wanted().unwrap(), Wanted::default());
        exchange.want(&wanted).unwrap();
        assert_eq!(exchange.wanted().unwrap(), wanted);
    }
}
