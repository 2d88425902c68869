// SPDX-License-Identifier: Apache-2.0
//! A look at the containers of this node, and what of them was not looked at.
//!
//! One container of this node: what its memory is and what of it is free. Nothing is changed and no process is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use imas_cli::format::mib;
use imas_engine::memory_look::fit::MemoryFit;
use imas_engine::memory_look::{AboutProcess, MemoryAnswer, ProcessLook};
use imas_linux::container::Container;
use imas_linux::control_group::GroupLimit;
use imas_linux::heap::figures::{HeapFigures, NotReadable};
use imas_linux::mapped_files::MappedFiles;
use imas_linux::mapping_text::{self, CLibrary, version_in_name};
use imas_linux::resident::ResidentMemory;
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::serving::RealCandidates;
use imas_linux::serving::chooser::asked_in_vain;
use imas_linux::{foreign_process, process, process_trim, running};
use serde::Serialize;

use crate::cli::NodeArgs;
use crate::group::{self, GroupFigures, KubeletLink, NodeGroups, PodName};

/// The result of one look at the node.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Look {
    /// The containers, those that hold most first.
    #[serde(rename = "containers")]
    pub(crate) rows: Vec<Row>,
    /// Containers with processes that were not looked at, those with most first.
    pub(crate) unseen: Vec<Unseen>,
    /// Ids that more than one group claims: none of these is among the containers.
    pub(crate) disputed: Vec<Disputed>,
}

/// A container with processes that were not looked at, or not to the end. Looks at the pod's processes took too long, or a
/// process has more than is read.
#[derive(Debug, Serialize)]
pub(crate) struct Unseen {
    pub(crate) id: String,
    pub(crate) name: Option<PodName>,
    pub(crate) processes: usize,
}

/// Groups with the id of one container.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Disputed {
    pub(crate) id: String,
    pub(crate) groups: Vec<String>,
}

pub(crate) type Members = BTreeMap<Container, Vec<u32>>;

impl Look {
    /// Looks at all containers.
    ///
    /// # Errors
    /// An error where no control groups of version 2 are mounted.
    pub(crate) fn now(args: &NodeArgs) -> Result<Self> {
        let groups = Rc::new(NodeGroups::open(&args.cgroups, args.cgroup_root.as_deref())?);
        let known = Rc::clone(&groups);
        foreign_process::set_containers(move |pid| known.container_of(pid));
        let links = group::pod_names(&args.logs);
        let (mut members, disputed) = members(&groups)?;
        let mut look = Self { disputed, ..Self::default() };
        let has_runtimes = !args.metrics && args.listen.is_none();
        let is_sandbox = |container: &Container| {
            container.pod_uid.is_some() && !links.is_empty() && !links.contains_key(&container.id)
        };
        members.retain(|container, _| !is_sandbox(container));
        for (container, pids) in members {
            let link = links.get(&container.id);
            look.add(&container, &pids, (link, has_runtimes), groups.figures(&container));
        }
        look.rows.sort_by_key(|row| std::cmp::Reverse(row.resident));
        look.unseen.sort_by_key(|one| std::cmp::Reverse(one.processes));
        Ok(look)
    }

    fn add(
        &mut self,
        container: &Container,
        pids: &[u32],
        (link, has_runtimes): (Option<&KubeletLink>, bool),
        figures: GroupFigures,
    ) {
        drop(foreign_process::take_unseen());
        self.rows.extend(Row::of(container, pids, (link, has_runtimes), figures));
        let unseen: BTreeSet<u32> = foreign_process::take_unseen();
        let processes = pids.iter().filter(|pid| unseen.contains(pid)).count();
        if processes > 0 {
            let name = link.map(|link| link.name.clone());
            self.unseen.push(Unseen { id: container.to_string(), name, processes });
        }
    }
}

/// The processes of all containers, and the ids that more than one group claims.
pub(crate) fn members(groups: &NodeGroups) -> Result<(Members, Vec<Disputed>)> {
    let mut members = Members::new();
    for pid in process::pids()? {
        if let Some(container) = groups.container_of(pid) {
            members.entry(container).or_default().push(pid);
        }
    }
    let disputed = disputed(&mut members);
    Ok((members, disputed))
}

/// Takes the containers away whose id another group has too: one of them has it wrongly, and its name does not say which.
fn disputed(members: &mut Members) -> Vec<Disputed> {
    let mut claims = BTreeMap::<String, Vec<String>>::new();
    for container in members.keys() {
        claims.entry(container.id.clone()).or_default().push(container.group.clone());
    }
    claims.retain(|_, groups| groups.len() > 1);
    members.retain(|container, _| !claims.contains_key(&container.id));
    claims.into_iter().map(|(id, groups)| Disputed { id, groups }).collect()
}

