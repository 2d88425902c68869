// SPDX-License-Identifier: Apache-2.0
//! The index: the decisions that `libimas-preload.so` looks up in each new process (`abi/imas_index.h`).
//!
//! It is written whole to a new file, which is then renamed: a reader sees the old index or the new one.
//! Nothing is synced to disk, because the index is on tmpfs and belongs to one boot.

mod read;
mod service_unit;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_abi::{IndexEntry, MORE_TRIALS, MoreTrial, detail_kind};
use serde::{Deserialize, Serialize};
use zerocopy::{FromZeros, IntoBytes};

use crate::c_bytes::{fnv32, fnv64};
use crate::interpreter_target::InterpreterTarget;

pub use crate::files::Executable;
pub use read::{Index, encode};
pub use service_unit::{
    ServiceUnit, detail_of_unit, group_of_cgroup, template_of_unit, unit_of_cgroup, unit_of_detail,
    with_templates,
};

/// Name of the index in the state folder.
pub const FILE_NAME: &str = "index";

/// Writes the index `folder/index`: whole, readable by everybody, by rename.
///
/// # Errors
/// When entries contradict each other or the file system refuses; the index that stood there stays.
pub fn write_index(folder: &Path, entries: &[Entry], facts: &Facts) -> Result<PathBuf, IndexError> {
    let bytes = encode(entries, facts)?;
    let path = folder.join(FILE_NAME);
    crate::files::replace(&path, &bytes).map_err(|error| IndexError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// A trial that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferedTrial {
    /// Id in the catalogue table.
    pub candidate: u16,
    /// Names the page, `<16 hex digits>.page`: who creates it runs the trial, everybody else starts in
    /// production.
    pub token: u64,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The executable.
    pub executable: Executable,
    /// Detail that tells which of the executable's programs it is.
    pub detail: Detail,
    /// User whose decision it is; `None`: everybody's.
    pub uid: Option<u32>,
    /// Id in the catalogue table for a production start ([`imas_abi::CANDIDATE_SYSTEM`]: untouched).
    pub candidate: u16,
    /// The trials that are due: each start takes the first that no other process has taken. Of those beyond
    /// the first, as many as the record has room for, up to the first whose token does not follow the first
    /// one's within 65,535.
    pub trials: Vec<OfferedTrial>,
    /// [`imas_abi::entry_flag`] bits.
    pub flags: u32,
    /// The daemon's number of the program, which is in the page's trial id.
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
        if let Some((first, more)) = self.trials.split_first() {
            (record.trial_candidate, record.trial_token) = (first.candidate, first.token);
            record.more_trials = more_trials(first.token, more);
        }
        record.flags = self.flags;
        record.program_id = self.program_id;
        record.check = fnv32(record.as_bytes());
        record
    }
}

fn more_trials(first: u64, more: &[OfferedTrial]) -> [MoreTrial; MORE_TRIALS] {
    let fits = |trial: &OfferedTrial| {
        let after = u16::try_from(trial.token.wrapping_sub(first)).ok().filter(|after| *after > 0)?;
        (trial.candidate != 0).then_some(MoreTrial { candidate: trial.candidate, after })
    };
    let mut trials = [MoreTrial::default(); MORE_TRIALS];
    for (place, trial) in trials.iter_mut().zip(more.iter().map_while(fits)) {
        *place = trial;
    }
    trials
}

/// The trials that a record offers, as a start takes them in turn.
pub fn offered(record: &IndexEntry) -> impl Iterator<Item = OfferedTrial> {
    let first = OfferedTrial { candidate: record.trial_candidate, token: record.trial_token };
    let beside = |more: &MoreTrial| OfferedTrial {
        candidate: more.candidate,
        token: first.token.wrapping_add(u64::from(more.after)),
    };
    let all = std::iter::once(first).chain(record.more_trials.iter().map(beside));
    all.take_while(|trial| trial.candidate != 0).collect::<Vec<_>>().into_iter()
}

/// The bytes of an entry by which it is found.
fn key(record: &IndexEntry) -> &[u8] {
    record.as_bytes().get(..imas_abi::KEY_BYTES).unwrap_or_default()
}

/// Detail that distinguishes programs of one executable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Detail {
    /// Nothing: the entry of the executable itself, used when none with a detail fits.
    None,
    /// Script or jar, by the file itself.
    File {
        /// Device of the file.
        dev: u64,
        /// Inode of the file.
        ino: u64,
    },
    /// Module, main class, or `-c` with the hash of the code, by its text.
    Text(Vec<u8>),
    /// A text that is too long to be kept: its hash and its length.
    LongText([u64; 2]),
    /// systemd unit, by its name.
    Unit(String),
    /// The name by which the executable is started ([`crate::interpreter_target`]).
    Name(String),
}

impl Detail {
    /// Detail of an interpreter's target, in a process whose working directory is `folder`.
    #[must_use]
    pub fn of(target: &InterpreterTarget, folder: &Path) -> Self {
        match target {
            InterpreterTarget::Nothing => Self::None,
            InterpreterTarget::Code(option) => Self::Text(option.as_bytes().to_vec()),
            InterpreterTarget::Named(option, name) => Self::file(folder, name)
                .unwrap_or_else(|| Self::Text([option.as_bytes(), b" ", name.as_bytes()].concat())),
            InterpreterTarget::Word(word) => {
                Self::file(folder, word).unwrap_or_else(|| Self::Text(word.as_bytes().to_vec()))
            }
        }
    }

