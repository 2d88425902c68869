// SPDX-License-Identifier: Apache-2.0
//! Answer of a filter of system calls (seccomp) to the calls of malloc_trim: the program of the filter is run
//! here.

#![allow(unsafe_code, reason = "calls are tried as malloc makes them")]

use std::fs;
use std::sync::OnceLock;

use libc::sock_filter;

/// A system call as a filter sees it (`struct seccomp_data`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) number: u32,
    pub(crate) instruction: u64,
    pub(crate) arguments: [u64; 6],
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Bytes of the record.
const BYTES: u32 = 64;
/// Actions by which the call is made.
const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
/// Part of an answer that is the action.
const ACTION: u32 = 0xffff_0000;
/// Flags of a futex call on memory of one process.
const PRIVATE: u64 = 128;
/// `MADV_DONTNEED`.
const DONT_NEED: u64 = 4;

impl Seen {
    fn word(&self, offset: u32) -> Option<u32> {
        let halves = |value: u64, high: bool| (if high { value >> 32 } else { value } & 0xffff_ffff) as u32;
        match offset {
            0 => Some(self.number),
            4 => Some(ARCHITECTURE),
            8 | 12 => Some(halves(self.instruction, offset == 12)),
            16..BYTES if offset.is_multiple_of(4) => {
                let argument = *self.arguments.get(((offset - 16) / 8) as usize)?;
                Some(halves(argument, offset % 8 == 4))
            }
            _ => None,
        }
    }
}

/// The calls that malloc_trim makes, and the one at its end, with a name for each. `heap` is an address in the heap.
pub(crate) fn needed(heap: u64, instruction: u64) -> Vec<(&'static str, Seen)> {
    let call = |name, number: libc::c_long, arguments| {
        (name, Seen { number: u32::try_from(number).unwrap_or(u32::MAX), instruction, arguments })
    };
    vec![
        call("madvise", libc::SYS_madvise, [heap, 4096, DONT_NEED, 0, 0, 0]),
        call("brk", libc::SYS_brk, [heap, 0, 0, 0, 0, 0]),
        call("futex", libc::SYS_futex, [heap, PRIVATE, 2, 0, 0, 0]),
        call("futex", libc::SYS_futex, [heap, PRIVATE + 1, 1, 0, 0, 0]),
        call("rt_sigreturn", libc::SYS_rt_sigreturn, [0; 6]),
    ]
}

/// Whether the filter lets the call be made. A filter that makes no sense does not.
pub(crate) fn allows(filter: &[sock_filter], seen: &Seen) -> bool {
    Machine::default().run(filter, seen).is_some_and(|answer| matches!(answer & ACTION, ALLOW | LOG))
}

/// The machine of classic BPF as seccomp uses it.
#[derive(Debug, Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; 16],
}

impl Machine {
    /// The filter's answer. Jumps go forward only, so that each program ends.
    fn run(&mut self, filter: &[sock_filter], seen: &Seen) -> Option<u32> {
        let mut at = 0usize;
        loop {
            let &sock_filter { code, jt, jf, k } = filter.get(at)?;
            at += 1;
            let code = u32::from(code);
            let source = if code & 8 == 0 { k } else { self.x };
            match code & 7 {
                0 => self.a = self.loaded(code, k, seen)?,
                1 => self.x = self.loaded(code, k, seen)?,
                2 => *self.memory.get_mut(k as usize)? = self.a,
                3 => *self.memory.get_mut(k as usize)? = self.x,
                4 => self.a = computed(code & 0xf0, self.a, source)?,
                5 => {
                    let far = match code & 0xf0 {
                        0 => k,
                        kind => u32::from(if holds(kind, self.a, source)? { jt } else { jf }),
                    };
                    at = at.checked_add(far as usize)?;
                }
                6 => return Some(if code & 0x18 == 0x10 { self.a } else { k }),
                _ if code & 0xf8 == 0 => self.x = self.a,
                _ => self.a = self.x,
            }
        }
    }

    /// Value of a load: a number, the size of the record, a word of memory or of the record.
    fn loaded(&self, code: u32, k: u32, seen: &Seen) -> Option<u32> {
        match code & 0xe0 {
            0 => Some(k),
            0x80 => Some(BYTES),
            0x60 => self.memory.get(k as usize).copied(),
            0x20 => seen.word(k),
            _ => None,
        }
    }
}

fn computed(operation: u32, a: u32, other: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(other),
        0x10 => a.wrapping_sub(other),
        0x20 => a.wrapping_mul(other),
        0x30 => a.checked_div(other)?,
        0x40 => a | other,
        0x50 => a & other,
        0x60 => a.checked_shl(other)?,
        0x70 => a.checked_shr(other)?,
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ other,
        _ => return None,
    })
}

fn holds(kind: u32, a: u32, other: u32) -> Option<bool> {
    Some(match kind {
        0x10 => a == other,
        0x20 => a > other,
        0x30 => a >= other,
        0x40 => a & other != 0,
        _ => return None,
    })
}

// A filter of system calls (seccomp) that a process has of ours. The kernel shows a filter to root alone, and to nobody
// who is under one: in a container not even to the parent of the process. But filters are inherited and only added to.
// So a descendant of this process that has as many as this process has the same ones, and calls can be tried here.

