// SPDX-License-Identifier: Apache-2.0
//! The index: the decisions that `libimas-preload.so` looks up in each new process (`abi/imas_index.h`).
//!
//! Written whole beside its place and renamed, so that a reader sees the old one or the new one. Nothing is synced: it stands on
//! tmpfs, and belongs to one boot.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_abi::{INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_PROBES, IndexEntry, IndexHeader};
use imas_abi::{detail_kind, index_flag};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub use crate::executable::Executable;
use crate::fnv::{fnv32, fnv64};
use crate::given::Given;

/// Name of the index in the state folder.
pub const FILE_NAME: &str = "index";
/// An index beyond this many slots is refused: 512 MiB of tmpfs for four million programs.
const MOST_SLOTS: u64 = 1 << 22;

/// What tells programs of one executable apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Nothing: the entry of the executable itself, used when none with a detail fits.
    None,
    /// Script or jar, by the file itself.
    File {
        /// Device of it.
        dev: u64,
        /// Inode of it.
        ino: u64,
    },
    /// Module, main class or `-c`, by its text.
    Text(Vec<u8>),
    /// The same for a text that is too long to be kept: its hash and its length.
    LongText([u64; 2]),
    /// systemd unit, by its name.
    Unit(String),
}

impl Detail {
    /// What the words of a command line name, seen from the process's working directory `folder`.
    #[must_use]
    pub fn of(given: &Given, folder: &Path) -> Self {
        match given {
            Given::Nothing => Self::None,
            Given::Code(option) => Self::Text(option.as_bytes().to_vec()),
            Given::Named(option, name) => Self::file(folder, name)
                .unwrap_or_else(|| Self::Text([option.as_bytes(), b" ", name.as_bytes()].concat())),
            Given::Word(word) => {
                Self::file(folder, word).unwrap_or_else(|| Self::Text(word.as_bytes().to_vec()))
            }
        }
    }

    fn file(folder: &Path, word: &OsStr) -> Option<Self> {
        let about = std::fs::metadata(folder.join(word)).ok().filter(|_| !word.is_empty())?;
        about.is_file().then(|| Self::File { dev: about.dev(), ino: about.ino() })
    }

    /// As an entry holds it: [`imas_abi::detail_kind`] and two numbers.
    #[must_use]
    pub fn key(&self) -> (u32, [u64; 2]) {
        let hashed = |text: &[u8]| [fnv64(text), text.len() as u64];
        match self {
            Self::None => (detail_kind::NONE, [0, 0]),
            Self::File { dev, ino } => (detail_kind::FILE, [*dev, *ino]),
            Self::Text(text) => (detail_kind::TEXT, hashed(text)),
            Self::LongText(key) => (detail_kind::TEXT, *key),
            Self::Unit(name) => (detail_kind::UNIT, hashed(name.as_bytes())),
        }
    }
}

/// The systemd service a process belongs to, from the text of `/proc/PID/cgroup`: the last component that ends in `.service`
/// of the unified hierarchy (`0::`), else of systemd's own (`:name=systemd:`).
#[must_use]
pub fn unit_of_cgroup(text: &str) -> Option<&str> {
    let unified = text.lines().find_map(|line| service(line.strip_prefix("0::")?));
    unified.or_else(|| text.lines().find_map(|line| service(line.split_once(":name=systemd:")?.1)))
}

/// How a program that is a service is written where programs are named: `unit NAME`.
const UNIT: &str = "unit ";

/// The text for a service of that name, in place of what an interpreter is given.
#[must_use]
pub fn detail_of_unit(name: &str) -> String {
    format!("{UNIT}{name}")
}

/// The other way of [`detail_of_unit`].
#[must_use]
pub fn unit_of_detail(text: &str) -> Option<&str> {
    text.strip_prefix(UNIT).filter(|name| name.ends_with(".service"))
}

fn service(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| part.ends_with(".service") && part.len() > ".service".len())
}

