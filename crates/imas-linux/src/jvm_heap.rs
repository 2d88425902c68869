// SPDX-License-Identifier: Apache-2.0
//! The heap of a running JVM, from the counters that it keeps in `/tmp/hsperfdata_USER/PID` and has mapped: nothing is
//! attached to. The file is the process's own and may hold anything.
//!
//! - `counters`: the format of the file
//! - `file`: where it is, and whose
//!
//! HotSpot's file of counters: a head of 32 bytes, then entries, each with a name, a type and a value. Numbers are of
//! the byte order of the machine.
//!
//! The file of counters that a JVM has mapped, read in the file system that the process sees.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use imas_core::printable;
use procfs::process::{MMapPath, Process};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde::{Deserialize, Serialize};

use crate::mapping_text::of_task;

/// Heap of a JVM, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmHeap {
    /// The collector, as the JVM names it.
    pub collector: String,
    /// Collections so far.
    pub collections: u64,
    /// Memory that the JVM holds for the heap; parts of it may not be resident.
    pub committed: u64,
    /// Bytes left after the last collection, with garbage in the old generation: what lives is not more.
    pub after_collection: u64,
    /// Memory for the descriptions of classes.
    pub classes: u64,
    /// Most bytes of the heap, by `-Xmx` or the JVM's own choice; absent where the counters do not say.
    #[serde(default)]
    pub limit: Option<u64>,
}

impl JvmHeap {
    /// The heap by the bytes of such a file. None where they are no counters, or counters of a collector
    /// without two generations.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let counters = Counters::read(bytes)?;
        // Other heaps of that name have no space for new objects alone, and what is left there after a
        // collection lives.
        if counters.text("sun.gc.generation.0.space.0.name")? != "eden" {
            return None;
        }
        let number = |name: &str| counters.number(name);
        let (young, old) = (number("sun.gc.generation.0.capacity")?, number("sun.gc.generation.1.capacity")?);
        let survivors =
            [1, 2].map(|space| number(&format!("sun.gc.generation.0.space.{space}.used")).unwrap_or(0));
        let tenured = number("sun.gc.generation.1.space.0.used")?;
        let collections = (0..3).filter_map(|one| number(&format!("sun.gc.collector.{one}.invocations")));
        let most = [0, 1].map(|one| number(&format!("sun.gc.generation.{one}.maxCapacity")));
        let collector = counters.text("sun.gc.policy.name")?;
        // Under G1 each generation may take all of the heap.
        let limit = match (most, collector.as_str()) {
            ([Some(young), Some(old)], G1) => Some(young.max(old)),
            ([Some(young), Some(old)], _) => Some(young.saturating_add(old)),
            _ => None,
        };
        Some(Self {
            collector,
            limit,
            collections: collections.fold(0, u64::saturating_add),
            committed: young.saturating_add(old),
            after_collection: survivors.into_iter().fold(tenured, u64::saturating_add),
            classes: number("sun.gc.metaspace.capacity").unwrap_or(0),
        })
    }

    /// Whether it holds four times of what was left after a collection.
    #[must_use]
    pub fn is_mostly_free(&self) -> bool {
        self.collections > 0 && self.after_collection < self.committed / 4
    }
}

/// G1, as its counters name it.
const G1: &str = "GarbageFirst";
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
const HEAD: usize = 32;
const ENTRY: usize = 20;
/// Version of the format.
const MAJOR: u8 = 2;
/// A JVM has about 200 entries.
const MOST_ENTRIES: usize = 4096;
/// Longest text that is shown.
const LONGEST: usize = 64;

/// Counters of one file.
struct Counters<'a> {
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

/// One entry.
struct Entry<'a> {
    name: &'a [u8],
    kind: u8,
    value: &'a [u8],
}

impl<'a> Counters<'a> {
    /// None if it is no such file.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let is_native = *bytes.get(4)? == u8::from(cfg!(target_endian = "little"));
        if !bytes.starts_with(&MAGIC) || !is_native || *bytes.get(5)? != MAJOR {
            return None;
        }
        let first = number(bytes, 24)?.max(HEAD);
        Some(Self { bytes, first, count: number(bytes, 28)?.min(MOST_ENTRIES) })
    }

    /// The number of that name.
    fn number(&self, name: &str) -> Option<u64> {
        let entry = self.entry(name, b'J')?;
        let value = i64::from_ne_bytes(entry.value.get(..8)?.try_into().ok()?);
        u64::try_from(value).ok()
    }

    /// The text of that name, fit to be shown.
    fn text(&self, name: &str) -> Option<String> {
        let value = self.entry(name, b'B')?.value;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len()).min(LONGEST);
        Some(printable::name(&String::from_utf8_lossy(&value[..end])).into_owned())
    }

    fn entry(&self, name: &str, kind: u8) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.name == name.as_bytes() && entry.kind == kind)
    }

    /// The entries, as far as they lie in the file.
    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let (bytes, mut at) = (self.bytes, self.first);
        (0..self.count).map_while(move |_| {
            let length = number(bytes, at)?;
            let entry = bytes.get(at..at.checked_add(length)?).filter(|entry| entry.len() > ENTRY)?;
            at += length;
            let name = entry.get(number(entry, 4)?..)?;
            let end = name.iter().position(|byte| *byte == 0)?;
            Some(Entry { name: &name[..end], kind: entry[12], value: entry.get(number(entry, 16)?..)? })
        })
    }
}

