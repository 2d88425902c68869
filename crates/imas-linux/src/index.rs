// SPDX-License-Identifier: Apache-2.0
//! The index: the decisions that `libimas-preload.so` looks up in each new process (`abi/imas_index.h`).
//!
//! It is written whole to a new file, which is then renamed: a reader sees the old index or the new one.
//! Nothing is synced to disk, because the index is on tmpfs and belongs to one boot.

mod detail;
mod encode;
mod entry;
mod error;
mod facts;
mod read;
mod service_unit;

use std::path::{Path, PathBuf};

pub use self::detail::Detail;
pub use self::encode::encode;
pub use self::entry::{Entry, OfferedTrial, offered};
pub use self::error::IndexError;
pub use self::facts::{Facts, boot_time_ns};
pub use self::read::Index;
pub use self::service_unit::{
    ServiceUnit, detail_of_unit, group_of_cgroup, template_of_unit, unit_of_cgroup, unit_of_detail,
    with_templates,
};
pub use crate::executable::Executable;

/// Name of the index in the state folder.
pub const FILE_NAME: &str = "index";

/// Writes the index `folder/index`: whole, readable by everybody, by rename.
///
/// # Errors
/// When entries contradict each other or the file system refuses; the index that stood there stays.
pub fn write_index(folder: &Path, entries: &[Entry], facts: &Facts) -> Result<PathBuf, IndexError> {
    let bytes = encode(entries, facts)?;
    let path = folder.join(FILE_NAME);
    crate::replace_file::replace(&path, &bytes)
        .map_err(|error| IndexError::Io { path: path.clone(), error })?;
    Ok(path)
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
        let is_there = |entry: &Entry| crate::fnv::fnv64(entry::key(&entry.record())) & 0xfff == 0;
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
}