/// A trial that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Id in the catalogue table.
    pub candidate: u16,
    /// Names the page, `<16 hex digits>.page`: who creates it runs the trial, everybody else starts in production.
    pub token: u64,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The executable.
    pub executable: Executable,
    /// Which of its programs.
    pub detail: Detail,
    /// Whose decision; `None`: everybody's.
    pub uid: Option<u32>,
    /// Id in the catalogue table for a production start ([`imas_abi::CANDIDATE_SYSTEM`]: untouched).
    pub candidate: u16,
    /// The trial that is due, if any.
    pub trial: Option<Trial>,
    /// [`imas_abi::entry_flag`] bits.
    pub flags: u32,
    /// The daemon's number of the program, which stands in the page's trial id.
    pub program_id: u64,
}

impl Entry {
    fn record(&self) -> IndexEntry {
        let (kind, detail) = self.detail.key();
        let mut record = IndexEntry::new_zeroed();
        record.exe_dev = self.executable.dev;
        record.exe_ino = self.executable.ino;
        record.detail = detail;
        record.detail_kind = kind;
        record.uid = self.uid.unwrap_or(imas_abi::ANY_UID);
        record.exe_mtime_ns = self.executable.mtime_ns;
        record.exe_bytes = self.executable.bytes;
        record.candidate = self.candidate;
        record.trial_candidate = self.trial.map_or(0, |trial| trial.candidate);
        record.trial_token = self.trial.map_or(0, |trial| trial.token);
        record.flags = self.flags;
        record.program_id = self.program_id;
        record.check = fnv32(record.as_bytes());
        record
    }
}

/// What the header says besides sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Grows with each publication.
    pub generation: u64,
    /// The catalogue table that the ids belong to.
    pub catalogue_id: u64,
    /// `CLOCK_BOOTTIME` now, in nanoseconds: see [`boot_time_ns`].
    pub made_boot_ns: u64,
    /// This boot: see [`crate::process::boot_id`].
    pub boot_id: String,
    /// Everybody is to stand aside.
    pub disabled: bool,
}

/// Nanoseconds since boot, sleep included.
#[must_use]
pub fn boot_time_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| u64::try_from(std::time::Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
}

/// Why an index could not be written or is not one.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file system refused.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Two decisions for one program and user.
    #[error("two entries have the same key: {0:?}")]
    Twice(Box<Entry>),
    /// An entry without a candidate.
    #[error("an entry names no candidate: {0:?}")]
    NoCandidate(Box<Entry>),
    /// More than fits.
    #[error("{0} entries do not fit an index")]
    TooMany(usize),
    /// The boot id does not fit.
    #[error("'{0}' is not a boot id")]
    BootId(String),
    /// What is read is not a sound index.
    #[error("not a sound index: {0}")]
    Unsound(&'static str),
}

