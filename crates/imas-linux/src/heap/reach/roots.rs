// SPDX-License-Identifier: Apache-2.0
//! Where pointers into the heaps of a process may lie beside these: its mappings, the live part of its stacks, and
//! words that the kernel keeps for it.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::Roots;

/// Threads whose stack is looked at; those of more are read as a whole.
const MOST_THREADS: usize = 4096;
/// Descriptors of epoll that are looked at, and most bytes that are read of one.
const MOST_DESCRIPTORS: usize = 1 << 16;
const MOST_OF_DESCRIPTOR: u64 = 1 << 20;
/// A stack is not larger.
const MOST_OF_STACK: u64 = 1 << 30;
/// The compiler may use so many bytes below the stack's end.
const RED_ZONE: u64 = 128;
/// A larger piece of shared memory is data, not pointers into the heaps of one process.
const MOST_SHARED: u64 = 64 << 20;
/// Constants of a library that are written when it is loaded are not more.
const MOST_CONSTANTS: u64 = 8 << 20;
/// Mappings beyond this number are not looked at.
const MOST_MAPS: usize = 1 << 18;
/// File to which descriptors of epoll lead.
const EPOLL: &str = "anon_inode:[eventpoll]";

/// A mapping as far as the search needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Map {
    range: Range<u64>,
    kind: MapKind,
    /// Whether nothing of it can be read or written.
    is_guard: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapKind {
    /// Private, writable, of no file.
    Anonymous,
    /// Private and writable, of a file: variables.
    Variables,
    /// Other private mapping of a file.
    Constants,
    Code,
    FirstStack,
    Shared,
    Other,
}

/// Where the pointers of one process lie.
#[derive(Debug, Default)]
pub(crate) struct ProcessRoots {
    maps: Vec<Map>,
    /// Whether there were more mappings than are looked at.
    pub(crate) is_cut: bool,
}

impl ProcessRoots {
    pub(crate) fn add(&mut self, map: &MemoryMap) {
        let writable = map.perms.contains(MMPermissions::READ | MMPermissions::WRITE);
        let kind = match &map.pathname {
            _ if map.perms.contains(MMPermissions::SHARED) => match &map.pathname {
                MMapPath::Path(path) if !is_memory(path) => MapKind::Other,
                _ if writable => MapKind::Shared,
                _ => MapKind::Other,
            },
            MMapPath::Path(_) if writable => MapKind::Variables,
            MMapPath::Path(_) if map.perms.contains(MMPermissions::EXECUTE) => MapKind::Code,
            MMapPath::Path(_) => MapKind::Constants,
            MMapPath::Stack | MMapPath::TStack(_) => MapKind::FirstStack,
            // A program may have taken the right to write from what it has written.
            MMapPath::Anonymous | MMapPath::Other(_) | MMapPath::Heap
                if map.perms.contains(MMPermissions::READ) =>
            {
                MapKind::Anonymous
            }
            _ => MapKind::Other,
        };
        if self.maps.len() >= MOST_MAPS {
            self.is_cut = true;
            return;
        }
        let is_guard = map.perms == MMPermissions::PRIVATE;
        self.maps.push(Map { range: map.address.0..map.address.1, kind, is_guard });
    }

    /// The roots. `stack_ends` are the addresses down to which the stacks of waiting threads reach.
    pub(crate) fn roots(&self, stack_ends: &[u64], words: Vec<u64>) -> Roots {
        let of_kind = |kinds: &'static [MapKind]| {
            self.maps.iter().filter(move |map| kinds.contains(&map.kind)).map(|map| map.range.clone())
        };
        let mut ranges = vec![];
        let mut below: Option<&Map> = None;
        for map in &self.maps {
            let range = &map.range;
            match map.kind {
                MapKind::Variables => ranges.push(range.clone()),
                // Some of a library's constants are written when it is loaded.
                MapKind::Constants if range.end - range.start <= MOST_CONSTANTS => ranges.push(range.clone()),
                MapKind::Anonymous | MapKind::FirstStack => {
                    let is_stack = map.kind == MapKind::FirstStack
                        || below.is_some_and(|below| below.is_guard && below.range.end == range.start);
                    let end = stack_ends.iter().filter(|end| range.contains(*end)).min();
                    let is_near = |end: &&u64| **end - range.start <= MOST_OF_STACK && is_stack;
                    let begin = end.filter(is_near).map_or(range.start, |end| end.saturating_sub(RED_ZONE));
                    ranges.push(begin.max(range.start) / 8 * 8..range.end);
                }
                MapKind::Shared if range.end - range.start <= MOST_SHARED => ranges.push(range.clone()),
                _ => {}
            }
            below = Some(map);
        }
        Roots {
            ranges,
            words,
            files: of_kind(&[MapKind::Variables, MapKind::Constants, MapKind::Code]).collect(),
            anonymous: of_kind(&[MapKind::Anonymous]).collect(),
        }
    }
}

