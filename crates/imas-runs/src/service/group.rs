// SPDX-License-Identifier: Apache-2.0
//! A control group (version 2) for the server alone, if one can be created.
//!
//! It holds every process that descends from the server, daemons included, and the kernel counts their CPU
//! time exactly. No controller is needed for that. If none can be created (no rights, no version 2), the
//! process tree is followed instead.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use procfs::process::Process;

/// Mount points of version 2, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const PROCESSES: &str = "cgroup.procs";
/// A file that exists in every group of version 2 but the root.
const CONTROLLERS: &str = "cgroup.controllers";

/// A control group below the one of this process. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    above: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Group {
    /// A new control group; None if it cannot be created.
    pub(crate) fn new() -> Option<Self> {
        let above = own_group()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = above.join(format!("imas-service-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let group = Self { folder, above };
        group.cpu().is_some().then_some(group)
    }

    /// Calls `start` while this process is in the group, so that a child begins in it. Without the rights to
    /// enter and leave, nothing is started.
    pub(crate) fn within<T>(&self, start: impl FnOnce() -> T) -> std::io::Result<T> {
        enter(&self.folder)?;
        let started = start();
        enter(&self.above)?;
        Ok(started)
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
        // A process that is still exiting keeps the group for a moment.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn enter(folder: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join(PROCESSES), "0")
}

fn own_group() -> Option<PathBuf> {
    let groups = Process::myself().ok()?.cgroups().ok()?;
    let own = groups.into_iter().find(|group| group.hierarchy == 0)?;
    let below = own.pathname.trim_start_matches('/');
    let mount = MOUNTS.iter().map(Path::new).find(|mount| mount.join(CONTROLLERS).exists())?;
    Some(mount.join(below)).filter(|folder| folder.join(PROCESSES).exists())
}