/// Writes the index `folder/index`: whole, readable by everybody, by rename.
///
/// # Errors
/// When entries contradict each other or the file system refuses; the index that stood there stays.
pub fn write_index(folder: &Path, entries: &[Entry], facts: &Facts) -> Result<PathBuf, IndexError> {
    let bytes = encode(entries, facts)?;
    let path = folder.join(FILE_NAME);
    crate::catalogue_table::replace(&path, &bytes)
        .map_err(|error| IndexError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// The bytes of an index.
///
/// # Errors
/// When two entries have the same key, one has no candidate, or there are too many.
pub fn encode(entries: &[Entry], facts: &Facts) -> Result<Vec<u8>, IndexError> {
    let records = records(entries)?;
    let least = (records.len() as u64 * 2).next_power_of_two().max(1);
    let sizes = std::iter::successors(Some(least), |slots| slots.checked_mul(2));
    let placed = sizes.take_while(|slots| *slots <= MOST_SLOTS).find_map(|slots| place(&records, slots));
    let (slots, table) = placed.ok_or(IndexError::TooMany(entries.len()))?;
    let header = header(facts, slots, entries.len(), table.len())?;
    Ok([header.as_bytes(), &table].concat())
}

fn records(entries: &[Entry]) -> Result<Vec<IndexEntry>, IndexError> {
    let mut keys = HashSet::new();
    let mut records = Vec::with_capacity(entries.len());
    for entry in entries {
        let record = entry.record();
        if record.candidate == 0 {
            return Err(IndexError::NoCandidate(Box::new(entry.clone())));
        }
        if !keys.insert(key(&record).to_vec()) {
            return Err(IndexError::Twice(Box::new(entry.clone())));
        }
        records.push(record);
    }
    Ok(records)
}

fn key(record: &IndexEntry) -> &[u8] {
    record.as_bytes().get(..imas_abi::KEY_BYTES).unwrap_or_default()
}

/// Each record in the first free slot from its home on, in the order of homes: no other order keeps the farthest nearer. `None`
/// when one comes to stand too far away.
fn place(records: &[IndexEntry], slots: u64) -> Option<(u64, Vec<u8>)> {
    let mut homes: Vec<_> = records.iter().map(|record| (fnv64(key(record)) & (slots - 1), record)).collect();
    homes.sort_by(|a, b| (a.0, key(a.1)).cmp(&(b.0, key(b.1))));
    let places = usize::try_from(slots).ok()? + INDEX_PROBES - 1;
    let mut table = vec![0; places * INDEX_ENTRY_BYTES];
    let mut next = 0;
    for (home, record) in homes {
        let home = usize::try_from(home).ok()?;
        let slot = home.max(next);
        if slot - home >= INDEX_PROBES {
            return None;
        }
        let at = slot * INDEX_ENTRY_BYTES;
        table.get_mut(at..at + INDEX_ENTRY_BYTES)?.copy_from_slice(record.as_bytes());
        next = slot + 1;
    }
    Some((slots, table))
}

fn header(facts: &Facts, slots: u64, entries: usize, table: usize) -> Result<IndexHeader, IndexError> {
    let mut header = IndexHeader::new_zeroed();
    header.magic = imas_abi::INDEX_MAGIC;
    header.version = imas_abi::INDEX_VERSION;
    header.file_bytes = (INDEX_HEADER_BYTES + table) as u64;
    header.generation = facts.generation;
    header.catalogue_id = facts.catalogue_id;
    header.made_boot_ns = facts.made_boot_ns;
    header.slots = slots;
    header.entries = entries as u64;
    header.flags = if facts.disabled { index_flag::DISABLED } else { 0 };
    let room = header.boot_id.len() - 1;
    let text = facts.boot_id.as_bytes();
    let field = header.boot_id.get_mut(..text.len()).filter(|_| !text.is_empty() && text.len() <= room);
    field.ok_or_else(|| IndexError::BootId(facts.boot_id.clone()))?.copy_from_slice(text);
    header.check = fnv32(header.as_bytes());
    Ok(header)
}

/// An index read for tools: every byte of it is checked.
#[derive(Debug, Clone)]
pub struct Index {
    header: IndexHeader,
    table: Vec<IndexEntry>,
}

impl Index {
    /// Reads and checks the index at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or a single bit of it is wrong.
    pub fn read(path: &Path) -> Result<Self, IndexError> {
        let bytes = std::fs::read(path).map_err(|error| IndexError::Io { path: path.to_owned(), error })?;
        Self::decode(&bytes)
    }

    /// Checks the bytes of an index.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, IndexError> {
        let (header, rest) =
            IndexHeader::read_from_prefix(bytes).map_err(|_| IndexError::Unsound("it is too short"))?;
        check_header(&header, bytes.len())?;
        let mut table = Vec::with_capacity(rest.len() / INDEX_ENTRY_BYTES);
        for record in rest.chunks_exact(INDEX_ENTRY_BYTES) {
            table.push(IndexEntry::read_from_bytes(record).map_err(|_| IndexError::Unsound("an entry"))?);
        }
        let index = Self { header, table };
        index.check_table()?;
        Ok(index)
    }

    /// What the header says.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts {
            generation: self.header.generation,
            catalogue_id: self.header.catalogue_id,
            made_boot_ns: self.header.made_boot_ns,
            boot_id: crate::catalogue_table::text(&self.header.boot_id),
            disabled: self.header.flags & index_flag::DISABLED != 0,
        }
    }

    /// All decisions.
    pub fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.table.iter().filter(|record| record.candidate != 0)
    }

    /// The decision of exactly that key.
    #[must_use]
    pub fn find(&self, dev: u64, ino: u64, detail: &Detail, uid: Option<u32>) -> Option<&IndexEntry> {
        let executable = Executable { dev, ino, mtime_ns: 0, bytes: 0 };
        let asked = Entry {
            executable,
            detail: detail.clone(),
            uid,
            candidate: 0,
            trial: None,
            flags: 0,
            program_id: 0,
        };
        let asked = asked.record();
        let home = usize::try_from(fnv64(key(&asked)) & (self.header.slots - 1)).ok()?;
        let probes = self.table.get(home..home + INDEX_PROBES)?;
        probes.iter().find(|record| record.candidate != 0 && key(record) == key(&asked))
    }

    fn check_table(&self) -> Result<(), IndexError> {
        let mut taken = 0;
        for (slot, record) in self.table.iter().enumerate() {
            if record.as_bytes().iter().all(|byte| *byte == 0) {
                continue;
            }
            taken += 1;
            check_entry(record)?;
            let home = usize::try_from(fnv64(key(record)) & (self.header.slots - 1)).unwrap_or(usize::MAX);
            if slot < home || slot - home >= INDEX_PROBES {
                return Err(IndexError::Unsound("an entry stands where nobody looks for it"));
            }
        }
        if taken == self.header.entries { Ok(()) } else { Err(IndexError::Unsound("its number of entries")) }
    }
}

