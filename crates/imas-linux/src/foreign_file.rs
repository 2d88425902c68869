// SPDX-License-Identifier: Apache-2.0
//! Files whose paths other users' processes have named: what they run, what they have mapped, what a store knows of them.
//! Such a path may lead to a file system that never answers. So a helper looks at it ([`crate::foreign_process`]).

use std::fs::Metadata;
use std::io::{Error, Result};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::elf::{ElfError, ElfImage};
use crate::file_stamp::FileStamp;
use crate::foreign_process::{NamedFile, ask_named, owner_of_uid};
use crate::ingest::{ExpectedPage, ParsedPage, ReadError, page_of_bytes};
use crate::program::is_privileged;
use crate::program_file::ProgramFile;
use crate::runtime::with_version;

/// What an executable is that somebody else runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignImage {
    /// The executable, with the versions of its runtimes; why it cannot be read, in words.
    pub elf: std::result::Result<ElfImage, String>,
    /// Whether the kernel starts it with raised privileges.
    pub is_privileged: bool,
}

/// The stamp of a regular file that `owner` answers for.
///
/// # Errors
/// When no regular file is there. `TimedOut` when its file system does not answer, and after files of the same owner have
/// taken too long.
pub fn stamp(path: &Path, owner: u64) -> Result<FileStamp> {
    Ok(serde_json::from_slice(&ask_named(NamedFile::Stamp, path, owner, 0)?)?)
}

/// What an executable is that `owner` answers for.
///
/// # Errors
/// `TimedOut` as for [`stamp`].
pub fn image(path: &Path, owner: u64) -> Result<ForeignImage> {
    Ok(serde_json::from_slice(&ask_named(NamedFile::Image, path, owner, 0)?)?)
}

/// The page at a path that a process has mapped.
///
/// # Errors
/// As [`crate::ingest::read_page_file`]; `TimedOut` as for [`stamp`].
pub fn page(path: &Path, expected: &ExpectedPage) -> std::result::Result<ParsedPage, ReadError> {
    let owner = owner_of_uid(expected.uid);
    page_of_bytes(&ask_named(NamedFile::Page, path, owner, expected.uid)?, expected)
}

pub(crate) fn stamp_text(path: &Path) -> Result<Vec<u8>> {
    let about = Some(std::fs::metadata(path)?).filter(Metadata::is_file);
    let about = about.ok_or_else(|| Error::from(rustix::io::Errno::INVAL))?;
    Ok(serde_json::to_vec(&FileStamp::from(&about))?)
}

pub(crate) fn image_text(path: &Path) -> Result<Vec<u8>> {
    let elf = elf(path).map_err(|error| error.to_string());
    Ok(serde_json::to_vec(&ForeignImage { elf, is_privileged: is_privileged(path) })?)
}

fn elf(path: &Path) -> std::result::Result<ElfImage, ElfError> {
    let mut elf = ElfImage::of(ProgramFile::open(path)?.file(), path)?;
    elf.runtimes = elf.runtimes.into_iter().map(|found| with_version(found, path)).collect();
    Ok(elf)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_file_is_looked_at_as_it_is() {
        let own = std::env::current_exe().unwrap();
        let found = image(&own, 1).unwrap();
        assert_eq!(found.elf.unwrap(), elf(&own).unwrap());
        assert!(!found.is_privileged);
        assert_eq!(stamp(&own, 1).unwrap(), FileStamp::from(&std::fs::metadata(&own).unwrap()));
        let folder = own.parent().unwrap();
        assert_eq!(stamp(folder, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(image(folder, 1).unwrap().elf.unwrap_err().contains("not a regular file"));
        assert_eq!(stamp(&folder.join("none"), 1).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
