// SPDX-License-Identifier: Apache-2.0
//! Files: which one it is, whether it is unchanged, reading one that somebody else may have put there, replacing one
//! that others read, and locks.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
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

/// Modification time in nanoseconds since 1970, as both tables hold it.
pub(super) fn mtime_ns(about: &Metadata) -> i64 {
    about.mtime().wrapping_mul(1_000_000_000).wrapping_add(about.mtime_nsec())
}

/// An executable as it was when it was learned about: a file that differs in any of these is another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Executable {
    /// Device, as stat gives it.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Size in bytes.
    pub bytes: u64,
}

impl From<&Metadata> for Executable {
    fn from(about: &Metadata) -> Self {
        Self { dev: about.dev(), ino: about.ino(), mtime_ns: mtime_ns(about), bytes: about.len() }
    }
}

/// The bytes of the file.
///
/// # Errors
/// When it cannot be read. `InvalidInput` for a folder, FIFO, socket or device; `FileTooLarge` for one with more than
/// `most` bytes.
pub fn read_plain(path: &Path, most: usize) -> Result<Vec<u8>> {
    // An open of a FIFO would wait, and one of a terminal take that over.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut bytes = vec![];
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Writes `bytes` to a new file in the same folder and renames it to `path`: readers see the old file or the
/// new one. Everybody may read it.
///
/// # Errors
/// When the file cannot be written or renamed. The old one stays.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside); // left by a killed process of the same pid
    let written = write_new(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside); // the reason to report is the first error
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?; // whatever the umask
    file.write_all(bytes)
}

/// Locks out every other session until the file is dropped; false where another has the lock.
///
/// # Errors
/// When the file cannot be locked.
pub fn lock(file: &File) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
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

    #[test]
    fn a_regular_file_is_read_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read_plain(&file, 5).unwrap(), b"12345");
        assert_eq!(read_plain(&file, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(read_plain(&fifo, 5).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read_plain(Path::new("/dev/zero"), 5).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
