// SPDX-License-Identifier: Apache-2.0
//! Control groups: how near its limits the group of this process is, and which services are near theirs.

use std::path::{Path, PathBuf};

use imas_core::decision::Conditions;
use procfs::process::Process;
use procfs::{CpuPressure, Current as _, FromRead, MemoryPressure, ProcessCGroup};
use serde::{Deserialize, Serialize};

use crate::standstill::age_s;

/// Folder where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// Folder of the memory groups of version 1.
const ROOT_1: &str = "/sys/fs/cgroup/memory";
/// Version 1 writes a number near 2^63 where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// Names of the files of a version.
struct Files {
    limit: &'static str,
    used: &'static str,
    highest: &'static str,
    /// File with the number of kills.
    events: &'static str,
    /// Key in `memory.stat` of the page cache that is given back before anybody is short.
    cache: &'static str,
    /// Keys there of what can be swapped out at best: anonymous and shared memory.
    written: [&'static str; 2],
    /// The limit on swapping, and whether it counts memory too.
    swap: (&'static str, bool),
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    highest: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
    cache: "total_inactive_file",
    written: ["total_rss", "total_shmem"],
    swap: ("memory.memsw.limit_in_bytes", true),
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    highest: "memory.peak",
    events: "memory.events",
    cache: "inactive_file",
    written: ["anon", "shmem"],
    swap: ("memory.swap.max", false),
};

/// Above this the kernel does not refuse: it makes who asks for more wait and give back.
const BRAKE: Files = Files { limit: "memory.high", ..VERSION_2 };

/// The machine's conditions, and the conditions in this process' own group: its share of the memory limit, and its
/// waiting where that is longer than the machine's (a limit of CPU time makes the group wait while the
/// machine idles).
#[must_use]
pub fn narrowed(machine: Conditions) -> Conditions {
    let group = own(is_version_2, Path::new(ROOT));
    let file = |name: &str| group.as_ref().map(|group| group.join(name));
    let pressure = file("memory.pressure").and_then(|file| MemoryPressure::from_file(file).ok());
    let cpu = file("cpu.pressure").and_then(|file| CpuPressure::from_file(file).ok());
    Conditions {
        group_memory_used: memory_used(),
        cpu_some_pct: longer(machine.cpu_some_pct, cpu.map(|psi| psi.some.avg60)),
        memory_some_pct: longer(machine.memory_some_pct, pressure.as_ref().map(|psi| psi.some.avg60)),
        memory_full_pct: longer(machine.memory_full_pct, pressure.as_ref().map(|psi| psi.full.avg60)),
        ..machine
    }
}

fn longer(machine: Option<f64>, group: Option<f32>) -> Option<f64> {
    let group = group.map(f64::from);
    machine.into_iter().chain(group).reduce(f64::max)
}

fn is_version_2(group: &ProcessCGroup) -> bool {
    group.hierarchy == 0
}

fn is_of_memory(group: &ProcessCGroup) -> bool {
    group.controllers.iter().any(|name| name == "memory")
}

/// Folder of the group that is meant; None where there are no control groups.
fn own(is_meant: impl Fn(&ProcessCGroup) -> bool, root: &Path) -> Option<PathBuf> {
    folder_of(&Process::myself().ok()?, is_meant, root)
}

fn folder_of(process: &Process, is_meant: impl Fn(&ProcessCGroup) -> bool, root: &Path) -> Option<PathBuf> {
    let own = process.cgroups().ok()?.into_iter().find(is_meant)?;
    Some(root.join(own.pathname.trim_start_matches('/')))
}

/// Memory of a control group of either version, as the kernel counts it. What is not there is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMemory {
    /// Bytes that cannot be given back at once; page cache that can is left out.
    pub used: Option<u64>,
    /// Bytes of page cache that is given back before anybody is short.
    pub cache: Option<u64>,
    /// Bytes of anonymous and shared memory: neither page cache nor the kernel's.
    pub written: Option<u64>,
    /// Whether the kernel may swap it out instead of killing.
    pub can_swap: bool,
    /// Most bytes that it ever had, page cache included: Linux 5.19 and later, and version 1.
    pub highest: Option<u64>,
    /// Most bytes that it may have; None without a limit.
    pub limit: Option<u64>,
    /// Processes of it that the kernel has killed for want of memory.
    pub oom_kills: Option<u64>,
}

impl GroupMemory {
    /// Memory of the group with this folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let files = [&VERSION_2, &VERSION_1].into_iter().find(|files| folder.join(files.used).exists());
        files.map_or_else(Self::default, |files| Self::read(folder, files))
    }