/// Free bytes that are worth a word.
pub(super) const WORTH_IT: u64 = 8 << 20;
/// Share of its limit from which a container is near it.
const NEAR: f64 = 0.9;

/// One container with all of its processes.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) runtime: Option<&'static str>,
    pub(super) pod_uid: Option<String>,
    pub(super) name: Option<PodName>,
    pub(super) processes: usize,
    /// The largest process.
    #[serde(skip)]
    pub(super) largest: u32,
    /// Its executable inside its own root.
    pub(super) program: PathBuf,
    pub(super) libc: Libc,
    /// Version of glibc, such as `2.36`; None where neither its file nor its memory says it.
    pub(super) glibc: Option<String>,
    /// Library of a candidate that it runs with.
    pub(super) library: Option<String>,
    /// Library that the environment of its largest process asks for and that this lacks.
    pub(super) lost: Option<String>,
    pub(super) resident: u64,
    /// Resident bytes by kind.
    pub(super) memory: Kinds,
    /// Bytes in whole pages that glibc's `malloc_trim(0)` would return; None where that cannot be read.
    pub(super) free: Option<u64>,
    /// Why that cannot be read.
    pub(super) not_readable: Option<String>,
    pub(super) group: GroupFigures,
    /// Verdict on the largest process, its parts, and whether the container fits its limit.
    #[serde(flatten)]
    pub(super) answer: Option<MemoryAnswer>,
    /// Number of times that kubelet started it anew.
    pub(super) restarts: Option<u32>,
    pub(super) advice: String,
}

/// Resident bytes of the processes of a container by kind; the kinds add up to all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Kinds {
    /// Heaps of glibc's malloc: `[heap]` and arenas.
    pub(super) heaps: u64,
    /// Large blocks of glibc's malloc, the whole heap of another allocator, pools of a runtime.
    pub(super) anonymous: u64,
    pub(super) stacks: u64,
    /// Code, read-only data and private copies of it. Processes share some of them, and each counts them.
    pub(super) files: u64,
    /// The rest.
    pub(super) other: u64,
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
    pub(super) fn of(
        container: &Container,
        pids: &[u32],
        (link, has_runtimes): (Option<&KubeletLink>, bool),
        group: GroupFigures,
    ) -> Option<Self> {
        let mut sum = Sum::of(pids);
        let (largest, (program, files)) =
            sum.pids.iter().find_map(|pid| Some((*pid, process::mapped_files(*pid).ok()?)))?;
        let limit = GroupLimit::of(&group.memory, pids);
        let answer = sum.largest.take().filter(|(pid, _)| *pid == largest);
        let answer = answer.and_then(|(_, heaps)| answer_of(largest, limit, heaps, has_runtimes));
        let mut row = Self {
            id: container.to_string(),
            runtime: container.runtime,
            pod_uid: container.pod_uid.clone(),
            name: link.map(|link| link.name.clone()),
            processes: sum.pids.len(),
            largest,
            libc: Libc::of(&files),
            glibc: glibc_version(&files).or(sum.glibc),
            library: candidate_library(&files),
            lost: asked_in_vain(largest),
            program: inside(largest, program),
            resident: sum.memory.total(),
            memory: sum.memory,
            free: sum.free,
            not_readable: sum.not_readable,
            group,
            answer,
            restarts: link.and_then(|link| link.restarts),
            advice: String::new(),
        };
        row.advice = advice(row.libc, (row.group.memory.nearness(), row.fit()), row.free, row.name.as_ref());
        Some(row)
    }

    /// Whether it fits its limit.
    pub(super) fn fit(&self) -> Option<&MemoryFit> {
        self.answer.as_ref()?.limit.as_ref()
    }
}

/// Answer of a look at the largest process. `has_runtimes`: its executable is read, which a look at each minute could not
/// afford; a JVM is known by its counters.
fn answer_of(
    pid: u32,
    limit: Option<GroupLimit>,
    heaps: Result<HeapFigures, NotReadable>,
    has_runtimes: bool,
) -> Option<MemoryAnswer> {
    let runtime = has_runtimes.then(|| RunningRuntime::of(&running::one(pid)?)).flatten();
    let about = AboutProcess {
        pid,
        runtime: runtime.map(|runtime| (runtime.found.runtime, runtime.heap_limit())),
        threads: process::threads(pid).unwrap_or(0),
        limit,
        ..AboutProcess::default()
    };
    // No catalogue is here: a candidate is advised for the workload.
    Some(ProcessLook::with_heaps(about, heaps).ok()?.answer(&RealCandidates::default()))
}

