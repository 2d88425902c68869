// SPDX-License-Identifier: Apache-2.0
//! A folder that two users write. Each of them can put a link, a FIFO or a large file in place of any
//! entry, at any moment. So nothing is opened by path and nothing is followed.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fchmod, mkdirat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// The two sides are different users; the mode of the folder decides who else may read.
const MODE: u32 = 0o644;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, FOLDER, Mode::empty())?))
    }

    /// The folder of that name in this one, itself and no link to it.
    pub(crate) fn inner(&self, name: &str) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Makes a folder of that name unless there is something of that name.
    pub(crate) fn make(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes a file whole or not at all, as a reader sees it and after a power cut.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
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
    pub(crate) fn read(&self, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
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
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Names and sizes of the regular files, in the order of their names.
    pub(crate) fn files(&self) -> io::Result<Vec<(String, u64)>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