    fn read(folder: &Path, files: &Files) -> Self {
        let stat = text(folder, "memory.stat");
        let cache = keyed(&stat, files.cache);
        let [anonymous, shared] = files.written.map(|key| keyed(&stat, key));
        let limit = limit(folder, files);
        Self {
            written: anonymous.map(|bytes| bytes.saturating_add(shared.unwrap_or(0))),
            can_swap: has_swap() && may_swap(folder, files, limit),
            used: number(folder, files.used).map(|used| used.saturating_sub(cache.unwrap_or(0))),
            cache,
            highest: number(folder, files.highest),
            limit,
            oom_kills: keyed(&text(folder, files.events), "oom_kill"),
        }
    }

    /// Share of the limit that is used.
    #[must_use]
    pub fn nearness(&self) -> Option<f64> {
        Some(self.used? as f64 / self.limit? as f64)
    }
}

/// Whether the machine has swap.
fn has_swap() -> bool {
    procfs::Meminfo::current().is_ok_and(|memory| memory.swap_total > 0)
}

/// Whether a group may swap; where nothing limits that, it may.
fn may_swap(folder: &Path, files: &Files, limit: Option<u64>) -> bool {
    let (file, is_of_both) = files.swap;
    let held = if is_of_both { limit.unwrap_or(0) } else { 0 };
    number(folder, file).is_none_or(|most| most > held)
}

fn text(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default()
}

fn number(folder: &Path, file: &str) -> Option<u64> {
    text(folder, file).trim().parse().ok()
}

/// The limit of a group; `max`, which is no number, means none.
fn limit(folder: &Path, files: &Files) -> Option<u64> {
    number(folder, files.limit).filter(|limit| (1..NO_LIMIT).contains(limit))
}

/// Number behind a word at the begin of a line.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Limit on the memory of a group, with its use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupLimit {
    /// Bytes that the group may have.
    pub limit: u64,
    /// Bytes that it has and that cannot be given back.
    pub used: u64,
    /// Bytes of page cache that could go.
    pub cache: u64,
    /// Bytes of anonymous and shared memory, where they are counted.
    pub written: Option<u64>,
    /// Whether the kernel may swap it out instead of killing.
    pub can_swap: bool,
    /// Most bytes that it had, page cache included.
    pub highest: Option<u64>,
    /// Processes of it that the kernel has killed for want of memory.
    pub oom_kills: u64,
    /// Number of its processes.
    pub processes: usize,
    /// Age of its oldest process, seconds: the group and its figures are no younger.
    pub age_s: Option<f64>,
}

impl GroupLimit {
    /// Limit of a group with these processes; None where it has no limit.
    #[must_use]
    pub fn of(memory: &GroupMemory, processes: &[u32]) -> Option<Self> {
        let ages = processes.iter().filter_map(|pid| age_s(crate::process::start_ticks(*pid).ok()?));
        Some(Self {
            limit: memory.limit?,
            used: memory.used?,
            cache: memory.cache.unwrap_or(0),
            written: memory.written,
            can_swap: memory.can_swap,
            highest: memory.highest,
            oom_kills: memory.oom_kills.unwrap_or(0),
            processes: processes.len(),
            age_s: ages.max_by(f64::total_cmp),
        })
    }
}

/// Returns the tightest limit on the memory of a process, by its group and those above it; `None` without one. In a
/// container the groups of other containers do not show.
#[must_use]
pub fn limit_of(pid: u32) -> Option<GroupLimit> {
    let folder = limited_group(pid)?;
    GroupLimit::of(&GroupMemory::of(&folder), &processes(&folder))
}

/// Folder of the group whose limit leaves a process least; `None` without one.
#[must_use]
pub fn limited_group(pid: u32) -> Option<PathBuf> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let (root_2, root_1) = (Path::new(ROOT), Path::new(ROOT_1));
    let seen = |is_meant: fn(&ProcessCGroup) -> bool, root: &Path| {
        let group = folder_of(&process, is_meant, root)?;
        (own(is_meant, root).as_ref() == Some(&group) || is_below(&group)).then_some(group)
    };
    let second = seen(is_version_2, root_2).and_then(|group| tightest(root_2, &group));
    second.or_else(|| tightest(root_1, &seen(is_of_memory, root_1)?))
}

