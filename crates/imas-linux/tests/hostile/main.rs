// SPDX-License-Identifier: Apache-2.0
//! Real executables and records of the kernel, changed to attack their reader. `elf.rs` and `records.rs` in
//! `fuzz/fuzz_targets/` make the same checks with guided changes.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod file;
mod records;

use std::sync::OnceLock;

use imas_core::sample::Ended;
use imas_linux::taskstats::Message;
use proptest::prelude::*;

/// A small program with dynamic symbols of its own, `malloc` among them.
fn honest() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "#include <stddef.h>\nvoid *malloc(size_t n){(void)n;return NULL;} int main(void){return 0;}";
        let flags = ["-rdynamic", "-Wl,--build-id"];
        std::fs::read(imas_testing::compiled(folder.path(), "t", text, &flags)).unwrap()
    })
}

fn number(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

/// Offsets of the numbers that say where and how large everything is: headers of the file, its segments and
/// its sections.
fn headers(bytes: &[u8]) -> Vec<usize> {
    let (segments, sections) = (number(bytes, 32), number(bytes, 40));
    let count = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let segments = segments..segments + count(56) * 56;
    let sections = sections..sections + count(60) * 64;
    (0..64).chain(segments).chain(sections).collect()
}

/// Number of the family of taskstats: the kernel gives any.
const FAMILY: u16 = 30;

/// An attribute as netlink writes it.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The message about the last thread of process 7, which ended with status 3, in a structure of that version.
fn ended_thread(version: u16, stats_bytes: usize) -> Vec<u8> {
    let mut stats = vec![0; 560];
    let mut put = |at: usize, bytes: &[u8]| stats[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &version.to_ne_bytes());
    put(8, &[0x20]);
    for (at, figure) in [(4, 3 << 8), (120, 1000), (128, 8), (368, 7_u32)] {
        put(at, &figure.to_ne_bytes());
    }
    for (at, figure) in
        [(72, 5_000_000), (152, 3000), (160, 1000), (184, 160_000), (200, 51_200), (376, 9000_u64)]
    {
        put(at, &figure.to_ne_bytes());
    }
    stats.truncate(stats_bytes);
    let of_thread = [attribute(1, &8_u32.to_ne_bytes()), attribute(6, &[]), attribute(3, &stats)].concat();
    let payload = [vec![2, 1, 0, 0], attribute(4 | 0x8000, &of_thread)].concat();
    let length = u32::try_from(16 + payload.len()).unwrap();
    [&length.to_ne_bytes()[..], &FAMILY.to_ne_bytes(), &[0; 10], &payload].concat()
}

#[test]
fn a_record_is_read_in_every_version_that_names_the_process() {
    for (version, bytes) in [(12, 400), (13, 416), (16, 560), (99, 560)] {
        let Some(Message::Ended(record)) = records::check(&ended_thread(version, bytes), FAMILY) else {
            panic!("version {version} was refused");
        };
        assert_eq!((record.process, record.thread, record.uid, record.is_last), (7, 8, 1000, true));
        let account = record.account;
        assert_eq!((account.cpu_ns, account.ticked_us, account.wall_us), (5_000_000, 4000, 9000));
        assert_eq!((account.resident_mib_us, account.peak_kib), (160_000, 51_200));
        assert_eq!(account.ended(), Ended::Clean { status: Some(3) });
    }
    assert_eq!(records::check(&ended_thread(11, 560), FAMILY), None, "it does not name the process");
    assert_eq!(records::check(&ended_thread(16, 380), FAMILY), None, "it is cut short");
    assert_eq!(records::check(&ended_thread(16, 560), FAMILY + 1), None, "of another family");
}

/// A number that a header may hold: small, huge, or near the length of the file.
fn claim(length: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..200_u64,
        length.saturating_sub(100)..length + 100,
        Just(u64::MAX),
        Just(600_000_000)
    ]
}

/// Sets the size of each string table in the section headers, but for the one with the sections' own names.
fn lengthen_names(bytes: &mut [u8], length: u64) {
    const TABLE_OF_NAMES: u8 = 3;
    let of_sections = usize::from(u16::from_le_bytes([bytes[62], bytes[63]]));
    let (first, count) = (number(bytes, 40), usize::from(u16::from_le_bytes([bytes[60], bytes[61]])));
    for at in (0..count).filter(|section| *section != of_sections).map(|section| first + section * 64) {
        if bytes[at + 4] == TABLE_OF_NAMES {
            bytes[at + 32..at + 40].copy_from_slice(&length.to_le_bytes());
        }
    }
}

