// SPDX-License-Identifier: Apache-2.0
//! The processes of the server: all descendants of its first process, also those with another parent by now. They are in a
//! control group (version 2) of their own, if one can be created.
//!
//! The group holds every process that descends from the server, daemons included, and the kernel counts their CPU time
//! exactly. No controller is needed for that. If none can be created (no rights, no version 2), the process tree is followed
//! instead. A limit on memory takes the controller of memory: of version 2 in the same group, else a second group of version
//! 1. Groups that were left behind by a killed imas are removed by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use imas_core::server_run::{Figure, ServerRun};
use imas_linux::control_group::GroupMemory;
use imas_linux::process::stat;
use imas_linux::sampler;
use procfs::process::{ProcState, Process, Stat};

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

/// Mount points of version 2, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Mount point of the memory groups of version 1.
const MEMORY_1: &str = "/sys/fs/cgroup/memory";
/// Begin of the names of our groups; the number of the process that made one follows.
const SERVICE: &str = "imas-service-";
/// Group for this process itself: of version 2, a group with processes may not limit the groups below it.
const OWN: &str = "imas-bench-";
const SUBTREE: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";
/// A file that exists in every group of version 2 but the root.
const CONTROLLERS: &str = "cgroup.controllers";

/// A control group below the group of this process. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    /// Group of this process.
    home: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Group {
    /// A new control group; None if it cannot be created.
    pub(crate) fn new() -> Option<Self> {
        let home = own_group()?;
        let folder = place_of(&home).join(new_name());
        std::fs::create_dir(&folder).ok()?;
        let group = Self { folder, home };
        group.cpu().is_some().then_some(group)
    }

    /// Calls `start` while this process is in the group, so that a child begins in it. Without the rights to
    /// enter and leave, nothing is started.
    pub(crate) fn within<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        within(&self.folder, &self.home, start)
    }

    /// The processes in the group, without zombies.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.folder.join(PROCESSES)).unwrap_or_default();
        let own = std::process::id();
        text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != own).collect()
    }

    /// CPU seconds of all processes that were ever in the group, in user mode and in the kernel.
    pub(crate) fn cpu(&self) -> Option<(f64, f64)> {
        let text = std::fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            value.map(|microseconds| microseconds / 1e6)
        };
        Some((field("user_usec ")?, field("system_usec ")?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// A process that is still exiting keeps the group for a moment.
fn remove(folder: &Path) {
    for _ in 0..100 {
        if std::fs::remove_dir(folder).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn within<T>(folder: &Path, home: &Path, start: impl FnOnce() -> T) -> io::Result<T> {
    enter(folder)?;
    let started = start();
    enter(home)?;
    Ok(started)
}

fn enter(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(PROCESSES), "0")
}

fn new_name() -> String {
    format!("{SERVICE}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The group below which new ones are made: the one above, where this process has made its group for itself.
fn place_of(home: &Path) -> &Path {
    let is_ours = home.file_name().is_some_and(|name| *name == *format!("{OWN}{}", std::process::id()));
    home.parent().filter(|_| is_ours).unwrap_or(home)
}

fn own_group() -> Option<PathBuf> {
    let groups = Process::myself().ok()?.cgroups().ok()?;
    let own = groups.into_iter().find(|group| group.hierarchy == 0)?;
    let below = own.pathname.trim_start_matches('/');
    let mount = MOUNTS.iter().map(Path::new).find(|mount| mount.join(CONTROLLERS).exists())?;
    Some(mount.join(below)).filter(|folder| folder.join(PROCESSES).exists())
}

// Limits on the memory of a server.

/// Right to limit the memory of groups below the one of this process. Drop gives it back.
#[derive(Debug)]
pub(crate) struct MemoryControl {
    /// Group of version 2 that had this process, and the one below it that has it meanwhile.
    moved: Option<(PathBuf, PathBuf)>,
}

impl MemoryControl {
    /// Takes the right for this process, and removes what killed ones have left.
    ///
    /// # Errors
    /// When no control group with a limit can be made, with the kernel's reason.
    pub(crate) fn take() -> io::Result<Self> {
        let control = match own_group().filter(|group| has_word(&group.join(CONTROLLERS), "memory")) {
            Some(group) => Self { moved: make_room(&group)? },
            None => Self { moved: None },
        };
        for home in [own_group(), own_group_1()].into_iter().flatten() {
            remove_leftovers(place_of(&home));
        }
        // One that is made and removed shows whether it can be done.
        let group = Group::new();
        MemoryGroup::new(group.as_ref(), Some(1 << 40)).map(|_| control)
    }
}

impl Drop for MemoryControl {
    fn drop(&mut self) {
        if let Some((above, own)) = &self.moved {
            let _ = std::fs::write(above.join(SUBTREE), "-memory");
            let _ = enter(above); // the next imas removes what stays
            remove(own);
        }
    }
}

/// Lets groups below this one have limits, where they may not have them yet.
fn make_room(group: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let control = group.join(SUBTREE);
    if has_word(&control, "memory") || std::fs::write(&control, "+memory").is_ok() {
        return Ok(None);
    }
    let own = group.join(format!("{OWN}{}", std::process::id()));
    std::fs::create_dir_all(&own)?;
    enter(&own)?;
    if let Err(error) = std::fs::write(&control, "+memory") {
        enter(group)?;
        remove(&own);
        return Err(error);
    }
    Ok(Some((group.to_owned(), own)))
}

fn has_word(file: &Path, word: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|one| one == word))
}

/// Removes empty groups of processes that have ended.
fn remove_leftovers(above: &Path) {
    let folders = std::fs::read_dir(above).into_iter().flatten().flatten();
    for folder in folders.map(|entry| entry.path()) {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = [SERVICE, OWN].iter().find_map(|begin| name.strip_prefix(begin));
        let maker = number.and_then(|text| text.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

/// The group that counts the memory of a server, page cache included, and may limit it.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    folder: PathBuf,
    /// Group of this process, of version 1. None where the group is the server's of version 2.
    home: Option<PathBuf>,
}

impl MemoryGroup {
    /// A group with a limit in bytes, and without swap. `None` counts alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(server: Option<&Group>, limit: Option<u64>) -> io::Result<Self> {
        if let Some(group) = server.filter(|group| group.folder.join("memory.max").exists()) {
            let made = Self { folder: group.folder.clone(), home: None };
            if let Some(limit) = limit {
                made.write("memory.max", limit)?;
                let _ = made.write("memory.swap.max", 0); // a kernel without swap has no such file
            }
            return Ok(made);
        }
        let home =
            own_group_1().ok_or_else(|| io::Error::other("this process' group has no control of memory"))?;
        let folder = home.join(new_name());
        std::fs::create_dir(&folder)?;
        let made = Self { folder, home: Some(home) };
        if let Some(limit) = limit {
            let _ = made.write("memory.swappiness", 0);
            made.write("memory.limit_in_bytes", limit)?;
            let _ = made.write("memory.memsw.limit_in_bytes", limit);
        }
        Ok(made)
    }

    fn write(&self, name: &str, value: u64) -> io::Result<()> {
        std::fs::write(self.folder.join(name), value.to_string())
    }

    /// Calls `start` while this process is in the group, where that is not the server's own.
    pub(crate) fn within<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        match &self.home {
            Some(home) => within(&self.folder, home, start),
            None => Ok(start()),
        }
    }

    /// Processes of the group that the kernel has killed for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        GroupMemory::of(&self.folder).oom_kills.unwrap_or(0)
    }

    /// Adds what the group counted: `group_peak` in bytes, and `group_kills`.
    pub(crate) fn record(&self, run: &mut ServerRun) {
        if let Some(peak) = GroupMemory::of(&self.folder).highest {
            run.record(Figure::lower("group_peak", peak as f64, "B"));
        }
        run.record(Figure::lower("group_kills", self.kills() as f64, ""));
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if self.home.is_some() {
            remove(&self.folder);
        }
    }
}

/// This process' memory group of version 1.
fn own_group_1() -> Option<PathBuf> {
    let groups = Process::myself().ok()?.cgroups().ok()?;
    let own = groups.into_iter().find(|group| group.controllers.iter().any(|name| name == "memory"))?;
    let folder = Path::new(MEMORY_1).join(own.pathname.trim_start_matches('/'));
    folder.join(PROCESSES).exists().then_some(folder)
}