/// Whether a group of another process lies where this process can see it. The path of one beside our container leads
/// upwards, or to nothing, and what is found above would be our own container.
fn is_below(group: &Path) -> bool {
    !group.components().any(|part| part == std::path::Component::ParentDir) && group.is_dir()
}

fn tightest(root: &Path, group: &Path) -> Option<PathBuf> {
    let above = group.ancestors().take_while(|folder| folder.starts_with(root));
    let one = |folder| use_of(folder, &VERSION_2).or_else(|| use_of(folder, &VERSION_1));
    let uses = above.filter_map(|folder| Some((one(folder)?, folder)));
    let least = uses.min_by_key(|(one, _)| one.limit.saturating_sub(one.used));
    least.map(|(_, folder)| folder.to_owned())
}

/// Bytes that the tightest limit on this process' memory leaves, one that only slows it down too, page cache
/// that can be given back among them; None without a limit.
#[must_use]
pub fn memory_left() -> Option<u64> {
    let root = Path::new(ROOT);
    let braked = own(is_version_2, root).map(|group| up(root, &group, &BRAKE)).unwrap_or_default();
    uses().into_iter().chain(braked).map(|one| one.limit.saturating_sub(one.used)).min()
}

/// The tightest limit on this process' memory, in bytes; None without one.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    uses().into_iter().map(|one| one.limit).min()
}

/// Number of processes that the kernel has killed for want of memory in a group, and where it is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryKills {
    file: PathBuf,
    count: u64,
}

impl MemoryKills {
    /// The kills in this process' group until now; None where nothing limits its memory, or nothing counts them.
    #[must_use]
    pub fn now() -> Option<Self> {
        memory_limit()?;
        let (root_2, root_1) = (Path::new(ROOT), Path::new(ROOT_1));
        let second = own(is_version_2, root_2).and_then(|group| Self::of(root_2, &group, "memory.events"));
        let first = || Self::of(root_1, &own(is_of_memory, root_1)?, "memory.oom_control");
        second.or_else(first)
    }

    /// In a container the path may be a path of the machine outside: then what is mounted there counts.
    fn of(root: &Path, group: &Path, name: &str) -> Option<Self> {
        let groups = group.ancestors().take_while(|folder| folder.starts_with(root));
        let mut files = groups.map(|folder| folder.join(name));
        files.find_map(|file| Some(Self { count: kills(&file)?, file }))
    }

    /// Whether there were more since. A group that is gone shows none.
    #[must_use]
    pub fn have_grown(&self) -> bool {
        kills(&self.file).is_some_and(|now| now > self.count)
    }
}

fn kills(file: &Path) -> Option<u64> {
    keyed(&std::fs::read_to_string(file).ok()?, "oom_kill")
}

fn memory_used() -> Option<f64> {
    highest(&uses())
}

/// Highest share of its limit that a group uses; None without a limit.
fn highest(uses: &[Use]) -> Option<f64> {
    uses.iter().map(|one| one.used as f64 / one.limit as f64).max_by(f64::total_cmp)
}

/// Memory of a group that has a limit, bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Use {
    /// Bytes that cannot be given back. Page cache is left out: a group that reads files fills its limit with
    /// it and is short of nothing.
    used: u64,
    limit: u64,
}

/// Use of the groups that limit this process' memory.
fn uses() -> Vec<Use> {
    let (root_2, root_1) = (Path::new(ROOT), Path::new(ROOT_1));
    let second = own(is_version_2, root_2).map(|group| up(root_2, &group, &VERSION_2));
    let first = || own(is_of_memory, root_1).map(|group| up(root_1, &group, &VERSION_1));
    second.filter(|uses| !uses.is_empty()).or_else(first).unwrap_or_default()
}

/// The group and the groups above it. In a container the path may be the one on the machine outside: then
/// what is mounted there speaks for it.
fn up(root: &Path, group: &Path, files: &Files) -> Vec<Use> {
    let above = group.ancestors().take_while(|folder| folder.starts_with(root));
    above.filter_map(|folder| use_of(folder, files)).collect()
}

/// Most services that are looked at, and most processes of one group.
const MOST_SERVICES: usize = 1024;
const MOST_PROCESSES: usize = 4096;
/// Most groups of one service that are looked at, and how far below it they lie.
const MOST_GROUPS: usize = 64;
const DEEPEST: u32 = 2;
/// Folder of the services of the machine.
const SERVICES: &str = "system.slice";

