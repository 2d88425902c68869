// SPDX-License-Identifier: Apache-2.0
//! A filter of system calls (seccomp) that a process has of ours. The kernel shows a filter to root alone, and to nobody
//! who is under one: in a container not even to the parent of the process. But filters are inherited and only added to.
//! So a descendant of this process that has as many as this process has the same ones, and calls can be tried here.
#![allow(unsafe_code, reason = "calls are tried as malloc makes them")]

use std::fs;
use std::sync::OnceLock;

/// Most ancestors that are looked at.
const MOST_ANCESTORS: usize = 1000;
const PAGE: usize = 4096;
/// `FUTEX_WAKE` on memory of one process.
const WAKE: libc::c_int = 1 + 128;

/// Whether the thread of the process has the filters of this process, and these let malloc_trim do what it does.
pub(crate) fn is_passed_by(pid: i32, tid: i32) -> bool {
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
    use super::*;

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
