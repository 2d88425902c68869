// SPDX-License-Identifier: Apache-2.0
//! Memory of a process by what a search for leaks does with it: heaps are walked, all that may hold a pointer to a block
//! is a root, and pages of files as they are on the disk are neither.
//!
//! A word is a pointer into a heap where it leads there as it is, without its upper 16 or 17 bits, where a tag may be,
//! or without its lower 16; as an integer of Ruby or OCaml (twice its value, and 1), or of Python (digits of 30 bits).

use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use crate::heap::libc::Found;

/// Most mappings: more are not looked at.
const MOST_MAPPINGS: usize = 1 << 18;
/// Bits of an address of a program.
pub(super) const ADDRESS_BITS: u32 = if cfg!(target_arch = "x86_64") { 47 } else { 48 };
/// Bits of an address below which tags may be, and bits of a tag below the address.
const BELOW_TAG: u32 = 48;
const LOW_TAG: u32 = 16;
/// Values of a digit of Python's integers.
const DIGIT: u64 = 1 << 30;
/// Bits of the steps in which the address space is divided for a first look at a word.
const STEP_BITS: u32 = 26;

/// Use of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappingUse {
    /// Private memory of no file, where heaps may lie; stacks and variables as well.
    Data,
    /// Private memory of no file that may be executed: a pointer may be at any byte.
    Code,
    /// Pages of a file: neither read nor followed.
    File,
}

/// Mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) of: MappingUse,
    /// Index of its file among the space's files, and the offset there.
    pub(super) file: Option<(u32, u64)>,
}

/// All mappings of a process.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// The mappings by address.
    pub(super) mappings: Vec<Mapping>,
    /// Files that are mapped, each once in a row of its mappings.
    pub(super) files: Vec<PathBuf>,
    /// Number of the process's threads that have a stack is not known here; whether the kernel keeps pointers of the
    /// program in requests that it does not show.
    pub(super) has_hidden_requests: bool,
}