/// A service's group with a limit of memory, one that only slows it down too.
#[derive(Debug, Clone, PartialEq)]
pub struct NearLimit {
    /// Folder of the group.
    pub folder: PathBuf,
    /// Share of the limit that is used.
    pub used: f64,
}

/// The groups of services that have a limit of memory.
#[must_use]
pub fn services_near_limits() -> Vec<NearLimit> {
    [ROOT, ROOT_1].into_iter().flat_map(|root| services_below(&Path::new(root).join(SERVICES))).collect()
}

fn services_below(slice: &Path) -> Vec<NearLimit> {
    let entries = std::fs::read_dir(slice).into_iter().flatten().flatten().take(MOST_SERVICES);
    let services =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "service"));
    services
        .filter_map(|folder| {
            let uses: Vec<Use> = [&VERSION_2, &BRAKE, &VERSION_1]
                .into_iter()
                .filter_map(|files| use_of(&folder, files))
                .collect();
            Some(NearLimit { used: highest(&uses)?, folder })
        })
        .collect()
}

/// Processes of a group and of the groups in it: a service with delegation has its processes in such ones.
#[must_use]
pub fn processes(group: &Path) -> Vec<u32> {
    let mut found = vec![];
    let mut groups = vec![(group.to_owned(), 0)];
    let mut looked = 0;
    while let Some((folder, depth)) = groups.pop() {
        let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let room = MOST_PROCESSES - found.len();
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).take(room));
        looked += 1;
        if looked == MOST_GROUPS || found.len() == MOST_PROCESSES {
            break;
        }
        if depth < DEEPEST {
            let inner = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let inner = inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            groups.extend(inner.take(MOST_GROUPS).map(|entry| (entry.path(), depth + 1)));
        }
    }
    found
}

