// SPDX-License-Identifier: Apache-2.0
//! Opening the file of a program. Its path was learned from a user, who may have replaced it since: a
//! FIFO, at which an ordinary open waits for ever, or a device, which an open may activate. Everything
//! that opens a program's path does it here.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::files::Executable;

/// An open regular file, and what it was when it was opened.
#[derive(Debug)]
pub struct ProgramFile {
    file: File,
    about: Metadata,
}

impl ProgramFile {
    /// Opens the file for reading, if it is a regular one. What it is, is found out before it is opened:
    /// `O_PATH` opens nothing.
    ///
    /// # Errors
    /// When there is no such file, it may not be read, or it is a folder, FIFO, socket or device.
    pub fn open(path: &Path) -> io::Result<Self> {
        let place = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
        if !place.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = Self::open_again(&place, path)?;
        let about = file.metadata()?;
        Ok(Self { file, about })
    }

    /// Opens for reading what `place` is. By the descriptor, not by the path, which may lead elsewhere by
    /// now; by the path where there is no `/proc`, if it still leads to the same file.
    fn open_again(place: &File, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match open(format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty()) {
            Ok(file) => Ok(File::from(file)),
            Err(Errno::NOENT) => {
                let file = File::from(open(path, flags, Mode::empty())?);
                let same = Executable::from(&file.metadata()?) == Executable::from(&place.metadata()?);
                if same { Ok(file) } else { Err(Self::replaced()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the file for reading as [`ProgramFile::open`] does, if it is the given executable.
    ///
    /// # Errors
    /// As [`ProgramFile::open`], and when the path leads to another file.
    pub fn open_executable(path: &Path, executable: Executable) -> io::Result<Self> {
        let about = std::fs::metadata(path)?;
        if !about.is_file() || Executable::from(&about) != executable {
            return Err(Self::replaced());
        }
        Some(Self::open(path)?).filter(|file| file.executable() == executable).ok_or_else(Self::replaced)
    }

    fn replaced() -> io::Error {
        io::Error::other("its file is not the one at its path")
    }

    /// The file's identity, as programs are distinguished by it.
    #[must_use]
    pub fn executable(&self) -> Executable {
        Executable::from(&self.about)
    }

    /// Facts about the file when it was opened.
    #[must_use]
    pub fn about(&self) -> &Metadata {
        &self.about
    }

    /// The open file, at its beginning.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// The executable at a path, if a regular file is there. Nothing is opened.
#[must_use]
pub fn executable_at(path: &Path) -> Option<Executable> {
    let about = std::fs::metadata(path).ok()?;
    about.is_file().then(|| Executable::from(&about))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn refused(path: &Path) -> bool {
        ProgramFile::open(path).is_err() && executable_at(path).is_none()
    }

    fn make_fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        for name in ["file", "link"] {
            let opened = ProgramFile::open(&path(name)).unwrap();
            let mut text = String::new();
            opened.file().read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), Some(opened.executable())), ("text", executable_at(&path(name))));
        }
        make_fifo(&path("fifo"));
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink("/dev/tty", path("device")).unwrap();
        for name in ["fifo", "socket", "device", ".", "missing"] {
            assert!(refused(&path(name)), "{name}");
        }
    }

    #[test]
    fn another_file_at_the_path_is_not_the_same_executable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "one").unwrap();
        let seen = executable_at(&path).unwrap();
        assert_eq!(ProgramFile::open_executable(&path, seen).unwrap().executable(), seen);
        std::fs::write(folder.path().join("other"), "two").unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(ProgramFile::open_executable(&path, seen).is_err());
        std::fs::remove_file(&path).unwrap();
        make_fifo(&path);
        assert!(ProgramFile::open_executable(&path, seen).is_err());
    }
}
