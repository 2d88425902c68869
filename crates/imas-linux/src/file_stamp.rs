// SPDX-License-Identifier: Apache-2.0
//! Identity, size and times of a file, to see later whether it is the same file, unchanged.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A file's stamp: it changes when the file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    dev: u64,
    ino: u64,
    bytes: u64,
    /// Modification and change time: seconds, nanoseconds.
    times: [i64; 4],
}

impl FileStamp {
    /// Returns its parts: device, inode, size in bytes; modification and change time, seconds and nanoseconds each.
    #[must_use]
    pub fn parts(&self) -> (u64, u64, u64, [i64; 4]) {
        (self.dev, self.ino, self.bytes, self.times)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(about: &Metadata) -> Self {
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Self { dev: about.dev(), ino: about.ino(), bytes: about.size(), times }
    }
}

/// A path and the stamp of what was there; None where nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedPath {
    path: PathBuf,
    stamp: Option<FileStamp>,
}

impl StampedPath {
    /// The path with the stamp of now.
    #[must_use]
    pub fn now(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: stamp_of(path) }
    }

    /// Whether the same unchanged file is there still, or still none.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.stamp == stamp_of(&self.path)
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    std::fs::metadata(path).ok().as_ref().map(FileStamp::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_made_written_replaced_or_removed_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let absent = StampedPath::now(&file);
        assert!(absent.is_unchanged());
        std::fs::write(&file, "one").unwrap();
        let made = StampedPath::now(&file);
        assert!(!absent.is_unchanged() && made.is_unchanged());
        std::fs::write(&file, "three").unwrap();
        let written = StampedPath::now(&file);
        assert!(!made.is_unchanged() && written.is_unchanged());
        let other = folder.path().join("other");
        std::fs::write(&other, "seven").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert!(!written.is_unchanged(), "another file of the same size");
        let replaced = StampedPath::now(&file);
        std::fs::remove_file(&file).unwrap();
        assert!(!replaced.is_unchanged());
    }
}
