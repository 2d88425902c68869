// SPDX-License-Identifier: Apache-2.0
//! Files that a command writes for the user who named them. The folder may be another user's, who may have
//! prepared it, and root may be the one who writes: so a link of another user is never followed, and a file
//! is made anew beside its name and renamed. What is no plain file, such as a pipe or a device, is written to
//! as it is.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::message::Hinted;

/// Links that are followed, as the kernel does.
const LINKS: usize = 40;
/// Names that are tried for a new file.
const NAMES: u32 = 100;

/// Writes a file whole or not at all. One that was there keeps its permissions.
///
/// # Errors
/// When it cannot be written, or another user's link is on the way.
pub fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let found = Found::at(file)?;
    match found.about {
        Some(about) if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile => {
            found.open(OFlags::WRONLY | OFlags::NOCTTY)?.write_all(bytes)
        }
        about => {
            let mode = about.map(|about| Mode::from_raw_mode(about.st_mode & 0o777));
            found.folder.write(&found.name, bytes, mode)
        }
    }
}

/// Opens a file to append to it and to read it; it is made if it is missing.
///
/// # Errors
/// When it cannot be opened, or another user's link is on the way.
pub fn open_to_append(file: &Path) -> Result<File> {
    Found::at(file)?.open(OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOCTTY)
}

/// Refuses the name of an archive for a folder. The hint says which archives can be written.
///
/// # Errors
/// When the name ends as an archive's.
pub fn check_folder_name(out: &Path, hint: &str) -> anyhow::Result<()> {
    let ends = |path: &Path, ending: &str| path.extension().is_some_and(|one| one == ending);
    if ends(out, "zip") || ends(out, "tgz") || ends(&out.with_extension(""), "tar") {
        return Err(Hinted::error(
            format!("{}: an archive of this kind cannot be written", out.display()),
            hint,
        ));
    }
    Ok(())
}

/// A folder that is open: what others do to its path makes no difference any more.
#[derive(Debug)]
pub struct OutputFolder(OwnedFd);

impl OutputFolder {
    /// Opens a folder of our own, and makes it, with the folders above it, where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, belongs to another user, or another user's link is on the way.
    pub fn make(path: &Path) -> Result<Self> {
        let folder = walk(path, true)?;
        let owner = rustix::fs::fstat(&folder)?.st_uid;
        if owner != rustix::process::geteuid().as_raw() {
            return Err(refused(format!(
                "{}: a folder of user {owner}; name one of your own",
                path.display()
            )));
        }
        Ok(Self(folder))
    }

    /// Writes a file of this name whole or not at all. Without a mode it gets the mode of new files.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &OsStr, bytes: &[u8], mode: Option<Mode>) -> Result<()> {
        self.write_all(&[NewFile { name, bytes, mode }])
    }

    /// Writes all of these files or none: they get their names when the last one is whole.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn write_all(&self, files: &[NewFile<'_>]) -> Result<()> {
        let mut staged = vec![];
        let mut stage = |new: &NewFile<'_>| {
            let (beside, file) = self.new_file()?;
            staged.push(beside);
            new.fill(file)
        };
        let written = files.iter().try_for_each(&mut stage).and_then(|()| {
            let mut named = staged.iter().zip(files);
            named.try_for_each(|(beside, new)| Ok(rustix::fs::renameat(&self.0, beside, &self.0, new.name)?))
        });
        if written.is_err() {
            for beside in &staged {
                let _ = rustix::fs::unlinkat(&self.0, beside, AtFlags::empty()); // the first error is reported
            }
        }
        written
    }

    /// Sets the permissions of the folder itself.
    ///
    /// # Errors
    /// When that is refused.
    pub fn set_mode(&self, mode: Mode) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fchmod(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?, mode)?)
    }

    fn new_file(&self) -> Result<(String, File)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..NAMES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".imas-{}-{number}.new", std::process::id());
            match rustix::fs::openat(&self.0, &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok((name, file.into())),
                Err(Errno::EXIST) => {} // left by a killed process of the same pid
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EXIST.into())
    }
}

