// SPDX-License-Identifier: Apache-2.0
//! What a helper answers. All of it may have to wait for a file system, or for the lock of a process's memory: it runs in
//! the helper, and in programs that have none.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use super::question::{Asked, ForeignFile, NamedFile, Question};
use super::{GONE, OwnAnswer, failed};
use crate::executable::Executable;
use crate::living_thread;

/// Room for most command lines and environments.
const USUAL_BYTES: usize = 8192;

/// Returns the answer to the question, found out by this very process.
pub(super) fn of(asked: &Asked<impl AsRef<Path>>, own: OwnAnswer) -> Result<Vec<u8>> {
    let bytes = match asked.question {
        Question::File(file) => of_process(asked.subject, file)?,
        Question::Own => own(asked.subject)?,
        Question::Named(file) => of_named(file, asked.path.as_ref(), asked.subject)?,
    };
    if bytes.len() > asked.question.most_bytes() { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Returns what the file that somebody has named is; `uid` is whose page it has to be.
pub(super) fn of_named(file: NamedFile, path: &Path, uid: u32) -> Result<Vec<u8>> {
    match file {
        NamedFile::Stamp => crate::foreign_file::stamp_text(path),
        NamedFile::Image => crate::foreign_file::image_text(path),
        NamedFile::Page => crate::ingest::page_bytes(path, uid),
    }
}

/// Returns what the file of the process has.
pub(super) fn of_process(pid: u32, file: ForeignFile) -> Result<Vec<u8>> {
    let task = living_thread::of(pid);
    let path = format!("/proc/{task}/{}", file.name());
    let most = file.most_bytes();
    match file {
        ForeignFile::Activity => {
            let text = crate::activity::text_of(pid).ok_or_else(|| failed(GONE))?;
            Ok(text.into_bytes())
        }
        ForeignFile::Heaps => crate::heap::text_of(task),
        ForeignFile::JvmCounters => crate::jvm_heap::of_process(task),
        ForeignFile::Libraries => crate::replaced_libraries::text_of(task),
        ForeignFile::TrimFromOutside => crate::process_trim::outside_text_of(task),
        ForeignFile::TrimWord | ForeignFile::TrimRequest => {
            crate::trim_word::text_of(task, file == ForeignFile::TrimRequest)
        }
        ForeignFile::Executable => Ok(executable_text(&std::fs::metadata(path)?)),
        ForeignFile::Program => crate::running::program_text(pid).ok_or_else(|| failed(GONE)),
        ForeignFile::Chooser => crate::serving::chooser::text_of(pid).ok_or_else(|| failed(GONE)),
        ForeignFile::Runtime => crate::running_runtime::text_of(task),
        // Each read looks at the process anew. By several, these texts would be torn where the process ends or runs
        // another image in between, and the beginning of a name would be taken for the name.
        ForeignFile::CommandLine | ForeignFile::Environment => {
            let mut bytes = vec![];
            for room in [USUAL_BYTES, most + 1] {
                bytes.resize(room, 0);
                let got = File::open(&path)?.read(&mut bytes)?;
                bytes.truncate(got);
                if got < room {
                    break;
                }
            }
            bounded(bytes, most)
        }
        ForeignFile::Maps | ForeignFile::Smaps | ForeignFile::SmapsRollup => {
            let mut bytes = vec![];
            File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
            bounded(bytes, most)
        }
    }
}

fn bounded(bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
    if bytes.len() > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Four numbers, as [`executable_of`] reads them.
fn executable_text(about: &Metadata) -> Vec<u8> {
    let Executable { dev, ino, mtime_ns, bytes } = Executable::from(about);
    format!("{dev} {ino} {mtime_ns} {bytes}").into_bytes()
}

pub(super) fn executable_of(text: &[u8]) -> Result<Executable> {
    let parsed = || {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (dev, ino) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Executable {
            dev,
            ino,
            mtime_ns: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
        })
    };
    parsed().ok_or_else(|| Error::from(ErrorKind::InvalidData))
}
