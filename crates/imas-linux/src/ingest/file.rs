// SPDX-License-Identifier: Apache-2.0
//! Page files: which may be read, and how.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use imas_abi::{HEADER_BYTES, TRIAL_PAGE_BYTES};
use rustix::fs::{Mode, OFlags, open, openat};

use crate::ingest::error::{PageError, ReadError};
use crate::ingest::page::ParsedPage;
use crate::ingest::parse::parse;

/// Facts about a page that the reader knows beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedPage {
    /// Uid that the page must be of, by the file's owner and by the page's header.
    pub uid: u32,
    /// Now, seconds since the epoch: no page was made later.
    pub now_unix_s: f64,
}

/// A link in place of the page is refused, and a pipe or device in its place does not block and opens no
/// terminal.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Reads the page at `path`. Links in the directories above it are followed: where those are not one's own,
/// use
/// [`read_page_at`].
///
/// # Errors
/// See [`ReadError`].
pub fn read_page_file(path: &Path, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    let fd = open(path, FLAGS, Mode::empty()).map_err(std::io::Error::from)?;
    read(&File::from(fd), expected)
}

/// Reads the page `name` in the open directory `dir`, where no link can lead elsewhere.
///
/// # Errors
/// See [`ReadError`]; [`ReadError::Name`] when `name` is a path.
pub fn read_page_at(dir: impl AsFd, name: &OsStr, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    if name.as_bytes().contains(&b'/') {
        return Err(ReadError::Name);
    }
    let fd = openat(dir, name, FLAGS, Mode::empty()).map_err(std::io::Error::from)?;
    read(&File::from(fd), expected)
}

/// The bytes of the file at `path`, where that may be a page of the user.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn page_bytes(path: &Path, uid: u32) -> std::io::Result<Vec<u8>> {
    let file = File::from(open(path, FLAGS, Mode::empty())?);
    bytes(&file, uid).map_err(|_| rustix::io::Errno::INVAL.into())
}

fn read(file: &File, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    page_of_bytes(&bytes(file, expected.uid)?, expected)
}

fn bytes(file: &File, uid: u32) -> Result<Vec<u8>, ReadError> {
    let size = size(&file.metadata()?, uid)?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The page in the bytes of a file of its user.
///
/// # Errors
/// See [`ReadError`].
pub(crate) fn page_of_bytes(bytes: &[u8], expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    let page = parse(bytes)?;
    owned_by(page.uid, expected.uid)?;
    Ok(page.not_after(expected.now_unix_s))
}

/// Size of a file that may be read as a page.
fn size(metadata: &Metadata, uid: u32) -> Result<usize, ReadError> {
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.nlink() != 1 {
        return Err(ReadError::Links(metadata.nlink()));
    }
    owned_by(metadata.uid(), uid)?;
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if [HEADER_BYTES, TRIAL_PAGE_BYTES].contains(&size) {
        Ok(size)
    } else {
        Err(PageError::Size(size).into())
    }
}

fn owned_by(found: u32, expected: u32) -> Result<(), ReadError> {
    if found == expected { Ok(()) } else { Err(ReadError::Owner { found, expected }) }
}
