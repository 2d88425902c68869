// SPDX-License-Identifier: Apache-2.0
//! One container of this node: what its memory is and what of it is free. Nothing is changed and no process is stopped.

use std::path::{Path, PathBuf};

use imas_cli::format::mib;
use imas_linux::container::Container;
use imas_linux::living_thread;
use imas_linux::mapped_files::MappedFiles;
use imas_linux::resident::ResidentMemory;
use imas_linux::serving::wanted::asked_in_vain;
use imas_linux::{process, process_heaps};
use serde::Serialize;

use crate::group::GroupFigures;
use crate::libc::{self, Libc};
use crate::pod_names::{KubeletLink, PodName};

/// Free bytes that are worth a word.
pub(crate) const WORTH_IT: u64 = 8 << 20;
/// Share of its limit from which a container is near it.
const NEAR: f64 = 0.9;

/// One container with all of its processes.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) runtime: Option<&'static str>,
    pub(crate) pod_uid: Option<String>,
    pub(crate) name: Option<PodName>,
    pub(crate) processes: usize,
    /// The largest process.
    #[serde(skip)]
    pub(crate) largest: u32,
    /// Its executable inside its own root.
    pub(crate) program: PathBuf,
    pub(crate) libc: Libc,
    /// Version of glibc, such as `2.36`; None where neither its file nor its memory says it.
    pub(crate) glibc: Option<String>,
    /// Library of a candidate that it runs with.
    pub(crate) library: Option<String>,
    /// Library that the environment of its largest process asks for and that this lacks.
    pub(crate) lost: Option<String>,
    pub(crate) resident: u64,
    /// Resident bytes by kind.
    pub(crate) memory: Kinds,
    /// Bytes in whole pages that glibc's `malloc_trim(0)` would return; None where that cannot be read.
    pub(crate) free: Option<u64>,
    /// Why that cannot be read.
    pub(crate) not_readable: Option<String>,
    pub(crate) group: GroupFigures,
    /// Number of times that kubelet started it anew.
    pub(crate) restarts: Option<u32>,
    pub(crate) advice: String,
}

/// Resident bytes of the processes of a container by kind; the kinds add up to all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Kinds {
    /// Heaps of glibc's malloc: `[heap]` and arenas.
    pub(crate) heaps: u64,
    /// Large blocks of glibc's malloc, the whole heap of another allocator, pools of a runtime.
    pub(crate) anonymous: u64,
    pub(crate) stacks: u64,
    /// Code, read-only data and private copies of it. Processes share some of them, and each counts them.
    pub(crate) files: u64,
    /// The rest.
    pub(crate) other: u64,
}

impl Kinds {
    fn plus(mut self, one: &ResidentMemory) -> Self {
        self.heaps += one.heap + one.arenas;
        self.anonymous += one.anonymous;
        self.stacks += one.stacks;
        self.files += one.files;
        self.other += one.shared + one.hook + one.other;
        self
    }

    fn total(&self) -> u64 {
        self.heaps + self.anonymous + self.stacks + self.files + self.other
    }
}

impl Row {
    /// None if all of its processes ended while they were looked at, or none could be.
    pub(crate) fn of(
        container: &Container,
        pids: &[u32],
        link: Option<&KubeletLink>,
        group: GroupFigures,
    ) -> Option<Self> {
        let sum = Sum::of(pids);
        let (largest, (program, files)) =
            sum.pids.iter().find_map(|pid| Some((*pid, process::mapped_files(*pid).ok()?)))?;
        let mut row = Self {
            id: container.to_string(),
            runtime: container.runtime,
            pod_uid: container.pod_uid.clone(),
            name: link.map(|link| link.name.clone()),
            processes: sum.pids.len(),
            largest,
            libc: Libc::of(&files),
            glibc: libc::glibc_version(&files).or(sum.glibc),
            library: candidate_library(&files),
            lost: asked_in_vain(largest),
            program: inside(largest, program),
            resident: sum.memory.total(),
            memory: sum.memory,
            free: sum.free,
            not_readable: sum.not_readable,
            group,
            restarts: link.and_then(|link| link.restarts),
            advice: String::new(),
        };
        row.advice = advice(row.libc, row.group.nearness(), row.free, row.name.as_ref());
        Some(row)
    }
}

/// Sum of the memory of a container's processes. There may be thousands, so only their ids are kept.
#[derive(Debug, Default)]
struct Sum {
    /// Processes that were looked at, the largest first.
    pids: Vec<u32>,
    memory: Kinds,
    free: Option<u64>,
    /// Version of glibc in the memory of one of them.
    glibc: Option<String>,
    not_readable: Option<String>,
}

impl Sum {
    fn of(pids: &[u32]) -> Self {
        let mut sum = Self::default();
        let mut sizes = vec![];
        for pid in pids {
            let Some(memory) = ResidentMemory::of(*pid) else { continue };
            sum.memory = sum.memory.plus(&memory);
            sizes.push((memory.total(), *pid));
        }
        sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        sum.pids = sizes.into_iter().map(|(_, pid)| pid).collect();
        sum.add_heaps();
        sum
    }

    fn add_heaps(&mut self) {
        for pid in &self.pids {
            match process_heaps::of(*pid) {
                Ok(heaps) => {
                    *self.free.get_or_insert(0) += heaps.bytes.returnable;
                    self.glibc.get_or_insert(heaps.glibc);
                }
                Err(why) => drop(self.not_readable.get_or_insert_with(|| why.to_string())),
            }
        }
    }
}

/// What can be done for a container, or for the containers of a workload, without a trial.
pub(crate) fn advice(libc: Libc, nearness: Option<f64>, free: Option<u64>, name: Option<&PodName>) -> String {
    let near = nearness.filter(|share| *share >= NEAR).map(|_| "near its limit".to_owned());
    let free = free.filter(|bytes| *bytes >= WORTH_IT);
    let what = match (libc, free) {
        (Libc::Musl | Libc::Static, _) => {
            Some("no library can be given; settings of its runtime remain".to_owned())
        }
        (Libc::Glibc, Some(bytes)) => {
            let workload = name.map_or_else(
                || "WORKLOAD".to_owned(),
                |name| format!("{} -n {}", name.workload, name.namespace),
            );
            Some(format!(
                "{} MiB are free: imas kube try {workload} --with glibc:lean-trim",
                mib(bytes as f64)
            ))
        }
        (Libc::Glibc, None) => None,
    };
    near.into_iter().chain(what).collect::<Vec<_>>().join("; ")
}

/// The path inside the process's own root.
fn inside(pid: u32, path: PathBuf) -> PathBuf {
    let Ok(root) = std::fs::read_link(format!("/proc/{}/root", living_thread::of(pid))) else { return path };
    path.strip_prefix(root).map_or_else(|_| path.clone(), |rest| Path::new("/").join(rest))
}

/// The library beside our guard, if the process has that.
fn candidate_library(files: &MappedFiles) -> Option<String> {
    let guard = files.named(imas_linux::environment::GUARD)?;
    let beside = files.iter().filter(|file| *file != guard && file.parent() == guard.parent());
    let names = beside.filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
    Some(names.reduce(|all, name| format!("{all}, {name}")).unwrap_or_else(|| "settings".to_owned()))
}
