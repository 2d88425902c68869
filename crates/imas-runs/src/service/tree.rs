// SPDX-License-Identifier: Apache-2.0
//! The processes of the server: all descendants of its first process, also those with another parent by now.

use std::collections::{BTreeMap, BTreeSet};

use imas_linux::process::stat;
use imas_linux::sampler;
use procfs::process::{ProcState, Stat};

use crate::service::group::Group;

/// Pid and start time. The kernel reuses a pid, but not both together.
type Identity = (u32, u64);

/// Figures of one process.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    user_ticks: u64,
    system_ticks: u64,
    /// This process is its parent, so no other member gets its CPU time when it ends.
    is_ours: bool,
    is_alive: bool,
}

/// The server's tree.
#[derive(Debug)]
pub(crate) struct Tree {
    root: u32,
    group: Option<Group>,
    /// Children of this process that are not the server's: children from before the start, and processes of
    /// the load.
    others: BTreeSet<u32>,
    /// Whether a new orphan belongs to the server. It does until the first load begins.
    adopts: bool,
    members: BTreeMap<Identity, Member>,
}

/// The server's processes at one instant.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeLook {
    /// Resident anonymous memory, bytes.
    pub(crate) bytes: u64,
    pub(crate) threads: u64,
    pub(crate) processes: usize,
}

impl Tree {
    /// The tree of a server that was just started. `others` are the earlier children of this process.
    pub(crate) fn new(root: u32, group: Option<Group>, others: BTreeSet<u32>) -> Self {
        Self { root, group, others, adopts: true, members: BTreeMap::new() }
    }

    /// Excludes a child of this process, and its descendants, from the tree.
    pub(crate) fn leave_out(&mut self, pid: u32) {
        self.others.insert(pid);
    }

    /// From now on, orphans may come from the load. So new orphans are no longer added to the tree.
    pub(crate) fn adopt_no_more(&mut self) {
        self.refresh();
        self.adopts = false;
    }

    /// The running processes, without zombies.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let alive = |pid: &u32| stat(*pid).is_some_and(|stat| !has_ended(&stat));
        match &self.group {
            Some(group) => group.pids(),
            None => self.followed().into_iter().filter(alive).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pids().is_empty()
    }

    /// The first process, all processes seen in the tree, their descendants, and the orphans from before the
    /// load.
    fn followed(&self) -> BTreeSet<u32> {
        let own = std::process::id();
        let children = sampler::tree(own).into_iter().skip(1);
        let known: BTreeSet<u32> = self.members.keys().map(|(pid, _)| *pid).collect();
        let roots = children.filter(|pid| {
            *pid == self.root
                || known.contains(pid)
                || (self.adopts && parent(*pid) == Some(own) && !self.others.contains(pid))
        });
        let roots: Vec<u32> = roots.collect();
        let all = roots.into_iter().flat_map(sampler::tree);
        all.filter(|pid| !self.others.contains(pid)).collect()
    }

    /// Reads the processes and their CPU times. Needed only without a control group.
    pub(crate) fn refresh(&mut self) {
        if self.group.is_some() {
            return;
        }
        let own = std::process::id();
        self.members.values_mut().for_each(|member| member.is_alive = false);
        for stat in self.followed().into_iter().filter_map(stat) {
            let identity = (u32::try_from(stat.pid).unwrap_or(0), stat.starttime);
            let waited = |ticks: i64| u64::try_from(ticks).unwrap_or(0);
            let member = Member {
                user_ticks: stat.utime + waited(stat.cutime),
                system_ticks: stat.stime + waited(stat.cstime),
                is_ours: u32::try_from(stat.ppid).is_ok_and(|parent| parent == own),
                is_alive: true,
            };
            self.members.insert(identity, member);
        }
    }

    /// CPU seconds so far, in user mode and in the kernel.
    pub(crate) fn cpu(&mut self) -> (f64, f64) {
        if let Some(cpu) = self.group.as_ref().and_then(Group::cpu) {
            return cpu;
        }
        self.refresh();
        let ticks = procfs::ticks_per_second() as f64;
        let counted = self.members.values().filter(|member| member.is_alive || member.is_ours);
        let (user, system) =
            counted.fold((0, 0), |sum, one| (sum.0 + one.user_ticks, sum.1 + one.system_ticks));
        (user as f64 / ticks, system as f64 / ticks)
    }

    /// CPU seconds by the ticks of the running processes and of those that they have waited for, as ps(1) shows them.
    /// Kept for a comparison with [`Self::cpu`]. It misses processes that nobody waited for.
    pub(crate) fn ticks_s(&self) -> f64 {
        let waited = |ticks: i64| u64::try_from(ticks).unwrap_or(0);
        let stats = self.pids().into_iter().filter_map(stat);
        let ticks: u64 =
            stats.map(|one| one.utime + one.stime + waited(one.cutime) + waited(one.cstime)).sum();
        ticks as f64 / procfs::ticks_per_second() as f64
    }

    /// Memory and threads at this moment.
    pub(crate) fn look(&self) -> TreeLook {
        let pids = self.pids();
        let threads =
            pids.iter().filter_map(|&pid| stat(pid)).map(|stat| u64::try_from(stat.num_threads).unwrap_or(0));
        TreeLook {
            bytes: pids.iter().filter_map(|&pid| sampler::resident_bytes(pid)).sum(),
            threads: threads.sum(),
            processes: pids.len(),
        }
    }

    /// Whether the kernel counts the CPU time in a control group.
    pub(crate) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The processes that get the signal to end: their parent is not in the tree.
    pub(crate) fn tops(&self) -> Vec<u32> {
        let pids = self.pids();
        let is_top = |pid: &u32| parent(*pid).is_none_or(|parent| !pids.contains(&parent));
        pids.iter().copied().filter(is_top).collect()
    }
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid).and_then(|stat| u32::try_from(stat.ppid).ok())
}

fn has_ended(stat: &Stat) -> bool {
    stat.state().is_ok_and(|state| matches!(state, ProcState::Zombie | ProcState::Dead))
}