fn is_memory(path: &std::path::Path) -> bool {
    let path = path.to_string_lossy();
    ["/dev/shm/", "/memfd:", "/dev/zero"].iter().any(|begin| path.starts_with(begin))
}

/// Where the stacks of the threads end that wait in the kernel. Those of others are not known.
pub(crate) fn stack_ends(pid: u32) -> Vec<u64> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return vec![] };
    let of_task = |task: std::fs::DirEntry| {
        let mut line = String::new();
        File::open(task.path().join("syscall")).ok()?.take(512).read_to_string(&mut line).ok()?;
        stack_end(&line)
    };
    tasks.flatten().take(MOST_THREADS).filter_map(of_task).collect()
}

/// The last word but one: the stack pointer. A running thread has the word `running` alone.
fn stack_end(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace().rev();
    let _program_counter = words.next()?;
    let word = words.next()?.strip_prefix("0x")?;
    u64::from_str_radix(word, 16).ok().filter(|end| *end > 0)
}

/// Words that epoll keeps for the process.
pub(crate) fn epoll_words(pid: u32) -> Vec<u64> {
    let Ok(links) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return vec![] };
    let mut words = vec![];
    for link in links.flatten().take(MOST_DESCRIPTORS) {
        if !std::fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == EPOLL) {
            continue;
        }
        let name = link.file_name();
        let path = format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy());
        let mut text = String::new();
        if File::open(path).and_then(|file| file.take(MOST_OF_DESCRIPTOR).read_to_string(&mut text)).is_ok() {
            words.extend(text.lines().filter_map(epoll_word));
        }
    }
    words
}

fn epoll_word(line: &str) -> Option<u64> {
    let (_, data) = line.strip_prefix("tfd:")?.split_once("data:")?;
    u64::from_str_radix(data.split_whitespace().next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    #[test]
    fn what_the_kernel_keeps_is_read_from_its_lines() {
        assert_eq!(stack_end("232 0x4 0x7ffc 0x1 0xffff 0x0 0x0 0x7ffd1000 0x7f31\n"), Some(0x7ffd_1000));
        assert_eq!([stack_end("running\n"), stack_end(""), stack_end("-1 0x0 0x7f\n")], [None; 3]);
        let line = "tfd:        6 events:       19 data:     55e4a2b0f2a0  pos:0 ino:2a2 sdev:8";
        assert_eq!(epoll_word(line), Some(0x55e4_a2b0_f2a0));
        assert_eq!(epoll_word("pos:\t0"), None);
    }

    #[test]
    fn of_a_waiting_threads_stack_the_live_part_counts() {
        let text = "\
            10000000-10001000 ---p 00000000 00:00 0 \n\
            10001000-10801000 rw-p 00000000 00:00 0 \n\
            20000000-20800000 rw-p 00000000 00:00 0 \n\
            30000000-30001000 rw-s 00000000 08:01 7 /var/data\n\
            40000000-40001000 rw-p 00000000 08:01 7 /usr/lib/x.so\n";
        let mut roots = ProcessRoots::default();
        mappings(text.as_bytes()).for_each(|map| roots.add(&map.unwrap()));
        let found = roots.roots(&[0x1070_0000, 0x2070_0000], vec![]);
        let stack = 0x1070_0000 - RED_ZONE..0x1080_1000;
        // Without a guard below it may be anything.
        assert_eq!(found.ranges, [stack, 0x2000_0000..0x2080_0000, 0x4000_0000..0x4000_1000]);
    }
}
