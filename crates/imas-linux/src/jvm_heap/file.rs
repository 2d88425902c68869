// SPDX-License-Identifier: Apache-2.0
//! The file of counters that a JVM has mapped, read in the file system that the process sees.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::process::{MMapPath, Process};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::mapping_text::of_task;

/// A JVM's is 32 KiB, by its settings a little more.
pub(crate) const MOST_BYTES: usize = 1 << 18;
const FOLDER: &str = "hsperfdata_";

/// The bytes of the file.
///
/// # Errors
/// When the process has none mapped, or the file is not a regular one of the process's own user.
pub(crate) fn of_process(pid: u32) -> Result<Vec<u8>> {
    let file = opened(pid, &mapped(pid)?.ok_or(ErrorKind::NotFound)?)?;
    let mut bytes = vec![];
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first file with such a name that is mapped.
fn mapped(pid: u32) -> Result<Option<PathBuf>> {
    for map in of_task(pid, "maps")? {
        match map?.pathname {
            MMapPath::Path(path) if is_one(&path) => return Ok(Some(path)),
            _ => {}
        }
    }
    Ok(None)
}

/// Whether a mapped file has the name of such a file.
fn is_one(path: &Path) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    folder.is_some_and(|name| name.starts_with(FOLDER))
        && path.file_name().and_then(|name| name.to_str()).is_some_and(is_number)
}

/// The file, opened below the root of the process: links lead nowhere else, and what is no regular file of the process's
/// user is looked at and never opened.
fn opened(pid: u32, path: &Path) -> Result<File> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let root = openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = File::from(openat2(
        &root,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )?);
    let about = found.metadata()?;
    let owner = Process::new(i32::try_from(pid).map_err(Error::other)?).and_then(|process| process.status());
    if !about.is_file() || about.uid() != owner.map_err(Error::other)?.euid {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_such_a_name_is_one() {
        assert!(is_one(Path::new("/tmp/hsperfdata_root/28216")));
        for bad in ["/tmp/hsperfdata_root/28216 (deleted)", "/tmp/other/1", "/tmp/hsperfdata_x/y", "/1", "/"]
        {
            assert!(!is_one(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_link_leads_nowhere_and_a_device_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (own, link, fifo) = (folder.path().join("1"), folder.path().join("2"), folder.path().join("3"));
        std::fs::write(&own, "x").unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let pid = std::process::id();
        assert!(opened(pid, &own).is_ok());
        for bad in [&link, &fifo, Path::new("/dev/null")] {
            assert!(opened(pid, bad).is_err(), "{}", bad.display());
        }
        assert_eq!(of_process(pid).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