    fn file(folder: &Path, word: &OsStr) -> Option<Self> {
        let about = std::fs::metadata(folder.join(word)).ok().filter(|_| !word.is_empty())?;
        about.is_file().then(|| Self::File { dev: about.dev(), ino: about.ino() })
    }

    /// Key that an entry of the index holds: [`imas_abi::detail_kind`] and two numbers.
    #[must_use]
    pub fn key(&self) -> (u32, [u64; 2]) {
        let hashed = |text: &[u8]| [fnv64(text), text.len() as u64];
        match self {
            Self::None => (detail_kind::NONE, [0, 0]),
            Self::File { dev, ino } => (detail_kind::FILE, [*dev, *ino]),
            Self::Text(text) => (detail_kind::TEXT, hashed(text)),
            Self::LongText(key) => (detail_kind::TEXT, *key),
            Self::Unit(name) => (detail_kind::UNIT, hashed(name.as_bytes())),
            Self::Name(name) => (detail_kind::NAME, hashed(name.as_bytes())),
        }
    }
}

/// The facts in the header, without sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Grows with each publication.
    pub generation: u64,
    /// The catalogue table that the ids belong to.
    pub catalogue_id: u64,
    /// `CLOCK_BOOTTIME` now, in nanoseconds: see [`boot_time_ns`].
    pub made_boot_ns: u64,
    /// Id of this boot: see [`crate::process::boot_id`].
    pub boot_id: String,
    /// The stub is to do nothing in any process.
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
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum IndexError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("two entries have the same key: {0:?}")]
    Twice(Box<Entry>),
    #[error("an entry names no candidate: {0:?}")]
    NoCandidate(Box<Entry>),
    #[error("{0} entries do not fit an index")]
    TooMany(usize),
    #[error("'{0}' is not a boot id")]
    BootId(String),
    #[error("not a sound index: {0}")]
    Unsound(&'static str),
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
            trials: vec![OfferedTrial { candidate: 4, token: ino ^ 0xff }],
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
            "[a-z]{1,9}".prop_map(Detail::Name),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn written_entries_are_found_and_no_others(
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
        fn trials_are_read_back_as_starts_take_them(
            first in any::<u64>(),
            steps in prop::collection::vec(1..40_000u64, 0..15),
            candidates in prop::collection::vec(1..600u16, 16),
        ) {
            let tokens = steps.iter().scan(first, |token, step| {
                *token = token.wrapping_add(*step);
                Some(*token)
            });
            let tokens = std::iter::once(first).chain(tokens);
            let trials: Vec<_> = tokens
                .zip(candidates)
                .map(|(token, candidate)| OfferedTrial { candidate, token })
                .collect();
            let record = Entry { trials: trials.clone(), ..entry(1, Detail::None, None) }.record();
            let read: Vec<_> = offered(&record).collect();
            let is_near = |trial: &&OfferedTrial| trial.token.wrapping_sub(first) <= u64::from(u16::MAX);
            let near: Vec<_> = trials.iter().take_while(is_near).take(12).copied().collect();
            prop_assert_eq!(read, near);
            // An older stub reads the first one alone.
            prop_assert_eq!((record.trial_candidate, record.trial_token), (trials[0].candidate, first));
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

    /// The bytes were zero in an index of an older imasd.
    #[test]
    fn an_entry_without_further_trials_has_the_bytes_that_it_had() {
        let record = entry(1, Detail::None, None).record();
        let bytes = zerocopy::IntoBytes::as_bytes(&record);
        assert!(bytes[80..124].iter().all(|byte| *byte == 0));
        assert_eq!(offered(&record).count(), 1);
        let none = Entry { trials: vec![], ..entry(1, Detail::None, None) }.record();
        assert_eq!(offered(&none).count(), 0);
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
    fn a_user_who_crowds_a_home_keeps_out_nobody_elses_entry() {
        let is_there = |entry: &Entry| crate::c_bytes::fnv64(key(&entry.record())) & 0xfff == 0;
        let of = |uid| (0..).map(move |ino| entry(ino, Detail::None, uid)).filter(is_there);
        let others: Vec<_> = [None, Some(1001)].into_iter().flat_map(|uid| of(uid).take(2)).collect();
        let entries: Vec<_> = of(Some(1000)).take(40).chain(others.clone()).collect();
        let bytes = encode(&entries, &facts()).unwrap();
        assert!(bytes.len() < 1 << 18, "{}", bytes.len());
        let index = Index::decode(&bytes).unwrap();
        for one in &others {
            assert_eq!(index.find(1, one.executable.ino, &one.detail, one.uid), Some(&one.record()));
        }
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
    fn a_script_is_known_by_the_file_and_a_module_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.py"), "").unwrap();
        let about = std::fs::metadata(folder.path().join("s.py")).unwrap();
        let file = Detail::File { dev: about.dev(), ino: about.ino() };
        assert_eq!(Detail::of(&InterpreterTarget::Word("s.py".into()), folder.path()), file);
        assert_eq!(Detail::of(&InterpreterTarget::Named("-jar".into(), "s.py".into()), folder.path()), file);
        let module = InterpreterTarget::Named("-m".into(), "http".into());
        assert_eq!(Detail::of(&module, folder.path()), Detail::Text(b"-m http".to_vec()));
        assert_eq!(Detail::of(&InterpreterTarget::Word("".into()), folder.path()), Detail::Text(Vec::new()));
    }
}