/// A file that is to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Name in the folder.
    pub name: &'a OsStr,
    /// Content.
    pub bytes: &'a [u8],
    /// Permissions; None: as new files have.
    pub mode: Option<Mode>,
}

impl NewFile<'_> {
    fn fill(&self, mut file: File) -> Result<()> {
        if let Some(mode) = self.mode {
            rustix::fs::fchmod(&file, mode)?;
        }
        file.write_all(self.bytes)?;
        file.sync_all()
    }
}

/// The place where a file is or will be.
struct Found {
    folder: OutputFolder,
    name: OsString,
    /// None where there is no file yet.
    about: Option<Stat>,
    /// The link leads to an open descriptor, such as /dev/stdout, and to no name.
    is_followed: bool,
}

impl Found {
    fn at(file: &Path) -> Result<Self> {
        let mut file = file.to_owned();
        for _ in 0..LINKS {
            let name = file.file_name().ok_or(Errno::ISDIR)?.to_owned();
            let above = file.parent().map(Path::to_owned).unwrap_or_default();
            let folder = OutputFolder(walk(&above, false)?);
            let about = match rustix::fs::statat(&folder.0, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => Some(about),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            let Some(link) = about.filter(is_link) else {
                return Ok(Self { folder, name, about, is_followed: false });
            };
            check_owner(&link, &file)?;
            let target = rustix::fs::statat(&folder.0, &name, AtFlags::empty()).ok();
            if let Some(target) =
                target.filter(|one| FileType::from_raw_mode(one.st_mode) != FileType::RegularFile)
            {
                return Ok(Self { folder, name, about: Some(target), is_followed: true });
            }
            file = above.join(target_of(&folder.0, &name)?);
        }
        Err(Errno::LOOP.into())
    }

    fn open(&self, flags: OFlags) -> Result<File> {
        if let Some(about) = self.about.filter(|_| !self.is_followed)
            && FileType::from_raw_mode(about.st_mode) != FileType::RegularFile
        {
            check_owner(&about, Path::new(&self.name))?;
        }
        let follow = if self.is_followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = flags | follow | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.folder.0, &self.name, flags, Mode::from_raw_mode(0o666))?.into())
    }
}

/// Opens a folder, one name after the other.
fn walk(path: &Path, is_made: bool) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |folder: &OwnedFd, name: &OsStr| rustix::fs::openat(folder, name, flags, Mode::empty());
    let mut folder = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
    let (mut rest, mut links) = (names(path), 0);
    while let Some(name) = rest.pop_front() {
        folder = match open(&folder, &name) {
            Err(Errno::NOENT) if is_made => {
                match rustix::fs::mkdirat(&folder, &name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => open(&folder, &name)?,
                    Err(error) => return Err(error.into()),
                }
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let about = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                links += 1;
                if !is_link(&about) || links > LINKS {
                    return Err(Errno::NOTDIR.into());
                }
                check_owner(&about, Path::new(&name))?;
                names(&target_of(&folder, &name)?).into_iter().rev().for_each(|name| rest.push_front(name));
                continue;
            }
            opened => opened?,
        };
    }
    Ok(folder)
}

/// The names of a path; of an absolute one they begin with `/`.
fn names(path: &Path) -> VecDeque<OsString> {
    let is_name = |one: &Component<'_>| !matches!(one, Component::CurDir);
    path.components().filter(is_name).map(|one| one.as_os_str().to_owned()).collect()
}

