// SPDX-License-Identifier: Apache-2.0
//! System calls in which a thread may be interrupted, and how each of them goes on afterwards (signal(7)).
//!
//! malloc makes none of them. After an interruption a call is made again, whole, by the program counter that the
//! signal frame has. That is what the kernel does itself, but for a call with a time limit that the kernel alone
//! knows: such a call is waited for instead, and the thread is taken where it leaves it.

use libc::c_long;

/// Effect of an interruption on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// It is made again, whole: it has no limit, an absolute one, or the kernel has written down what is left of it.
    Again,
    /// It is made again, whole, but a tracer that dies in the middle leaves EINTR behind, as SIGSTOP and SIGCONT do.
    AgainAfterEintr,
    /// Its limit counts from its begin. The kernel continues it by `restart_syscall`: it is taken at its end.
    ToItsEnd,
    /// Its limit counts from its begin, and an interruption ends it: it is taken only just after its begin.
    JustBegun,
}

/// A system call in which a thread waits: its number and arguments, as `/proc/PID/task/TID/syscall` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: c_long,
    pub(crate) arguments: [u64; 6],
    /// Stack pointer.
    pub(crate) stack: u64,
    /// Address behind the instruction for system calls.
    pub(crate) instruction: u64,
}

impl Call {
    /// The call in the kernel's text; None for a thread that runs, or waits elsewhere in the kernel.
    pub(crate) fn parsed(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut numbers = words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = numbers.next()??;
        }
        Some(Self { number, arguments, stack: numbers.next()??, instruction: numbers.next()?? })
    }

    /// How the call bears an interruption; None for one that malloc may make, and for any that is not judged here.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let is_given = |argument: usize| self.arguments[argument] != 0;
        let unlimited_or = |is_limited: bool, limited: Wait, unlimited: Wait| {
            Some(if is_limited { limited } else { unlimited })
        };
        // A number of four bytes; -1 is no limit.
        let has_limit_ms =
            |argument: usize| matches!(self.arguments[argument] & 0xffff_ffff, 1..=0x7fff_ffff);
        #[cfg(target_arch = "x86_64")]
        match self.number {
            libc::SYS_poll => return unlimited_or(has_limit_ms(2), Wait::ToItsEnd, Wait::Again),
            libc::SYS_epoll_wait => {
                return unlimited_or(has_limit_ms(3), Wait::JustBegun, Wait::AgainAfterEintr);
            }
            libc::SYS_select | libc::SYS_pause => return Some(Wait::Again),
            _ => {}
        }
        match self.number {
            _ if self.receives() => Some(Wait::Again),
            libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_rt_sigsuspend
            | libc::SYS_msgrcv
            | libc::SYS_mq_timedreceive
            | libc::SYS_pselect6
            | libc::SYS_ppoll => Some(Wait::Again),
            libc::SYS_nanosleep | libc::SYS_restart_syscall => Some(Wait::ToItsEnd),
            libc::SYS_clock_nanosleep => {
                let is_absolute = self.arguments[1] & 1 != 0;
                unlimited_or(!is_absolute, Wait::ToItsEnd, Wait::Again)
            }
            libc::SYS_epoll_pwait => unlimited_or(has_limit_ms(3), Wait::JustBegun, Wait::AgainAfterEintr),
            libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => {
                unlimited_or(is_given(3), Wait::JustBegun, Wait::AgainAfterEintr)
            }
            libc::SYS_rt_sigtimedwait => unlimited_or(is_given(2), Wait::JustBegun, Wait::AgainAfterEintr),
            libc::SYS_semop => Some(Wait::AgainAfterEintr),
            _ => None,
        }
    }

    /// Whether the call waits for what comes through a file descriptor, its first argument.
    pub(crate) fn receives(&self) -> bool {
        matches!(
            self.number,
            libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_accept
                | libc::SYS_accept4
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
        )
    }

    /// The file descriptor of a call that may be limited by its socket's SO_RCVTIMEO.
    pub(crate) fn socket(&self) -> Option<i32> {
        self.receives().then(|| i32::try_from(self.arguments[0]).ok())?
    }
}

