// SPDX-License-Identifier: Apache-2.0
//! Files whose paths other users' processes have named: what they run, what they have mapped, what a store knows of them.
//! Such a path may lead to a file system that never answers. So a helper looks at it ([`crate::foreign_process`]).
//!
//! The `main` of a helper: what it answers beside the files of processes. It is here that the names of others are
//! looked up.

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::elf::{ElfError, ElfImage};
use crate::files::FileStamp;
use crate::foreign_process::{self, Answers, Finding, NamedFile, OwnAnswer, ask_named, owner_of_uid};
use crate::ingest::{ExpectedPage, ParsedPage, ReadError, page_bytes, page_of_bytes};
use crate::program::is_privileged;
use crate::program_file::ProgramFile;
use crate::runtime::with_version;
use crate::{
    mapped_files, memory_parts, object_heaps, other_heaps, process_trim, reach, resident, running,
    running_runtime, serving,
};

/// Facts about an executable that somebody else runs.
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
    Ok(serde_json::from_slice(&ask_named(NamedFile::Stamp, path, (owner, 0), foreign_text)?)?)
}

/// Facts about an executable that `owner` answers for.
///
/// # Errors
/// `TimedOut` as for [`stamp`].
pub fn image(path: &Path, owner: u64) -> Result<ForeignImage> {
    Ok(serde_json::from_slice(&ask_named(NamedFile::Image, path, (owner, 0), foreign_text)?)?)
}

/// The page at a path that a process has mapped.
///
/// # Errors
/// As [`crate::ingest::read_page_file`]; `TimedOut` as for [`stamp`].
pub fn page(path: &Path, expected: &ExpectedPage) -> std::result::Result<ParsedPage, ReadError> {
    let owner = owner_of_uid(expected.uid);
    page_of_bytes(&ask_named(NamedFile::Page, path, (owner, expected.uid), foreign_text)?, expected)
}

/// Facts about the file; `uid` is whose page it has to be. Looked up by this very process.
fn foreign_text(file: NamedFile, path: &Path, uid: u32) -> Result<Vec<u8>> {
    match file {
        NamedFile::Stamp => stamp_text(path),
        NamedFile::Image => image_text(path),
        NamedFile::Page => page_bytes(path, uid),
    }
}

fn stamp_text(path: &Path) -> Result<Vec<u8>> {
    let about = Some(std::fs::metadata(path)?).filter(Metadata::is_file);
    let about = about.ok_or_else(|| Error::from(rustix::io::Errno::INVAL))?;
    Ok(serde_json::to_vec(&FileStamp::from(&about))?)
}

fn image_text(path: &Path) -> Result<Vec<u8>> {
    let elf = elf(path).map_err(|error| error.to_string());
    Ok(serde_json::to_vec(&ForeignImage { elf, is_privileged: is_privileged(path) })?)
}

fn elf(path: &Path) -> std::result::Result<ElfImage, ElfError> {
    let mut elf = ElfImage::of(ProgramFile::open(path)?.file(), path)?;
    elf.runtimes = elf.runtimes.into_iter().map(|found| with_version(found, path)).collect();
    Ok(elf)
}

/// Must be called first in `main`. Does a helper's work if this process was started as one, and returns true at its
/// end. Otherwise [`foreign_process::read`] starts a helper when it needs one.
#[must_use]
pub fn help_if_asked() -> bool {
    help_if_asked_with(|_| Err(ErrorKind::Unsupported.into()))
}

/// Does a helper's work, as [`help_if_asked`], and gives this answer to [`foreign_process::ask`]. Must be called first in
/// `main`.
#[must_use]
pub fn help_if_asked_with(own: OwnAnswer) -> bool {
    foreign_process::help_if_asked_with(&Answers { own, finding: found_out, named: foreign_text })
}

fn found_out(finding: Finding, pid: u32) -> Result<Vec<u8>> {
    match finding {
        Finding::Program => running::program_text(pid),
        Finding::Chooser => serving::chooser::text_of(pid),
        Finding::Runtime => running_runtime::text_of(pid),
        Finding::TrimFromOutside => process_trim::outside_text_of(pid),
        Finding::MappedFiles => mapped_files::text_of(pid),
        Finding::Resident => resident::text_of(pid),
        Finding::Arenas => resident::arena_text(pid),
        Finding::Parts => memory_parts::text_of(pid),
        Finding::ObjectHeaps => object_heaps::text_of(pid),
        Finding::OtherHeaps => other_heaps::text_of(pid),
        Finding::LeaksBegin => reach::begin_text(pid),
        Finding::LeaksGoOn => reach::go_on_text(pid),
    }
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