/// Sum of the memory of a container's processes. There may be thousands, so only their ids are kept.
#[derive(Debug, Default)]
struct Sum {
    /// Processes that were looked at, the largest first.
    pids: Vec<u32>,
    memory: Kinds,
    free: Option<u64>,
    /// The largest process with a look at its heaps.
    largest: Option<(u32, Result<HeapFigures, NotReadable>)>,
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
            let heaps = process_trim::heaps_of(*pid);
            match &heaps {
                Ok(heaps) => {
                    *self.free.get_or_insert(0) += heaps.bytes.returnable;
                    self.glibc.get_or_insert_with(|| heaps.glibc.clone());
                }
                Err(why) => drop(self.not_readable.get_or_insert_with(|| why.to_string())),
            }
            self.largest.get_or_insert((*pid, heaps));
        }
    }
}

/// Advice for a container, or for the containers of a workload, that takes no trial.
pub(super) fn advice(
    libc: Libc,
    (nearness, fit): (Option<f64>, Option<&MemoryFit>),
    free: Option<u64>,
    name: Option<&PodName>,
) -> String {
    let fits = fit.and_then(MemoryFit::advice);
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
            Some(format!("{} MiB are free: imas kube try {workload} --with glibc:arena1", mib(bytes as f64)))
        }
        (Libc::Glibc, None) => None,
    };
    fits.into_iter().chain(near).chain(what).collect::<Vec<_>>().join("; ")
}

/// The path inside the process's own root.
fn inside(pid: u32, path: PathBuf) -> PathBuf {
    let Ok(root) = std::fs::read_link(format!("/proc/{}/root", mapping_text::living_thread(pid))) else {
        return path;
    };
    path.strip_prefix(root).map_or_else(|_| path.clone(), |rest| Path::new("/").join(rest))
}

/// The library beside our guard, if the process has that.
fn candidate_library(files: &MappedFiles) -> Option<String> {
    let guard = files.named(imas_linux::environment::GUARD)?;
    let beside = files.iter().filter(|file| *file != guard && file.parent() == guard.parent());
    let names = beside.filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
    Some(names.reduce(|all, name| format!("{all}, {name}")).unwrap_or_else(|| "settings".to_owned()))
}

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Libc {
    Glibc,
    Musl,
    /// None is mapped.
    Static,
}

impl Libc {
    /// The library among the files that a process has mapped.
    pub(super) fn of(files: &MappedFiles) -> Self {
        match files.c_library() {
            Some(CLibrary::Musl) => Self::Musl,
            Some(CLibrary::Glibc) => Self::Glibc,
            None => Self::Static,
        }
    }
}

/// Version of glibc in the name of its file, `libc-2.31.so`. From 2.34 on the name has none.
fn glibc_version(files: &MappedFiles) -> Option<String> {
    files.iter().find_map(version_in_name).map(str::to_owned)
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
            Self::Static => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_two_groups_claim_counts_for_nobody() {
        let container = |pod: &str, id: &str| Container {
            pod_uid: Some(pod.into()),
            id: id.into(),
            runtime: None,
            group: format!("/kubepods/pod{pod}/{id}"),
        };
        let mut members = Members::new();
        for (pod, id, pid) in [("a", "1", 7), ("b", "1", 8), ("b", "2", 9), ("a", "1", 10)] {
            members.entry(container(pod, id)).or_default().push(pid);
        }
        let groups = ["/kubepods/poda/1", "/kubepods/podb/1"].map(str::to_owned).to_vec();
        assert_eq!(disputed(&mut members), [Disputed { id: "1".into(), groups }]);
        assert_eq!(members.into_keys().collect::<Vec<_>>(), [container("b", "2")]);
    }

    #[test]
    fn the_library_is_known_by_its_file() {
        let of = |files: &[&str]| Libc::of(&files.iter().collect());
        assert_eq!(of(&["/usr/bin/x", "/usr/lib/x86_64-linux-gnu/libc.so.6"]), Libc::Glibc);
        assert_eq!(of(&["/lib/libc-2.31.so"]), Libc::Glibc);
        assert_eq!(of(&["/lib/ld-musl-x86_64.so.1"]), Libc::Musl);
        assert_eq!(of(&["/usr/lib/x86_64-linux-musl/libc.so"]), Libc::Musl);
        assert_eq!(of(&["/server"]), Libc::Static);
    }

    #[test]
    fn the_version_is_in_the_name_of_older_files() {
        let of = |file: &str| glibc_version(&[file].into_iter().collect());
        assert_eq!(of("/lib/x86_64-linux-gnu/libc-2.31.so").as_deref(), Some("2.31"));
        for none in ["/lib/libc.so.6", "/x/libc-2.\u{1b}.so", "/x/libc-client.so", "/x/libc-2.31.so.1"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
