// SPDX-License-Identifier: Apache-2.0
//! What the kernel says of a process and its threads in /proc, before a thread is touched.

use std::fs;

use procfs::process::{MMPermissions, MMapPath, MemoryMaps, Process, Status};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::refusal::LeftAlone;
use crate::stack::Range;
use crate::waits::{Call, Wait};

/// Threads of a process that are looked at in one round.
const MOST_THREADS: usize = 2000;

/// A thread that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) tid: i32,
    pub(crate) call: Call,
    pub(crate) wait: Wait,
}

/// A process that may be asked.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    process: Process,
    pidfd: Option<OwnedFd>,
}

impl Target {
    /// Refuses a process as a whole.
    pub(crate) fn of(pid: u32) -> Result<Self, LeftAlone> {
        let pid = i32::try_from(pid).map_err(|_| LeftAlone::Ended)?;
        let process = Process::new(pid).map_err(|_| LeftAlone::Ended)?;
        let status = process.status().map_err(|_| LeftAlone::Ended)?;
        judged(&status)?;
        // A kernel before 5.6 has none of this: limits of sockets are not known there.
        let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self { pid, process, pidfd })
    }

    /// Number of threads that wait and may be interrupted, those first that bear it best.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut waiting: Vec<Waiting> = threads.take(MOST_THREADS).filter_map(|tid| self.look(tid)).collect();
        waiting.sort_by_key(|thread| thread.wait);
        waiting
    }

    /// The thread's wait, if it is in one that is judged.
    pub(crate) fn look(&self, tid: i32) -> Option<Waiting> {
        let call = self.call(tid)?;
        let wait = call.wait()?;
        // The kernel ends a read of a socket with a limit by EINTR: it could only be begun again.
        let is_limited = wait == Wait::Again && call.socket().is_some_and(|number| self.is_limited(number));
        Some(Waiting { tid, call, wait: if is_limited { Wait::JustBegun } else { wait } })
    }

    /// The system call in which the thread is.
    pub(crate) fn call(&self, tid: i32) -> Option<Call> {
        Call::parsed(&fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?)
    }

    /// Whether the file is a socket with SO_RCVTIMEO, or may be one.
    fn is_limited(&self, number: i32) -> bool {
        let Some(pidfd) = &self.pidfd else { return true };
        let Ok(copy) = pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()) else { return true };
        let limit = rustix::net::sockopt::socket_timeout(copy.as_fd(), rustix::net::sockopt::Timeout::Recv);
        match limit {
            Ok(limit) => limit.is_some(),
            Err(error) => error != rustix::io::Errno::NOTSOCK,
        }
    }

    /// How often the thread began to wait.
    pub(crate) fn waits_begun(&self, tid: i32) -> Option<u64> {
        self.process.task_from_tid(tid).ok()?.status().ok()?.voluntary_ctxt_switches
    }

    /// The thread's own state: filters of system calls, and the reasons that hold for a process.
    pub(crate) fn has_filter(&self, tid: i32) -> Result<bool, LeftAlone> {
        let status =
            self.process.task_from_tid(tid).and_then(|task| task.status()).map_err(|_| LeftAlone::Ended)?;
        judged(&status)?;
        Ok(status.seccomp.unwrap_or(0) != 0)
    }

    /// The mapping where the address lies, if it is private memory that can be written, and whether the kernel calls it
    /// the stack of the first thread.
    pub(crate) fn mapping(&self, address: u64) -> Option<(Range, bool)> {
        let maps: MemoryMaps = self.process.maps().ok()?;
        let map = maps.into_iter().find(|map| (map.address.0..map.address.1).contains(&address))?;
        let needs = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
        let is_first = matches!(map.pathname, MMapPath::Stack);
        let is_memory = is_first || !matches!(map.pathname, MMapPath::Path(_));
        let range = Range { begin: map.address.0, end: map.address.1 };
        (map.perms.contains(needs) && is_memory).then_some((range, is_first))
    }

    /// Resident anonymous bytes.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        let rollup = self.process.smaps_rollup().ok()?;
        rollup.memory_map_rollup.0.first()?.extension.map.get("Anonymous").copied()
    }

    /// Whether the thread stands in the kernel's refrigerator.
    pub(crate) fn is_frozen(&self, tid: i32) -> bool {
        let place = fs::read_to_string(format!("/proc/{}/task/{tid}/wchan", self.pid)).unwrap_or_default();
        place.contains("freezer") || place.contains("refrigerator")
    }

    /// Whether its shadow stack is on, where the kernel knows such.
    pub(crate) fn has_shadow_stack(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
        features.is_some_and(|features| features.contains("shstk"))
    }
}

fn judged(status: &Status) -> Result<(), LeftAlone> {
    match u32::try_from(status.tracerpid) {
        Ok(0) | Err(_) => {}
        Ok(tracer) => return Err(LeftAlone::Traced(tracer)),
    }
    if status.state.starts_with(['T', 't', 'Z', 'X']) {
        return Err(LeftAlone::Standing);
    }
    // malloc_trim's calls would fail and change errno, which the program may look at.
    if status.vmlck.unwrap_or(0) > 0 {
        return Err(LeftAlone::Locked);
    }
    Ok(())
}