fn check_header(header: &IndexHeader, bytes: usize) -> Result<(), IndexError> {
    let unsound = |what| Err(IndexError::Unsound(what));
    let zeroed = IndexHeader { check: 0, ..header.clone() };
    if header.magic != imas_abi::INDEX_MAGIC || header.version != imas_abi::INDEX_VERSION {
        return unsound("magic or version");
    }
    if fnv32(zeroed.as_bytes()) != header.check {
        return unsound("check sum of the header");
    }
    let places = header.slots.saturating_add(INDEX_PROBES as u64 - 1);
    let expected = places.saturating_mul(INDEX_ENTRY_BYTES as u64).saturating_add(INDEX_HEADER_BYTES as u64);
    if !header.slots.is_power_of_two() || expected != header.file_bytes || expected != bytes as u64 {
        return unsound("its size");
    }
    Ok(())
}

fn check_entry(record: &IndexEntry) -> Result<(), IndexError> {
    let zeroed = IndexEntry { check: 0, ..record.clone() };
    if fnv32(zeroed.as_bytes()) != record.check {
        return Err(IndexError::Unsound("check sum of an entry"));
    }
    if record.candidate == 0 { Err(IndexError::Unsound("an entry without candidate")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> Facts {
        Facts {
            generation: 7,
            catalogue_id: 9,
            made_boot_ns: boot_time_ns(),
            boot_id: crate::process::boot_id().unwrap(),
            disabled: false,
        }
    }

    fn entry(ino: u64, detail: Detail, uid: Option<u32>) -> Entry {
        Entry {
            executable: Executable { dev: 1, ino, mtime_ns: -5, bytes: 100 },
            detail,
            uid,
            candidate: 3,
            trial: Some(Trial { candidate: 4, token: ino ^ 0xff }),
            flags: imas_abi::entry_flag::FLIGHT,
            program_id: ino,
        }
    }

    fn any_detail() -> impl Strategy<Value = Detail> {
        prop_oneof![
            Just(Detail::None),
            (any::<u64>(), any::<u64>()).prop_map(|(dev, ino)| Detail::File { dev, ino }),
            any::<Vec<u8>>().prop_map(Detail::Text),
            "[a-z]{1,9}[.]service".prop_map(Detail::Unit),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_written_is_found_and_nothing_else(
            keys in prop::collection::hash_set((0..5000u64, any_detail(), prop::option::of(0..3u32)), 0..400)
        ) {
            let entries: Vec<_> = keys.iter().map(|(ino, d, uid)| entry(*ino, d.clone(), *uid)).collect();
            let index = Index::decode(&encode(&entries, &facts()).unwrap()).unwrap();
            prop_assert_eq!(index.facts().generation, 7);
            prop_assert_eq!(index.entries().count(), entries.len());
            for one in &entries {
                let found = index.find(1, one.executable.ino, &one.detail, one.uid);
                prop_assert_eq!(found, Some(&one.record()));
                prop_assert!(index.find(2, one.executable.ino, &one.detail, one.uid).is_none());
                prop_assert!(index.find(1, one.executable.ino + 5000, &one.detail, one.uid).is_none());
            }
        }

        #[test]
        fn no_wrong_bit_is_overlooked(at in 0..1_000_000usize, bit in 0..8u32) {
            let entries: Vec<_> = (0..20).map(|ino| entry(ino, Detail::None, None)).collect();
            let mut bytes = encode(&entries, &facts()).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(Index::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_hundred_thousand_programs_have_room() {
        let entries: Vec<_> = (0..100_000).map(|ino| entry(ino, Detail::None, None)).collect();
        let bytes = encode(&entries, &facts()).unwrap();
        assert!(bytes.len() < 70 << 20, "{}", bytes.len());
        let index = Index::decode(&bytes).unwrap();
        assert!((0..100_000).all(|ino| index.find(1, ino, &Detail::None, None).is_some()));
    }

    #[test]
    fn contradictions_are_refused() {
        let one = entry(1, Detail::None, None);
        assert!(matches!(encode(&[one.clone(), one.clone()], &facts()), Err(IndexError::Twice(_))));
        let nothing = Entry { candidate: 0, ..one };
        assert!(matches!(encode(&[nothing], &facts()), Err(IndexError::NoCandidate(_))));
        let nowhere = Facts { boot_id: "x".repeat(40), ..facts() };
        assert!(matches!(encode(&[], &nowhere), Err(IndexError::BootId(_))));
    }

    #[test]
    fn it_is_replaced_whole_and_readable_by_all() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for generation in 1..4 {
            let path =
                write_index(folder.path(), &[entry(1, Detail::None, None)], &Facts { generation, ..facts() })
                    .unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
            assert_eq!(Index::read(&path).unwrap().facts().generation, generation);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_index(Path::new("/no/such"), &[], &facts()).is_err());
    }

    #[test]
    fn a_service_is_found_in_its_cgroup() {
        assert_eq!(unit_of_cgroup("0::/system.slice/nginx.service\n"), Some("nginx.service"));
        assert_eq!(
            unit_of_cgroup("0::/user.slice/user@1.service/app.slice/a@b.service/sub\n"),
            Some("a@b.service")
        );
        assert_eq!(
            unit_of_cgroup("12:cpu:/x\n1:name=systemd:/system.slice/x.service\n0::/\n"),
            Some("x.service")
        );
        assert_eq!(unit_of_cgroup("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(unit_of_cgroup("0::/.service\n"), None);
    }

    #[test]
    fn a_script_is_known_by_the_file_and_a_module_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.py"), "").unwrap();
        let about = std::fs::metadata(folder.path().join("s.py")).unwrap();
        let file = Detail::File { dev: about.dev(), ino: about.ino() };
        assert_eq!(Detail::of(&Given::Word("s.py".into()), folder.path()), file);
        assert_eq!(Detail::of(&Given::Named("-jar".into(), "s.py".into()), folder.path()), file);
        let module = Given::Named("-m".into(), "http".into());
        assert_eq!(Detail::of(&module, folder.path()), Detail::Text(b"-m http".to_vec()));
        assert_eq!(Detail::of(&Given::Word("".into()), folder.path()), Detail::Text(Vec::new()));
    }
}
