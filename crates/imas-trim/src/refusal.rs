// SPDX-License-Identifier: Apache-2.0
//! Reasons why a process is left alone.

use serde::{Deserialize, Serialize};

/// Why no thread of a process was made to call `malloc_trim`. Nothing was changed then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LeftAlone {
    #[error("it has ended")]
    Ended,
    #[error("it did not stand still when asked: it is stopped, frozen or gets no processor")]
    Standing,
    #[error("process {0} traces it: a debugger, strace or a container's sandbox")]
    Traced(u32),
    #[error("it has locked its memory (mlock): the kernel takes no locked page back")]
    Locked,
    #[error("it runs with a shadow stack")]
    ShadowStack,
    #[error("it may not be traced: that takes its owner (kernel.yama.ptrace_scope = 0) or root")]
    NotAllowed,
    #[error("it has a filter of system calls (seccomp) that root alone may read")]
    FilterUnread,
    #[error("its filter of system calls (seccomp) does not let malloc_trim do {0}")]
    Filter(String),
    #[error("it runs another program by now")]
    OtherProgram,
    #[error("no thread of it waits in a call in which it may be interrupted: {0}")]
    NoThread(String),
    #[error("the kernel refused: {0}")]
    Kernel(String),
}

impl LeftAlone {
    /// Whether a later try may find it otherwise: threads come to wait, and locks become free.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoThread(_) | Self::Standing)
    }

    pub(crate) fn of_errno(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Ended,
            Some(libc::EPERM | libc::EACCES) => Self::NotAllowed,
            _ => Self::Kernel(error.to_string()),
        }
    }
}

/// Why one thread was let go; another one may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It went on before it stood still.
    WentOn,
    /// The address of its stack is in no stack that is known: a coroutine, a fiber, an alternative signal stack.
    UnknownStack,
    /// There is no room below its stack pointer.
    NoRoom,
    /// A signal frame lies on its stack.
    InHandler,
    /// The lock of an arena was never seen free.
    LockHeld,
    /// Its wait did not end in time, and has a limit that only the kernel knows.
    TimeLimit,
    /// It entered the kernel in another way than by the instruction for system calls.
    OtherEntry,
}

impl Unfit {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::WentOn => "its threads are busy",
            Self::UnknownStack => {
                "the thread is on no stack of its own (a coroutine, a fiber, a signal handler)"
            }
            Self::NoRoom => "the thread's stack has no room",
            Self::InHandler => "the thread is in a signal handler",
            Self::LockHeld => "the lock of an arena was never seen free",
            Self::TimeLimit => "the thread's wait has a time limit, and did not end meanwhile",
            Self::OtherEntry => "the thread entered the kernel in an unknown way",
        }
    }
}
