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
//!
//! `agent.json`: what the agent of this host has done since it started, for metrics and for `imas fleet status`.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fchmod, mkdirat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::aggregate::{self, Aggregate};
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

// A folder that two users write. Each of them can put a link, a FIFO or a large file in place of any
// entry, at any moment. So nothing is opened by path and nothing is followed.

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// The two sides are different users; the mode of the folder decides who else may read.
const MODE: u32 = 0o644;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, FOLDER, Mode::empty())?))
    }

    /// The folder of that name in this one, itself and no link to it.
    fn inner(&self, name: &str) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Makes a folder of that name unless there is something of that name.
    fn make(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes a file whole or not at all, as a reader sees it and after a power cut.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = format!("{name}.new");
        self.remove(&unfinished)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.0, &unfinished, flags, Mode::from_raw_mode(MODE))?);
        fchmod(&file, Mode::from_raw_mode(MODE))?; // the mask of this process may have taken rights away
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        if let Err(error) = written {
            let _ = self.remove(&unfinished); // the disk is full: what was begun takes up room
            return Err(error);
        }
        renameat(&self.0, &unfinished, &self.0, name)?;
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// The bytes of a regular file of at most `most` bytes; `None` where nothing has that name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] where it is no regular file, or larger.
    pub(super) fn read(&self, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
        // At a FIFO the opening would wait, at a terminal it would take it over.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(refused(name, "is a link")),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(refused(name, "is no regular file"));
        }
        let mut bytes = vec![];
        file.take(most as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > most { Err(refused(name, "is too large")) } else { Ok(Some(bytes)) }
    }

    /// Removes a file that may be gone already.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Names and sizes of the regular files, in the order of their names.
    fn files(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = vec![];
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            // The other side may have removed it meanwhile.
            let Ok(known) = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(known.st_mode) == FileType::RegularFile {
                files.push((name.to_owned(), u64::try_from(known.st_size).unwrap_or(0)));
            }
        }
        files.sort();
        Ok(files)
    }
}

fn refused(name: &str, why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{name} {why}"))
}

/// Counters since the agent started, and its connection.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct AgentRecord {
    /// When the agent started, seconds since 1970.
    pub started_unix_s: u64,
    /// Since when it is connected; absent: it is not.
    pub connected_since_unix_s: Option<u64>,
    /// The server it is connected with, or was last.
    pub server: String,
    /// The server's version.
    pub server_version: String,
    /// Connections that were made.
    pub connections: u64,
    /// Aggregates that were sent, repetitions included.
    pub published: u64,
    /// Aggregates that the stream has; they have left the outbox.
    pub acknowledged: u64,
    /// Acknowledged aggregates that the stream had before: an earlier acknowledgement was lost.
    pub duplicates: u64,
    /// Aggregates that were set aside, because they would be refused each time.
    pub refused: u64,
    /// Aggregates that wait in the outbox.
    pub backlog: u64,
    /// Statistics that were received and written into the inbox.
    pub received: u64,
    /// Statistics that were removed from the inbox: the fleet has forgotten them.
    pub forgotten: u64,
    /// Aggregates that this host folded, where it merges.
    pub folded: u64,
    /// Folds that another merger was faster with.
    pub conflicts: u64,
    /// Aggregates that were passed over: absurd, or sent by another host than they name.
    pub rejected: u64,
    /// Aggregates that were passed over because their host had sent more of that program than a day allows.
    pub excessive: u64,
    /// The last error, in words.
    pub last_error: Option<String>,
    /// When the last error was, Unix time in seconds.
    pub last_error_unix_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    use imas_core::stats::Moments;

    use super::*;
    use crate::{Environment, ProgramKey};

    fn aggregate(batch: u64) -> Aggregate {
        Aggregate {
            v: crate::aggregate::VERSION,
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

    #[test]
    fn a_link_in_place_of_an_entry_leads_nowhere() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = theirs.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        let folder = Folder::open(ours.path()).unwrap();
        symlink(&victim, ours.path().join("a.json.new")).unwrap();
        symlink(&victim, ours.path().join("a.json")).unwrap();
        assert_eq!(folder.read("a.json", 100).unwrap_err().kind(), ErrorKind::InvalidData);
        folder.write("a.json", b"ours").unwrap();
        assert_eq!(folder.read("a.json", 100).unwrap().unwrap(), b"ours");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        symlink(theirs.path(), ours.path().join("outbox")).unwrap();
        assert!(folder.inner("outbox").is_err(), "a folder is not followed either");
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused_at_once() {
        let ours = tempfile::tempdir().unwrap();
        let folder = Folder::open(ours.path()).unwrap();
        rustix::fs::mknodat(&folder.0, "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
        folder.write("large", &[b'x'; 11]).unwrap();
        folder.make("folder").unwrap();
        for name in ["fifo", "large", "folder"] {
            assert_eq!(folder.read(name, 10).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        }
        assert_eq!(folder.read("large", 11).unwrap().unwrap().len(), 11);
        assert_eq!(folder.read("none", 10).unwrap(), None);
        assert_eq!(folder.files().unwrap(), [("large".to_owned(), 11)]);
    }
}