#[test]
fn what_several_looks_read_counts_together() {
    let mut bytes = honest().to_vec();
    lengthen_names(&mut bytes, 20 << 20);
    let found = file::check(&bytes, 40 << 20).unwrap();
    assert!(found.defines_malloc, "the first look is made to its end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn changed_headers_cost_no_more_than_the_bound(
        changes in prop::collection::vec((any::<prop::sample::Index>(), claim(20_000), 1..9_usize), 1..6),
        length in prop_oneof![Just(0), Just(1_u64 << 32), Just(40_000_000)],
    ) {
        let mut bytes = honest().to_vec();
        let places = headers(&bytes);
        for (place, value, width) in changes {
            let at = places[place.index(places.len())];
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        let length = length.max(bytes.len() as u64);
        file::check(&bytes, length);
    }

    #[test]
    fn a_changed_record_is_refused_or_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 1..9_usize), 0..6),
        (offset, length) in (0..8_usize, 0..700_usize),
    ) {
        let mut bytes = [vec![0; offset], ended_thread(16, 560)].concat();
        for (place, value, width) in changes {
            let at = place.index(bytes.len());
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_ne_bytes()[..end - at]);
        }
        records::check(&bytes[offset..], FAMILY);
        records::check(&bytes[..length.min(bytes.len())], FAMILY);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused(bytes in any::<Vec<u8>>(), family in any::<u16>()) {
        records::check(&bytes, family);
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_or_read(length in 0..20_000_usize) {
        let bytes = honest();
        file::check(&bytes[..length.min(bytes.len())], length.min(bytes.len()) as u64);
    }

    #[test]
    fn bytes_that_are_no_executable_are_refused(bytes in any::<Vec<u8>>()) {
        prop_assert!(file::check(&bytes, bytes.len() as u64).is_none());
    }
}

#[test]
fn the_unchanged_file_is_read() {
    let found = file::check(honest(), honest().len() as u64).unwrap();
    assert!(found.defines_malloc && found.build_id.is_some() && found.interpreter.is_some(), "{found:?}");
}

/// The section of that type: where its header is.
fn section(bytes: &[u8], kind: u32) -> usize {
    let (first, count) = (number(bytes, 40), usize::from(u16::from_le_bytes([bytes[60], bytes[61]])));
    let of_kind = |at: &usize| bytes[at + 4..at + 8] == kind.to_le_bytes();
    (0..count).map(|index| first + index * 64).find(of_kind).unwrap()
}

#[test]
fn tables_of_any_claimed_size_are_not_read() {
    const DYNSYM: u32 = 11;
    let at = section(honest(), DYNSYM);
    for claimed in [33_u64 << 20, 600 << 20, 1 << 40, u64::MAX] {
        let mut bytes = honest().to_vec();
        bytes[at + 32..at + 40].copy_from_slice(&claimed.to_le_bytes());
        for length in [bytes.len() as u64, 1 << 41] {
            assert!(file::check(&bytes, length).is_none(), "{claimed} of {length}");
        }
    }
}

#[test]
fn a_name_across_two_pieces_is_found() {
    const DYNSYM: u32 = 11;
    // The table of names grows into the hole beyond the file, so far that `malloc` begins in one piece and
    // ends in the next.
    for end_of_name in 48 * 1024 - 8..48 * 1024 + 8 {
        let mut bytes = honest().to_vec();
        let symbols = section(&bytes, DYNSYM);
        let link = number(&bytes, 40)
            + 64 * usize::try_from(u32::from_le_bytes(bytes[symbols + 40..symbols + 44].try_into().unwrap()))
                .unwrap();
        let (names, begin) = (number(&bytes, link + 24), bytes.len());
        let old = names..names + number(&bytes, link + 32);
        let place = bytes[old.clone()].windows(8).position(|text| text == b"\0malloc\0").unwrap();
        let name = end_of_name - 6;
        bytes.resize(begin + end_of_name + 1, b'x');
        bytes[begin + name - 1] = 0;
        bytes[begin + name..begin + end_of_name].copy_from_slice(b"malloc");
        bytes[begin + end_of_name] = 0;
        bytes[link + 24..link + 32].copy_from_slice(&(begin as u64).to_le_bytes());
        bytes[link + 32..link + 40].copy_from_slice(&(end_of_name as u64 + 1).to_le_bytes());
        let (first, count) = (number(&bytes, symbols + 24), number(&bytes, symbols + 32) / 24);
        for at in (0..count).map(|index| first + index * 24) {
            if bytes[at..at + 4] == (u32::try_from(place).unwrap() + 1).to_le_bytes() {
                bytes[at..at + 4].copy_from_slice(&u32::try_from(name).unwrap().to_le_bytes());
            }
        }
        assert!(file::check(&bytes, bytes.len() as u64).unwrap().defines_malloc, "{end_of_name}");
    }
}