/// The number of four bytes at that place.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(i32::from_ne_bytes(four)).ok()
}

/// A JVM's is 32 KiB, by its settings a little more.
pub(super) const MOST_BYTES: usize = 1 << 18;
const FOLDER: &str = "hsperfdata_";

/// The bytes of the file.
///
/// # Errors
/// When the process has none mapped, or the file is not a regular one of the process's own user.
pub(super) fn of_process(pid: u32) -> io::Result<Vec<u8>> {
    let file = opened(pid, &mapped(pid)?.ok_or(ErrorKind::NotFound)?)?;
    let mut bytes = vec![];
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first file with such a name that is mapped.
fn mapped(pid: u32) -> io::Result<Option<PathBuf>> {
    for map in of_task(pid, "maps")? {
        match map?.pathname {
            MMapPath::Path(path) if is_one(&path) => return Ok(Some(path)),
            _ => {}
        }
    }
    Ok(None)
}

/// Whether a mapped file has the name of such a file.
pub(crate) fn is_one(path: &Path) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    folder.is_some_and(|name| name.starts_with(FOLDER))
        && path.file_name().and_then(|name| name.to_str()).is_some_and(is_number)
}

/// The file, opened below the root of the process: links lead nowhere else, and what is no regular file of the process's
/// user is looked at and never opened.
fn opened(pid: u32, path: &Path) -> io::Result<File> {
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
pub(super) mod tests {
    use super::*;

    #[test]
    fn what_is_left_after_a_collection_is_without_the_space_for_new_objects() {
        let bytes = tests::file(&[
            ("sun.gc.policy.name", Err("GarbageFirst")),
            ("sun.gc.generation.0.space.0.name", Err("eden")),
            ("sun.gc.generation.0.capacity", Ok(300)),
            ("sun.gc.generation.0.space.0.used", Ok(290)),
            ("sun.gc.generation.0.space.1.used", Ok(0)),
            ("sun.gc.generation.0.space.2.used", Ok(8)),
            ("sun.gc.generation.1.capacity", Ok(100)),
            ("sun.gc.generation.0.maxCapacity", Ok(800)),
            ("sun.gc.generation.1.maxCapacity", Ok(800)),
            ("sun.gc.generation.1.space.0.used", Ok(20)),
            ("sun.gc.collector.0.invocations", Ok(3)),
            ("sun.gc.collector.1.invocations", Ok(1)),
        ]);
        let heap = JvmHeap::from_bytes(&bytes).unwrap();
        assert_eq!((heap.collector.as_str(), heap.collections), ("GarbageFirst", 4));
        assert_eq!((heap.committed, heap.after_collection, heap.limit), (400, 28, Some(800)));
        assert!(heap.is_mostly_free());
        assert!(!JvmHeap { collections: 0, ..heap.clone() }.is_mostly_free(), "nothing is known yet");
        assert!(!JvmHeap { after_collection: 100, ..heap }.is_mostly_free());
    }

    #[test]
    fn other_collectors_and_nonsense_tell_nothing() {
        let other = tests::file(&[("sun.gc.generation.0.space.0.name", Err("heap"))]);
        assert_eq!(JvmHeap::from_bytes(&other), None);
        assert_eq!(JvmHeap::from_bytes(b""), None);
    }

    /// A file with these numbers and texts.
    pub(super) fn file(entries: &[(&str, Result<i64, &str>)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([u8::from(cfg!(target_endian = "little")), MAJOR, 0, 1]);
        bytes.resize(24, 0);
        bytes.extend(32_i32.to_ne_bytes());
        bytes.extend(i32::try_from(entries.len()).unwrap().to_ne_bytes());
        for (name, value) in entries {
            let value =
                value.map_or_else(|text| text.as_bytes().to_vec(), |number| number.to_ne_bytes().to_vec());
            let kind = if entries.iter().any(|(one, of)| one == name && of.is_ok()) { b'J' } else { b'B' };
            let value_at = ENTRY + name.len() + 1;
            let length = value_at + value.len() + 1;
            for part in [length, ENTRY, 0] {
                bytes.extend(i32::try_from(part).unwrap().to_ne_bytes());
            }
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(i32::try_from(value_at).unwrap().to_ne_bytes());
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(value);
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn numbers_and_texts_are_found_by_name_and_type() {
        let bytes = file(&[("a.b", Ok(7)), ("c", Err("x\x1b[2J")), ("d", Ok(-1))]);
        let counters = Counters::read(&bytes).unwrap();
        assert_eq!(counters.number("a.b"), Some(7));
        assert_eq!(counters.number("c"), None);
        assert!(!counters.text("c").unwrap().contains('\x1b'));
        assert_eq!(counters.number("d"), None, "no number of bytes");
        assert_eq!(counters.text("none"), None);
    }

    #[test]
    fn whatever_is_in_the_file_ends_the_reading() {
        let good = file(&[("a", Ok(7)), ("b", Err("text"))]);
        for at in 0..good.len() {
            assert!(
                Counters::read(&good[..at]).is_none_or(|cut| cut.text("b") != Some("text".into())),
                "{at}"
            );
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Some(counters) = Counters::read(&bad) {
                    let _ = (counters.number("a"), counters.text("b"));
                }
            }
        }
        let mut endless = good;
        endless[32..36].copy_from_slice(&0_i32.to_ne_bytes());
        assert_eq!(Counters::read(&endless).unwrap().number("a"), None, "an entry without a length");
    }

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
