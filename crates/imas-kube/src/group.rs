// SPDX-License-Identifier: Apache-2.0
//! Figures of a container's control group, by the files of the kernel.
//!
//! Names of a node's containers, by kubelet's links to their logs: `POD_NAMESPACE_CONTAINER-ID.log`, which lead to
//! `RESTARTS.log`. No right on the apiserver is needed.

use std::collections::{BTreeMap, VecDeque};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::container::{self, Container, ContainerRoots};
use imas_linux::control_group::GroupMemory;
use serde::Serialize;

/// Most folders that are looked through.
const MOST: usize = 65_536;

/// The kernel's counts of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct GroupFigures {
    #[serde(flatten)]
    pub(crate) memory: GroupMemory,
    /// CPU time of its processes, those that ended among them, seconds.
    pub(crate) cpu_s: Option<f64>,
    /// Share of the periods in which its limit of CPU time held it up.
    pub(crate) throttled: Option<f64>,
}

impl GroupFigures {
    /// Reads the files of a folder. What is not there is not known.
    pub(crate) fn read(folder: &Path) -> Self {
        let cpu = std::fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
        let periods = keyed(&cpu, "nr_periods").filter(|periods| *periods > 0);
        Self {
            memory: GroupMemory::of(folder),
            cpu_s: keyed(&cpu, "usage_usec").map(|used| used as f64 / 1e6),
            throttled: periods.and_then(|all| Some(keyed(&cpu, "nr_throttled")? as f64 / all as f64)),
        }
    }
}

/// Groups of this node.
///
/// In a container with a namespace of control groups the kernel shows the groups of others as paths from there, which
/// begin with `..`. Names in them alone would say nothing of where a group lies, so they are joined with our own place.
#[derive(Debug)]
pub(crate) struct NodeGroups {
    top: PathBuf,
    roots: ContainerRoots,
    /// Path of the root of our namespace below the top; None where we are not below it.
    own: Option<String>,
}

impl NodeGroups {
    /// The groups that are mounted at a folder. `root` is kubelet's `cgroupRoot`.
    ///
    /// # Errors
    /// An error where no control groups of version 2 are mounted.
    pub(crate) fn open(folder: &Path, root: Option<&str>) -> Result<Self> {
        let top = unified(folder)?;
        let own = own_root(&top);
        Ok(Self { top, roots: root.map_or_else(ContainerRoots::default, ContainerRoots::at), own })
    }

    /// The container of a process that lives.
    pub(crate) fn container_of(&self, pid: u32) -> Option<Container> {
        self.roots.container(&self.absolute(&container::group_of(pid)?)?)
    }

    /// Figures that the kernel counts of a container.
    pub(crate) fn figures(&self, container: &Container) -> GroupFigures {
        GroupFigures::read(&self.top.join(container.group.trim_start_matches('/')))
    }

    /// The path below the top of a group that we see by this one.
    fn absolute(&self, seen: &str) -> Option<String> {
        let Some(own) = &self.own else {
            return Some(seen.to_owned()).filter(|seen| !seen.starts_with("/.."));
        };
        let mut parts: Vec<&str> = own.split('/').filter(|part| !part.is_empty()).collect();
        for part in seen.split('/').filter(|part| !part.is_empty()) {
            if part == ".." {
                parts.pop()?;
            } else {
                parts.push(part);
            }
        }
        Some(format!("/{}", parts.join("/")))
    }
}

/// The folder where the groups of version 2 are mounted.
fn unified(folder: &Path) -> Result<PathBuf> {
    let places = [folder.to_owned(), folder.join("unified")];
    places.into_iter().find(|place| place.join("cgroup.procs").exists()).ok_or_else(|| {
        Hinted::error(
            format!("{}: no control groups of version 2 are mounted there", folder.display()),
            "'mount -t cgroup2' shows where they are; a node without any starts with systemd.unified_cgroup_hierarchy=1",
        )
    })
}

/// The root of our namespace of groups, by the group that has this process. Those near the top are asked first: what a
/// container makes below its own group does not hide ours.
fn own_root(top: &Path) -> Option<String> {
    let pid = std::process::id().to_string();
    let has_us = |folder: &Path| {
        let members = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        members.lines().any(|member| member == pid)
    };
    let seen = container::group_of(std::process::id())?;
    let seen = Path::new(seen.trim_start_matches('/'));
    if has_us(&top.join(seen)) {
        return Some(String::new());
    }
    let mut waiting = VecDeque::from([top.to_owned()]);
    for _ in 0..MOST {
        let folder = waiting.pop_front()?;
        if has_us(&folder) {
            let path = folder.strip_prefix(top).ok()?.to_str()?;
            return Some(path.strip_suffix(seen.to_str()?)?.trim_end_matches('/').to_owned());
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(below.map(|entry| entry.path()).take(MOST.saturating_sub(waiting.len())));
    }
    None
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Most links that are read: a node has some hundred pods.
const MOST_LINKS: usize = 20_000;
/// Signs in the random part of a pod's name.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Minutes since 1970 that a CronJob adds to the name of each Job, in the years 2020 to 2064. No date such as
/// 20261126 is among them.
const MINUTES: std::ops::Range<u32> = 26_300_000..50_000_000;

/// Names of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PodName {
    pub(super) namespace: String,
    /// The pod's name without what its controller added.
    pub(super) workload: String,
    pub(super) pod: String,
    pub(super) container: String,
}

/// Link of kubelet to the log of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeletLink {
    pub(super) name: PodName,
    /// Number of times that kubelet started a container of this name anew in the pod.
    pub(super) restarts: Option<u32>,
}