impl Space {
    /// The mappings, and what the walker of heaps finds among them.
    ///
    /// # Errors
    /// When they cannot be read; `FileTooLarge` when there are too many.
    pub(super) fn read(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<(Self, Found)> {
        let mut space = Self::default();
        let found = Found::of(maps.inspect(|map| {
            if let Ok(map) = map {
                space.add(map);
            }
        }))?;
        if space.mappings.len() > MOST_MAPPINGS {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if space.mappings.is_empty() {
            return Err(Error::from(ErrorKind::NotFound));
        }
        Ok((space, found))
    }

    fn add(&mut self, map: &MemoryMap) {
        if self.mappings.len() > MOST_MAPPINGS {
            return;
        }
        let file = match &map.pathname {
            MMapPath::Path(path) => {
                self.has_hidden_requests |= is_of_requests(&path.to_string_lossy());
                if self.files.last() != Some(path) {
                    self.files.push(path.clone());
                }
                u32::try_from(self.files.len() - 1).ok().map(|index| (index, map.offset))
            }
            MMapPath::Other(name) => {
                self.has_hidden_requests |= is_of_requests(name);
                None
            }
            _ => None,
        };
        if let Some(of) = use_of(map) {
            self.mappings.push(Mapping { begin: map.address.0, end: map.address.1, of, file });
        }
    }

    /// The mapping with this address.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|map| map.begin <= address);
        self.mappings.get(after.checked_sub(1)?).filter(|map| address < map.end)
    }
}

/// Rings of io_uring, and of the kernel's older asynchronous reads.
fn is_of_requests(name: &str) -> bool {
    name.contains("[io_uring]") || name.starts_with("/[aio]")
}

fn use_of(map: &MemoryMap) -> Option<MappingUse> {
    let is_written = map.perms.contains(MMPermissions::WRITE);
    let is_private = map.perms.contains(MMPermissions::PRIVATE);
    let is_executed = map.perms.contains(MMPermissions::EXECUTE);
    match &map.pathname {
        MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall => None,
        // What is read of a device may change it.
        MMapPath::Path(path) if path.starts_with("/dev") && !is_memory(path) => None,
        MMapPath::Path(path) if is_written || !is_private && is_memory(path) => Some(MappingUse::Data),
        MMapPath::Path(_) => Some(MappingUse::File),
        _ if is_executed => Some(MappingUse::Code),
        // Without any right too: an allocator may have taken the rights away for a while.
        _ => Some(MappingUse::Data),
    }
}

/// Whether the file is memory, also one that was removed: ` (deleted)` follows its name.
fn is_memory(path: &Path) -> bool {
    let path = path.to_string_lossy();
    ["/dev/shm/", "/dev/zero", "/dev/hugepages", "/memfd:"].iter().any(|begin| path.starts_with(begin))
}

/// Ranges of addresses in which blocks may lie.
#[derive(Debug)]
pub(super) struct Targets {
    /// Ranges by address, which do not overlap.
    ranges: Vec<Range<u64>>,
    /// The lowest address, and the one after the highest.
    whole: Range<u64>,
    /// A bit for each step of the address space with a part of a range.
    steps: Vec<u64>,
}

impl Targets {
    /// The ranges, in any order.
    pub(super) fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|range| range.start < range.end && range.end >> ADDRESS_BITS == 0);
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = vec![];
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        let bits = usize::try_from(1_u64 << (ADDRESS_BITS - STEP_BITS)).unwrap_or(0);
        let mut steps = vec![0; bits / 64];
        for range in &joined {
            for step in range.start >> STEP_BITS..=(range.end - 1) >> STEP_BITS {
                if let Some(word) = steps.get_mut(index(step / 64)) {
                    *word |= 1 << (step % 64);
                }
            }
        }
        let whole = joined.first().map_or(0, |first| first.start)..joined.last().map_or(0, |last| last.end);
        Self { ranges: joined, whole, steps }
    }

    /// Whether a block may lie at the address.
    pub(super) fn has(&self, address: u64) -> bool {
        if !self.whole.contains(&address) {
            return false;
        }
        let step = address >> STEP_BITS;
        if self.steps.get(index(step / 64)).is_none_or(|word| word & (1 << (step % 64)) == 0) {
            return false;
        }
        let after = self.ranges.partition_point(|range| range.start <= address);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|range| address < range.end)
    }

    /// The address to which a word may lead.
    pub(super) fn led_to(&self, word: u64) -> Option<u64> {
        if word >> ADDRESS_BITS == 0 {
            return Some(word).filter(|word| self.has(*word));
        }
        let bare = [
            word & ((1 << BELOW_TAG) - 1),
            word & ((1 << (BELOW_TAG - 1)) - 1),
            word >> LOW_TAG,
            word >> 1,
            (word & (DIGIT - 1)) | (word >> 32 << 30),
        ];
        bare.into_iter().find(|address| self.has(*address))
    }

    /// Adds the addresses to which the words of these bytes lead. `everywhere`: a pointer may begin at any byte, not
    /// only at each eighth; such a one has no tag.
    pub(super) fn collect(&self, bytes: &[u8], everywhere: bool, into: &mut Vec<u64>) {
        for word in bytes.as_chunks::<8>().0 {
            let word = u64::from_ne_bytes(*word);
            if word >= self.whole.start
                && let Some(address) = self.led_to(word)
            {
                into.push(address);
            }
        }
        if everywhere {
            self.collect_uneven(bytes, into);
        }
    }

    fn collect_uneven(&self, bytes: &[u8], into: &mut Vec<u64>) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let behind = words.iter().skip(1).map(|word| (word, 8)).chain([(&last, rest.len() + 1)]);
        for (word, (next, shifts)) in words.iter().zip(behind) {
            let (word, next) = (u64::from_ne_bytes(*word), u64::from_ne_bytes(*next));
            if word | next == 0 {
                continue;
            }
            for bits in (1..shifts).map(|shift| 8 * shift) {
                let shifted = if cfg!(target_endian = "little") {
                    word >> bits | next << (64 - bits)
                } else {
                    word << bits | next >> (64 - bits)
                };
                if self.whole.contains(&shifted) && self.has(shifted) {
                    into.push(shifted);
                }
            }
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    #[test]
    fn a_pointer_is_found_with_and_without_a_tag_and_at_any_byte() {
        let targets =
            Targets::new(vec![0x5555_0000_0000..0x5555_0010_0000, 0x7f00_0000_0000..0x7f00_0400_0000]);
        let address = 0x7f00_0123_4560_u64;
        let python = address & (DIGIT - 1) | address >> 30 << 32;
        for word in [
            address,
            address | 0xfff8 << 48,
            address | 0xffff_8000 << 32,
            address << 16 | 7,
            address << 1 | 1,
            python,
        ] {
            assert_eq!(targets.led_to(word), Some(address), "{word:x}");
        }
        for word in [0, 7, 0x5555_0010_0000, 0x7f00_0400_0000, u64::MAX, 0x6000_0000_0000] {
            assert_eq!(targets.led_to(word), None, "{word:x}");
        }
        let packed = [&[1, 2, 3, 4][..], &0x5555_0000_1230_u64.to_ne_bytes(), &[0; 12]].concat();
        let found = |everywhere| {
            let mut found = vec![];
            targets.collect(&packed, everywhere, &mut found);
            found
        };
        assert_eq!((found(false), found(true)), (vec![], vec![0x5555_0000_1230]));
        assert!(!Targets::new(vec![]).has(0));
    }

    #[test]
    fn mappings_are_roots_unless_they_are_pages_of_files_or_devices() {
        let text = "\
            10000000-10001000 r--p 00000000 08:01 7 /usr/lib/libx.so\n\
            10001000-10002000 rw-p 00001000 08:01 7 /usr/lib/libx.so\n\
            10002000-10003000 rw-p 00000000 00:00 0 \n\
            20000000-20001000 ---p 00000000 00:00 0 \n\
            30000000-30001000 r-xp 00000000 00:00 0 \n\
            40000000-40001000 rw-s 00000000 00:05 9 /dev/dri/card0\n\
            50000000-50001000 rw-s 00000000 00:05 9 /dev/shm/x\n\
            60000000-60001000 r--s 00000000 08:01 9 /usr/share/big\n\
            70000000-70001000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\
            71000000-71001000 r--s 00000000 00:01 9 /memfd:x (deleted)\n";
        let (space, _) = Space::read(mappings(text.as_bytes())).unwrap();
        let uses: Vec<_> = space.mappings.iter().map(|map| map.of).collect();
        use MappingUse::{Code, Data, File};
        assert_eq!(uses, [File, Data, Data, Data, Code, Data, File, Data, Data]);
        assert_eq!(space.at(0x1000_1fff).unwrap().file, Some((0, 0x1000)));
        assert!(space.at(0x1000_3000).is_none() && space.at(0).is_none() && !space.has_hidden_requests);
        let ring = "50000000-50001000 rw-s 00000000 00:0e 9 anon_inode:[io_uring]\n";
        assert!(Space::read(mappings(ring.as_bytes())).unwrap().0.has_hidden_requests);
        assert!(Space::read(mappings(&b""[..])).is_err());
    }
}