fn target_of(folder: &OwnedFd, name: &OsStr) -> Result<PathBuf> {
    let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

fn is_link(about: &Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::Symlink
}

/// Our own files and root's may lead anywhere.
fn check_owner(about: &Stat, path: &Path) -> Result<()> {
    let owner = about.st_uid;
    if owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(refused(format!(
        "{} is a link, a pipe or a device of user {owner} and is not followed",
        path.display()
    )))
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_keeps_its_permissions_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.html");
        write(&file, b"one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        write(&file, b"two").unwrap();
        let about = fs::metadata(&file).unwrap();
        assert_eq!((fs::read(&file).unwrap(), about.mode() & 0o777), (b"two".to_vec(), 0o640));
        assert_ne!(about.ino(), before);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(&folder.path().join("missing/page.html"), b"").is_err());
    }

    #[test]
    fn a_folder_is_not_named_as_an_archive() {
        for name in ["x.zip", "x.tgz", "x.tar.gz", "a.b/x.tar.zst"] {
            assert!(check_folder_name(Path::new(name), "").is_err(), "{name}");
        }
        for name in ["x", "x.gz", "a.tar/x", "x.target", "x-1.2"] {
            assert!(check_folder_name(Path::new(name), "").is_ok(), "{name}");
        }
    }

    #[test]
    fn our_own_links_are_followed_and_what_is_no_file_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("data")).unwrap();
        symlink("data", at("link")).unwrap();
        symlink("link/page", at("page")).unwrap();
        write(&at("page"), b"one").unwrap();
        assert_eq!(fs::read(at("data/page")).unwrap(), b"one");
        assert!(fs::symlink_metadata(at("page")).unwrap().is_symlink());
        write(Path::new("/dev/null"), b"gone").unwrap();
        symlink("loop", at("loop")).unwrap();
        assert!(write(&at("loop"), b"").is_err() && write(folder.path(), b"").is_err());
        std::io::Write::write_all(&mut open_to_append(&at("page")).unwrap(), b"two").unwrap();
        assert_eq!(fs::read(at("data/page")).unwrap(), b"onetwo");
    }

    /// A folder that user 65,101 prepared for root. None where this is not root.
    fn prepared() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("victim"), "secret").unwrap();
        fs::create_dir(folder.path().join("theirs")).unwrap();
        let links = [("theirs/page", "../victim"), ("theirs/folder", "..")];
        for (link, target) in links {
            symlink(target, folder.path().join(link)).unwrap();
            lchown(folder.path().join(link), Some(65_101), None).ok()?;
        }
        lchown(folder.path().join("theirs"), Some(65_101), None).ok()?;
        Some(folder)
    }

    #[test]
    fn links_that_another_user_prepared_are_not_followed() {
        let Some(folder) = prepared() else {
            return imas_testing::skipped("only root can give links to another user");
        };
        let at = |name: &str| folder.path().join(name);
        for name in ["theirs/page", "theirs/folder/victim"] {
            let error = write(&at(name), b"forged").unwrap_err();
            assert!(error.to_string().contains("user 65101"), "{error}");
            assert!(open_to_append(&at(name)).is_err());
        }
        assert_eq!(fs::read(at("victim")).unwrap(), b"secret");
        write(&at("theirs/new"), b"page").unwrap();
        assert_eq!(fs::read(at("theirs/new")).unwrap(), b"page");
    }

    #[test]
    fn a_folder_of_another_user_is_not_filled() {
        let Some(folder) = prepared() else {
            return imas_testing::skipped("only root can give links to another user");
        };
        assert!(OutputFolder::make(&folder.path().join("theirs")).is_err());
        assert!(OutputFolder::make(&folder.path().join("theirs/folder")).is_err());
        let own = OutputFolder::make(&folder.path().join("theirs/a/b")).unwrap();
        symlink("../../../victim", folder.path().join("theirs/a/b/file")).unwrap();
        own.write(OsStr::new("file"), b"new", Some(Mode::from_raw_mode(0o644))).unwrap();
        assert_eq!(fs::read(folder.path().join("victim")).unwrap(), b"secret");
        assert_eq!(fs::read(folder.path().join("theirs/a/b/file")).unwrap(), b"new");
    }
}