/// Most ancestors that are looked at.
const MOST_ANCESTORS: usize = 1000;
const PAGE: usize = 4096;
/// `FUTEX_WAKE` on memory of one process.
const WAKE: libc::c_int = 1 + 128;

/// Whether the thread of the process has the filters of this process, and these let malloc_trim do what it does.
pub(super) fn is_passed_by(pid: i32, tid: i32) -> bool {
    static PASSES: OnceLock<bool> = OnceLock::new();
    let own = number_of("Seccomp_filters", "thread-self");
    own.is_some()
        && number_of("Seccomp_filters", &format!("{pid}/task/{tid}")) == own
        && descends_from_us(pid)
        && *PASSES.get_or_init(lets_calls_pass)
}

/// A process that this one has not started has other filters, however many. One that came to the first process of a
/// container as an orphan was started in the same container.
fn descends_from_us(pid: i32) -> bool {
    let own = std::process::id();
    let mut parent = number_of("PPid", &pid.to_string());
    for _ in 0..MOST_ANCESTORS {
        match parent {
            Some(pid) if pid == own => return true,
            Some(pid) if pid > 1 => parent = number_of("PPid", &pid.to_string()),
            _ => return false,
        }
    }
    false
}

/// The number after that name in the status of a process or thread.
fn number_of(name: &str, place: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{place}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line?.trim().parse().ok()
}

/// Tries the calls that malloc_trim makes. Its last one is made after every signal handler, so it is not tried.
fn lets_calls_pass() -> bool {
    let (readable, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of no file, at an address of the kernel's choice, that nobody else knows.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, readable, private, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the page is the mapping from above; nothing in it is in use.
    let forgets = unsafe { libc::madvise(page, PAGE, libc::MADV_DONTNEED) } == 0;
    // SAFETY: a wake reads no memory; the address is of the mapping, where nobody waits.
    let wakes = unsafe { libc::syscall(libc::SYS_futex, page, WAKE, 1) } == 0;
    // SAFETY: an end of the heap at 0 is impossible, so the kernel changes nothing and says where it is.
    let breaks = unsafe { libc::syscall(libc::SYS_brk, 0) } > 0;
    // SAFETY: the mapping from above, which nobody uses any more.
    unsafe { libc::munmap(page, PAGE) };
    forgets && wakes && breaks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    /// Lets everything be made but calls with this number.
    fn all_but(number: libc::c_long, answer: u32) -> Vec<sock_filter> {
        vec![
            op(0x20, 0, 0, 4),
            op(0x15, 1, 0, ARCHITECTURE),
            op(0x06, 0, 0, 0),
            op(0x20, 0, 0, 0),
            op(0x15, 0, 1, u32::try_from(number).unwrap()),
            op(0x06, 0, 0, answer),
            op(0x06, 0, 0, ALLOW),
        ]
    }

    #[test]
    fn a_filter_that_forbids_a_call_of_malloc_trim_is_seen() {
        let calls = needed(0x5555_0000, 0x7f00_1000);
        for (name, seen) in &calls {
            assert!(allows(&all_but(libc::SYS_ptrace, 0), seen), "{name}");
        }
        for answer in [0, 0x8000_0000, 0x0005_0001, 0x0003_0000, 0x7ff0_0000, 0x7fc0_0000] {
            let filter = all_but(libc::SYS_madvise, answer);
            let refused: Vec<_> =
                calls.iter().filter(|(_, seen)| !allows(&filter, seen)).map(|(name, _)| *name).collect();
            assert_eq!(refused, ["madvise"], "{answer:#x}");
        }
        assert!(allows(&all_but(libc::SYS_madvise, LOG), &calls[0].1), "it is made, and noted");
    }

    #[test]
    fn arguments_are_compared_as_words() {
        // madvise, but not with MADV_DONTNEED.
        let filter = [op(0x20, 0, 0, 32), op(0x15, 0, 1, 4), op(0x06, 0, 0, 0), op(0x06, 0, 0, ALLOW)];
        let (_, seen) = needed(1 << 40, 0)[0];
        assert!(!allows(&filter, &seen));
        assert!(allows(&filter, &Seen { arguments: [0; 6], ..seen }));
        assert_eq!((seen.word(16), seen.word(20)), (Some(0), Some(1 << 8)));
    }

    proptest! {
        #[test]
        fn any_program_comes_to_an_end(
            program in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..200),
        ) {
            let filter: Vec<_> = program.into_iter().map(|(code, jt, jf, k)| op(code, jt, jf, k)).collect();
            for (_, seen) in needed(1, 2) {
                let _ = allows(&filter, &seen);
            }
        }
    }

    #[test]
    fn a_child_descends_from_us_and_the_first_process_does_not() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (descends, passes) = (descends_from_us(pid), is_passed_by(pid, pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(descends && lets_calls_pass());
        assert_eq!(passes, number_of("Seccomp_filters", "thread-self").is_some(), "Linux 5.9 counts filters");
        assert!(!descends_from_us(1) && !is_passed_by(1, 1));
    }
}
