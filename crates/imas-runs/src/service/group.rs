// SPDX-License-Identifier: Apache-2.0
//! A control group (version 2) for the server alone, if one can be created.
//!
//! It holds every process that descends from the server, daemons included, and the kernel counts their CPU
//! time exactly. No controller is needed for that. If none can be created (no rights, no version 2), the
//! process tree is followed instead.
//!
//! A limit on its memory takes the controller of memory: of version 2 in the same group, else a second group of version 1.
//! Groups that were left behind by a killed imas are removed by the next one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use imas_core::server_run::{Figure, ServerRun};
use imas_linux::control_group::GroupMemory;
use procfs::process::Process;

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