/// The links by the ids of the containers. None is followed.
pub(super) fn pod_names(folder: &Path) -> BTreeMap<String, KubeletLink> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_LINKS);
    let link = |entry: DirEntry| {
        let (id, name) = PodName::of_link(entry.file_name().to_str()?)?;
        let restarts = std::fs::read_link(entry.path()).ok().and_then(|log| restarts(&log));
        Some((id, KubeletLink { name, restarts }))
    };
    entries.filter_map(link).collect()
}

/// The number in the name of a log.
fn restarts(log: &Path) -> Option<u32> {
    log.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

impl PodName {
    fn of_link(name: &str) -> Option<(String, Self)> {
        let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = rest.split('_');
        let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        let is_sound = |text: &str| {
            !text.is_empty()
                && text.len() <= 253
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        };
        let is_whole = parts.next().is_none() && [pod, namespace, container, id].into_iter().all(is_sound);
        is_whole.then(|| {
            let name = Self {
                namespace: namespace.to_owned(),
                workload: workload(pod).to_owned(),
                pod: pod.to_owned(),
                container: container.to_owned(),
            };
            (id.to_owned(), name)
        })
    }
}

/// The name of the workload in its pod's name: `web` of `web-5d4f8c7b9-x2x5q` and of `web-0`.
fn workload(pod: &str) -> &str {
    let is_random = |part: &str| part.chars().all(|sign| RANDOM.contains(sign));
    match pod.rsplit_once('-') {
        Some((rest, last)) if last.len() == 5 && is_random(last) => match rest.rsplit_once('-') {
            Some((name, hash)) if (6..=10).contains(&hash.len()) && is_random(hash) => name,
            Some((name, time)) if time.parse().is_ok_and(|time: u32| MINUTES.contains(&time)) => name,
            _ => rest,
        },
        Some((rest, last)) if last.len() < 5 && last.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_what_is_missing_is_not_known() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(GroupFigures::read(place.path()), GroupFigures::default());
        for (file, text) in [
            ("memory.current", "900\n"),
            ("memory.max", "1000\n"),
            ("cpu.stat", "usage_usec 2500000\nnr_periods 10\nnr_throttled 5\n"),
        ] {
            std::fs::write(place.path().join(file), text).unwrap();
        }
        let read = GroupFigures::read(place.path());
        assert_eq!(
            read,
            GroupFigures {
                memory: GroupMemory { used: Some(900), limit: Some(1000), ..GroupMemory::default() },
                cpu_s: Some(2.5),
                throttled: Some(0.5)
            }
        );
    }

    #[test]
    fn a_group_is_where_it_lies_from_the_top_of_the_node() {
        let groups = |own: Option<&str>| NodeGroups {
            top: PathBuf::new(),
            roots: ContainerRoots::default(),
            own: own.map(str::to_owned),
        };
        let inside = groups(Some("kubepods/poda/us"));
        for (seen, expected) in [
            ("/", Some("/kubepods/poda/us")),
            ("/deeper", Some("/kubepods/poda/us/deeper")),
            ("/../other", Some("/kubepods/poda/other")),
            ("/../../podb/c/../d", Some("/kubepods/podb/d")),
            ("/../../../../../up", None),
        ] {
            assert_eq!(inside.absolute(seen).as_deref(), expected, "{seen}");
        }
        assert_eq!(groups(Some("")).absolute("/a/b").as_deref(), Some("/a/b"));
        assert_eq!(groups(None).absolute("/a/b").as_deref(), Some("/a/b"));
        assert_eq!(groups(None).absolute("/../b"), None);
    }

    #[test]
    fn without_groups_of_version_2_there_is_no_look() {
        let error = NodeGroups::open(Path::new("/nowhere"), None).unwrap_err();
        assert!(error.to_string().contains("no control groups of version 2"), "{error}");
    }

    #[test]
    fn a_link_names_pod_namespace_and_container() {
        let (id, name) = PodName::of_link("web-5d4f8c7b9-x2x5q_shop_app-server-0123abc.log").unwrap();
        assert_eq!(id, "0123abc");
        assert_eq!(
            (name.pod.as_str(), name.namespace.as_str(), name.container.as_str()),
            ("web-5d4f8c7b9-x2x5q", "shop", "app-server")
        );
        for bad in ["", "x.log", "a_b_c.log", "a_b_c_d-1.log", "a_b/../c_d-1.log", "\u{202e}_b_c-1.log"] {
            assert_eq!(PodName::of_link(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_number_of_restarts_is_the_name_of_the_log() {
        let of = |log: &str| restarts(Path::new(log));
        assert_eq!(of("/var/log/pods/shop_web-0_5334ab05/app/12.log"), Some(12));
        for bad in ["/nowhere", "/x/-1.log", "/x/.log", "/x/1.log.gz", "/x/99999999999.log", ""] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_workload_is_a_pod_without_what_its_controller_added() {
        for (pod, expected) in [
            ("web-5d4f8c7b9-x2x5q", "web"),
            ("my-web-5d4f8c7b9-x2x5q", "my-web"),
            ("agent-x2x5q", "agent"),
            ("backup-29401256-x2x5q", "backup"),
            ("agent-20261126-x2x5q", "agent-20261126"),
            ("db-12", "db"),
            ("alone", "alone"),
            ("my-alone", "my-alone"),
        ] {
            assert_eq!(workload(pod), expected, "{pod}");
        }
    }
}