/// Results by which the kernel says that a call was interrupted (`linux/errno.h`, no part of what programs see).
const INTERRUPTED: [i64; 5] = [
    EINTR,
    -512, // ERESTARTSYS
    -513, // ERESTARTNOINTR
    RESTART_UNLESS_HANDLED,
    RESTART_BLOCK,
];
pub(crate) const EINTR: i64 = -(libc::EINTR as i64);
/// `ERESTARTNOHAND`: the call is made again unless a handler runs.
pub(crate) const RESTART_UNLESS_HANDLED: i64 = -514;
/// The kernel alone knows what is left of its limit.
pub(crate) const RESTART_BLOCK: i64 = -516;

/// Whether the result says that the call was interrupted and has done nothing.
pub(crate) fn is_interrupted(result: i64) -> bool {
    INTERRUPTED.contains(&result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    fn call(number: c_long, arguments: [u64; 6]) -> Call {
        Call { number, arguments, stack: 0, instruction: 0 }
    }

    #[test]
    fn calls_that_malloc_makes_are_never_taken() {
        for number in [
            libc::SYS_brk,
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
            libc::SYS_mprotect,
            libc::SYS_futex,
            libc::SYS_prctl,
            libc::SYS_openat,
            libc::SYS_close,
            libc::SYS_write,
            libc::SYS_sched_yield,
            libc::SYS_getrandom,
            libc::SYS_rt_sigreturn,
            libc::SYS_clone,
            libc::SYS_execve,
            libc::SYS_io_uring_enter,
            libc::SYS_exit,
        ] {
            assert_eq!(call(number, [0; 6]).wait(), None, "{number}");
        }
    }

    #[test]
    fn a_limit_that_counts_from_the_begin_of_a_call_is_never_begun_again() {
        let never = u64::from(u32::MAX); // -1 of four bytes
        let fourth = |value: u64| [1, 2, 3, value, 0, 0];
        for (number, arguments, wait) in [
            (libc::SYS_nanosleep, [1, 0, 0, 0, 0, 0], Wait::ToItsEnd),
            (libc::SYS_clock_nanosleep, [0, 0, 9, 0, 0, 0], Wait::ToItsEnd),
            (libc::SYS_clock_nanosleep, [0, 1, 9, 0, 0, 0], Wait::Again),
            (libc::SYS_epoll_pwait, fourth(5), Wait::JustBegun),
            (libc::SYS_epoll_pwait, fourth(never), Wait::AgainAfterEintr),
            (libc::SYS_semtimedop, fourth(9), Wait::JustBegun),
            (libc::SYS_semtimedop, fourth(0), Wait::AgainAfterEintr),
            (libc::SYS_rt_sigtimedwait, [1, 0, 7, 8, 0, 0], Wait::JustBegun),
            (libc::SYS_ppoll, [1, 1, 9, 0, 8, 0], Wait::Again),
        ] {
            assert_eq!(call(number, arguments).wait(), Some(wait), "{number} {arguments:?}");
        }
        #[cfg(target_arch = "x86_64")]
        for (limit, wait) in [(1000, Wait::ToItsEnd), (never, Wait::Again)] {
            assert_eq!(call(libc::SYS_poll, [1, 1, limit, 0, 0, 0]).wait(), Some(wait));
        }
    }

    #[test]
    fn the_text_of_the_kernel_is_read() {
        let read = Call::parsed("0 0x3 0x7ffd10 0x1000 0x0 0x0 0x5 0x7ffd00 0x7f01\n").unwrap();
        assert_eq!(
            (read.number, read.arguments, read.stack, read.instruction),
            (0, [3, 0x7f_fd10, 0x1000, 0, 0, 5], 0x7f_fd00, 0x7f01)
        );
        for text in ["running\n", "-1 0x7ffd 0x7f\n", "", "0 0x3", "0 3 4 5 6 7 8 9 10"] {
            assert_eq!(Call::parsed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}", numbers in any::<[u64; 8]>()) {
            let _ = Call::parsed(&text);
            let words: Vec<String> = numbers[1..].iter().map(|number| format!("{number:#x}")).collect();
            let _ = Call::parsed(&format!("{} {}", numbers[0] % 500, words.join(" "))).map(|call| call.wait());
        }
    }
}