fn use_of(group: &Path, files: &Files) -> Option<Use> {
    let limit = limit(group, files)?;
    let cache = keyed(&text(group, "memory.stat"), files.cache).unwrap_or(0);
    Some(Use { used: number(group, files.used)?.saturating_sub(cache), limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, files: &Files, limit: &str, used: &str, stat: &str) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(files.limit), limit).unwrap();
        std::fs::write(folder.join(files.used), used).unwrap();
        std::fs::write(folder.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn page_cache_does_not_count_and_the_tightest_group_does() {
        let place = tempfile::tempdir().unwrap();
        let (outer, inner) = (place.path().join("outer"), place.path().join("outer/inner"));
        group(&outer, &VERSION_2, "1000\n", "900\n", "anon 500\ninactive_file 400\n");
        group(&inner, &VERSION_2, "max\n", "900\n", "inactive_file 0\n");
        assert_eq!(highest(&up(place.path(), &inner, &VERSION_2)), Some(0.5), "of 900 bytes 400 are cache");
        group(&inner, &VERSION_2, "1000\n", "700\n", "");
        assert_eq!(highest(&up(place.path(), &inner, &VERSION_2)), Some(0.7));
    }

    #[test]
    fn services_with_a_limit_are_found_with_what_they_use_of_the_tighter_one() {
        let place = tempfile::tempdir().unwrap();
        let of = |name: &str| place.path().join(name);
        group(&of("a.service"), &VERSION_2, "1000\n", "500\n", "");
        group(&of("a.service"), &BRAKE, "600\n", "500\n", "");
        group(&of("b.service"), &VERSION_2, "max\n", "500\n", "");
        group(&of("c.mount"), &VERSION_2, "500\n", "500\n", "");
        std::fs::write(of("a.service").join("cgroup.procs"), "12\n13\n").unwrap();
        let found = services_below(place.path());
        assert_eq!(found, [NearLimit { folder: of("a.service"), used: 500.0 / 600.0 }]);
        assert_eq!((processes(&of("a.service")), processes(&of("none"))), (vec![12, 13], vec![]));
        let inner = of("a.service").join("supervised/worker");
        std::fs::create_dir_all(inner.join("too/deep")).unwrap();
        std::fs::write(inner.join("cgroup.procs"), "14\n").unwrap();
        std::fs::write(inner.join("too/deep/cgroup.procs"), "15\n").unwrap();
        assert_eq!(processes(&of("a.service")), [12, 13, 14], "those of inner groups, two levels down");
    }

    #[test]
    fn a_limit_that_only_slows_down_is_read_too() {
        let place = tempfile::tempdir().unwrap();
        group(place.path(), &BRAKE, "1000\n", "700\n", "inactive_file 100\n");
        assert_eq!(up(place.path(), place.path(), &BRAKE), [Use { used: 600, limit: 1000 }]);
        assert_eq!(up(place.path(), place.path(), &VERSION_2), [], "not a limit that refuses");
    }

    #[test]
    fn figures_of_both_versions_are_read_and_what_is_missing_is_not_known() {
        let place = tempfile::tempdir().unwrap();
        let of = |name: &str, files: &[(&str, &str)]| {
            let folder = place.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in files {
                std::fs::write(folder.join(file), text).unwrap();
            }
            GroupMemory::of(&folder)
        };
        let expected = GroupMemory {
            used: Some(500),
            cache: Some(400),
            written: Some(500),
            can_swap: has_swap(),
            highest: Some(950),
            limit: Some(1000),
            oom_kills: Some(2),
        };
        let second = of(
            "second",
            &[
                ("memory.current", "900\n"),
                ("memory.max", "1000\n"),
                ("memory.peak", "950\n"),
                ("memory.stat", "anon 500\ninactive_file 400\ninactive_file_x 1\n"),
                ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
            ],
        );
        let first = of(
            "first",
            &[
                ("memory.usage_in_bytes", "900"),
                ("memory.limit_in_bytes", "1000"),
                ("memory.max_usage_in_bytes", "950"),
                ("memory.stat", "inactive_file 4\ntotal_inactive_file 400\ntotal_rss 450\ntotal_shmem 50\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ],
        );
        assert_eq!((second, first, second.nearness()), (expected, expected, Some(0.5)));
        assert_eq!(of("none", &[]), GroupMemory::default());
        for (files, file, most, expected) in [
            (&VERSION_2, "memory.swap.max", "0\n", false),
            (&VERSION_2, "memory.swap.max", "max\n", true),
            (&VERSION_2, "memory.swap.max", "4096\n", true),
            (&VERSION_1, "memory.memsw.limit_in_bytes", "1000\n", false),
            (&VERSION_1, "memory.memsw.limit_in_bytes", "2000\n", true),
        ] {
            std::fs::write(place.path().join(file), most).unwrap();
            assert_eq!(may_swap(place.path(), files, Some(1000)), expected, "{file}: {most}");
        }
        let limit = GroupLimit::of(&second, &[std::process::id(), u32::MAX]).unwrap();
        assert_eq!((limit.limit, limit.highest, limit.processes), (1000, Some(950), 2));
        assert!(limit.age_s.is_some());
        assert_eq!(GroupLimit::of(&GroupMemory { limit: None, ..second }, &[]), None);
    }

    #[test]
    fn groups_beside_our_own_are_not_looked_for_above() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("inner")).unwrap();
        assert!(is_below(&place.path().join("inner")));
        assert!(!is_below(&place.path().join("gone")));
        assert!(!is_below(&place.path().join("inner/../inner")), "it leads out of what is mounted");
    }

    #[test]
    fn version_1_has_a_number_for_no_limit() {
        let place = tempfile::tempdir().unwrap();
        group(place.path(), &VERSION_1, "9223372036854771712", "5", "total_inactive_file 1");
        assert_eq!(highest(&up(place.path(), place.path(), &VERSION_1)), None);
        group(place.path(), &VERSION_1, "10", "5", "inactive_file 5\ntotal_inactive_file 1");
        assert_eq!(highest(&up(place.path(), place.path(), &VERSION_1)), Some(0.4));
    }

    #[test]
    fn kills_for_want_of_memory_are_counted_by_the_nearest_group_that_counts() {
        let place = tempfile::tempdir().unwrap();
        let (inner, events) = (place.path().join("not-mounted"), place.path().join("memory.events"));
        let write = |count: u32| {
            std::fs::write(&events, format!("max 9\noom 5\noom_kill {count}\noom_group_kill 0\n")).unwrap();
        };
        assert_eq!(MemoryKills::of(place.path(), &inner, "memory.events"), None);
        write(2);
        let kills = MemoryKills::of(place.path(), &inner, "memory.events").unwrap();
        assert_eq!(kills, MemoryKills { file: events.clone(), count: 2 });
        assert!(!kills.have_grown());
        write(3);
        assert!(kills.have_grown());
        std::fs::remove_file(&events).unwrap();
        assert!(!kills.have_grown(), "the group is gone");
    }

    #[test]
    fn the_longer_period_counts() {
        assert_eq!(longer(Some(1.0), Some(5.0)), Some(5.0));
        assert_eq!((longer(Some(1.0), None), longer(None, None)), (Some(1.0), None));
    }
}
