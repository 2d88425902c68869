// SPDX-License-Identifier: Apache-2.0
//! Figures of a container's control group, by the files of the kernel.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::container::Container;

/// Most folders that are looked through.
const MOST: usize = 65_536;

/// What the kernel counts of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct GroupFigures {
    /// Bytes that cannot be given back at once; page cache that can is left out.
    pub(crate) used: Option<u64>,
    /// Most bytes; None without a limit.
    pub(crate) limit: Option<u64>,
    pub(crate) oom_kills: Option<u64>,
    /// CPU time of its processes, those that ended among them, seconds.
    pub(crate) cpu_s: Option<f64>,
    /// Share of the periods in which its limit of CPU time held it up.
    pub(crate) throttled: Option<f64>,
}

impl GroupFigures {
    /// Reads the files of a folder. What is not there is not known.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let number = |file: &str| text(file).trim().parse::<u64>().ok();
        let cache = keyed(&text("memory.stat"), "inactive_file").unwrap_or(0);
        let cpu = text("cpu.stat");
        let periods = keyed(&cpu, "nr_periods").filter(|periods| *periods > 0);
        Self {
            used: number("memory.current").map(|used| used.saturating_sub(cache)),
            limit: number("memory.max"),
            oom_kills: keyed(&text("memory.events"), "oom_kill"),
            cpu_s: keyed(&cpu, "usage_usec").map(|used| used as f64 / 1e6),
            throttled: periods.and_then(|all| Some(keyed(&cpu, "nr_throttled")? as f64 / all as f64)),
        }
    }

    /// Share of the limit that is used.
    pub(crate) fn nearness(&self) -> Option<f64> {
        Some(self.used? as f64 / self.limit.filter(|limit| *limit > 0)? as f64)
    }
}

/// The containers by their ids, with the paths of their groups below `top`. In a container with a namespace of
/// control groups, the kernel shows the groups of others as paths that begin with `..`: these lead to no folder, and
/// those of the same pod do not name the pod.
pub(crate) fn by_id(top: &Path) -> BTreeMap<String, Container> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    let mut looked_at = 0;
    while let Some(folder) = waiting.pop().filter(|_| looked_at < MOST) {
        looked_at += 1;
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(below.map(|entry| entry.path()));
        let path = folder.strip_prefix(top).ok().and_then(Path::to_str).unwrap_or_default();
        let container = Container::of_group(path).filter(|container| container.group == path);
        found.extend(container.map(|container| (container.id.clone(), container)));
    }
    found
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
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
            ("memory.stat", "anon 500\ninactive_file 400\ninactive_file_x 1\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
            ("cpu.stat", "usage_usec 2500000\nnr_periods 10\nnr_throttled 5\n"),
        ] {
            std::fs::write(place.path().join(file), text).unwrap();
        }
        let read = GroupFigures::read(place.path());
        assert_eq!(
            read,
            GroupFigures {
                used: Some(500),
                limit: Some(1000),
                oom_kills: Some(2),
                cpu_s: Some(2.5),
                throttled: Some(0.5)
            }
        );
        assert_eq!(read.nearness(), Some(0.5));
        std::fs::write(place.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(GroupFigures::read(place.path()).nearness(), None);
    }

    #[test]
    fn a_container_is_found_wherever_its_group_lies() {
        let top = tempfile::tempdir().unwrap();
        let (id, other) = ("ab".repeat(32), "cd".repeat(32));
        let pod = "kubepods.slice/kubepods-pod5334ab05_8cd0_41c9_9236_2be3b4a5634d.slice";
        let container = format!("{pod}/cri-containerd-{id}.scope");
        let docker = format!("system.slice/docker-{other}.scope");
        for folder in [format!("{container}/deeper"), docker.clone(), "user.slice".to_owned()] {
            std::fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        let found = by_id(top.path());
        let seen = |id: &str| (found[id].group.as_str(), found[id].pod_uid.as_deref());
        assert_eq!(seen(&id), (container.as_str(), Some("5334ab05-8cd0-41c9-9236-2be3b4a5634d")));
        assert_eq!((seen(&other), found.len()), ((docker.as_str(), None), 2));
        assert_eq!(by_id(Path::new("/nowhere")), BTreeMap::new());
    }
}
