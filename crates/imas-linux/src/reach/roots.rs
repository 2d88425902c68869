// SPDX-License-Identifier: Apache-2.0
//! Roots: memory and records of the kernel that hold a program's pointers beside its heaps.
//!
//! All writable memory that was not walked as a heap is a root as a whole, whatever it is: variables, stacks to their
//! lowest page, thread-local storage, other allocators' pages, shared memory. The kernel shows the `data` of epoll
//! and of timers, and the registers of a waiting system call.

use std::fs::{self, File};
use std::io::Read as _;
use std::ops::Range;

use super::copy::{Copied, PIECE};
use super::space::{MappingUse, Space, Targets};
use crate::heap::memory::Stop;

/// Most files and threads of a process that are looked at, and most bytes of the text about one.
const MOST_FILES: usize = 1 << 16;
const MOST_THREADS: usize = 1 << 14;
const MOST_TEXT: u64 = 4 << 20;
/// More addresses are sorted, so that each is there once.
const MANY: usize = 1 << 20;

/// Addresses of blocks to which roots lead.
#[derive(Debug, Default)]
pub(super) struct Roots {
    pub(super) addresses: Vec<u64>,
    /// Number of addresses behind which it is sorted again.
    sorted: usize,
}

impl Roots {
    /// Adds all memory but the `walked`, which is in order. False where that would hold more than the look may.
    pub(super) fn add_memory(
        &mut self,
        space: &Space,
        walked: &[Range<u64>],
        (targets, everywhere): (&Targets, bool),
        copied: &mut Copied<'_>,
    ) -> Result<bool, Stop> {
        for mapping in &space.mappings {
            let everywhere = match mapping.of {
                MappingUse::File => continue,
                MappingUse::Code => true,
                MappingUse::Data => everywhere,
            };
            for part in without(mapping.begin..mapping.end, walked) {
                self.add_part(part, (targets, everywhere), copied)?;
                if self.addresses.len() as u64 * 8 > copied.bounds.most_bytes {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn add_part(
        &mut self,
        part: Range<u64>,
        (targets, everywhere): (&Targets, bool),
        copied: &mut Copied<'_>,
    ) -> Result<(), Stop> {
        copied.forget();
        let mut at = part.start.next_multiple_of(8);
        while at < part.end {
            // Memory that was reserved and never touched is passed in large steps.
            let next = copied.next_resident(at, part.end)?;
            if next >= part.end {
                break;
            }
            at = next;
            let end = part.end.min(at + PIECE);
            let bytes = copied.part(at..end, end)?;
            targets.collect(bytes, everywhere, &mut self.addresses);
            at = end;
            self.sort_some();
        }
        Ok(())
    }

    fn sort_some(&mut self) {
        if self.addresses.len() >= self.sorted + MANY {
            self.addresses.sort_unstable();
            self.addresses.dedup();
            self.sorted = self.addresses.len();
        }
    }

    /// Adds what the kernel holds for the program, as far as it shows that.
    pub(super) fn add_kernel(&mut self, task: u32, targets: &Targets) {
        let words = epoll_data(task).into_iter().chain(timer_values(task)).chain(call_registers(task));
        self.addresses.extend(words.filter_map(|word| targets.led_to(word)));
    }
}

/// Parts of a range that are not in others, which are in order.
pub(super) fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = vec![];
    let mut at = range.start;
    let first = others.partition_point(|other| other.end <= range.start);
    for other in others.get(first..).unwrap_or(&[]) {
        if other.start >= range.end {
            break;
        }
        if at < other.start {
            parts.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

/// Values that a program gave to epoll with each file.
fn epoll_data(task: u32) -> Vec<u64> {
    let Ok(files) = fs::read_dir(format!("/proc/{task}/fd")) else { return vec![] };
    let mut words = vec![];
    for file in files.flatten().take(MOST_FILES) {
        let is_epoll =
            fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().contains("[eventpoll]"));
        if is_epoll && let Some(number) = file.file_name().to_str() {
            words.extend(numbers_behind(&text(&format!("/proc/{task}/fdinfo/{number}")), "data:"));
        }
    }
    words
}

/// What a program gave to its timers.
fn timer_values(task: u32) -> Vec<u64> {
    text(&format!("/proc/{task}/timers"))
        .lines()
        .filter_map(|line| line.strip_prefix("signal:")?.rsplit_once('/'))
        .filter_map(|(_, value)| u64::from_str_radix(value.trim(), 16).ok())
        .collect()
}

/// Registers of waiting threads with the arguments of their system calls.
fn call_registers(task: u32) -> Vec<u64> {
    let Ok(threads) = fs::read_dir(format!("/proc/{task}/task")) else { return vec![] };
    let texts = threads
        .flatten()
        .take(MOST_THREADS)
        .map(|thread| text(&format!("{}/syscall", thread.path().display())));
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    texts.flat_map(|text| text.split_whitespace().filter_map(number).collect::<Vec<_>>()).collect()
}

/// Hexadecimal numbers behind a word.
fn numbers_behind(text: &str, word: &str) -> Vec<u64> {
    let behind = text.split(word).skip(1);
    let number = |rest: &str| u64::from_str_radix(rest.split_whitespace().next()?, 16).ok();
    behind.filter_map(number).collect()
}

fn text(path: &str) -> String {
    let mut text = vec![];
    // A file that is gone has no pointers.
    let _ = File::open(path).and_then(|file| file.take(MOST_TEXT).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range of addresses is meant")]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;
    use crate::reach::copy::made::{Made, bounds};

    #[test]
    fn what_is_no_walked_heap_is_a_root() {
        let mut words = vec![0; 3 * 512];
        (words[3], words[600], words[1100]) = (0x7000_0010, 0x7000_0020, 0x7000_0030);
        let mut memory = Made::new(0x10000, &words);
        // An address in an instruction, at an uneven place of code that was made at run time.
        memory.bytes.resize(0x4000, 0);
        memory.bytes[0x300d..0x3015].copy_from_slice(&0x7000_0040_u64.to_ne_bytes());
        let text = "10000-13000 rw-p 00000000 00:00 0 \n13000-14000 r-xp 00000000 00:00 0 \n\
                    20000-30000 rw-p 00000000 00:00 0 \n";
        let (space, _) = Space::read(mappings(text.as_bytes())).unwrap();
        let targets = Targets::new(vec![0x7000_0000..0x7001_0000]);
        let found = |walked: &[Range<u64>]| {
            let mut roots = Roots::default();
            let mut copied = Copied::new(&memory, bounds());
            assert!(roots.add_memory(&space, walked, (&targets, false), &mut copied).unwrap());
            roots.addresses
        };
        assert_eq!(found(&[]), [0x7000_0010, 0x7000_0020, 0x7000_0030, 0x7000_0040]);
        assert_eq!(found(&[0x11000..0x12000]), [0x7000_0010, 0x7000_0030, 0x7000_0040]);
        assert!(found(&[0x0..0x20000]).is_empty());
    }

    #[test]
    fn parts_lie_between_the_others() {
        assert_eq!(without(10..20, &[0..5, 8..12, 14..15, 19..30]), [12..14, 15..19]);
        assert_eq!(without(10..20, &[]), [10..20]);
        assert!(without(10..20, &[5..25]).is_empty());
    }

    #[test]
    fn what_the_kernel_shows_is_read() {
        let line = "tfd:        4 events:       19 data:     55d0c0ffee10  pos:0 ino:1 sdev:e\n";
        assert_eq!(numbers_behind(line, "data:"), [0x55d0_c0ff_ee10]);
        assert!(numbers_behind("data:", "data:").is_empty() && numbers_behind("", "data:").is_empty());
        assert!(epoll_data(u32::MAX).is_empty() && timer_values(u32::MAX).is_empty());
    }
}
