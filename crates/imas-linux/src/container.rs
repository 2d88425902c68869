// SPDX-License-Identifier: Apache-2.0
//! The container that a process belongs to, by the path of its control group. Known are the groups of kubelet with
//! containerd or CRI-O, of docker and of podman.
//!
//! Whoever was given a group names those below it as he likes. So a name counts only where the manager of the machine
//! makes the group: right below a pod that lies below kubelet's own group, or right below a group that root's docker,
//! podman and systemd have. What lies deeper belongs to that container, whatever it is called.

use std::fmt;
use std::path::Path;

use crate::c_bytes::fnv64;

/// Digits of a container's id.
const ID_LENGTH: usize = 64;
/// Prefix that a runtime writes before the id, and name of the runtime.
const RUNTIMES: [(&str, &str); 5] = [
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("docker-", "docker"),
    ("libpod-", "podman"),
    ("nerdctl-", "containerd"),
];
/// Groups of the machine in which containers of no pod are.
const PARENTS: [&str; 4] = ["system.slice", "machine.slice", "docker", "libpod_parent"];
/// Groups of pods by their quality of service. Pods of the best quality have groups right below kubelet's.
const QUALITIES: [&str; 2] = ["burstable", "besteffort"];
/// Where kubelet has its group in most clusters: below the root, or as kind sets it.
const USUAL: [&str; 3] = ["", "kubelet", "kubelet.slice"];
/// The bit of an account that no uid has.
const IS_CONTAINER: u64 = 1 << 63;

/// A container of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// Uid of its pod; None for a container of no pod.
    pub pod_uid: Option<String>,
    /// Its id.
    pub id: String,
    /// The runtime, if its name is in the path.
    pub runtime: Option<&'static str>,
    /// Path of the container's group: the process may be in one below it.
    pub group: String,
}

impl Container {
    /// Returns the number of who answers for its processes ([`crate::foreign_process::owner_of`]): a pod for all of its
    /// containers. No uid has it.
    #[must_use]
    pub fn account(&self) -> u64 {
        IS_CONTAINER | fnv64(self.pod_uid.as_deref().unwrap_or(&self.id).as_bytes()) >> 1
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id[..12])
    }
}

/// Groups below which kubelet and other managers of containers have theirs.
#[derive(Debug, Clone)]
pub struct ContainerRoots(Vec<Vec<String>>);

impl Default for ContainerRoots {
    fn default() -> Self {
        Self(USUAL.iter().map(|root| parts(root).map(str::to_owned).collect()).collect())
    }
}

impl ContainerRoots {
    /// Returns the one root of that path: kubelet's setting `cgroupRoot`.
    #[must_use]
    pub fn at(path: &str) -> Self {
        Self(vec![parts(path).map(str::to_owned).collect()])
    }

    /// Returns the container to which a group of version 2 with that path belongs. None for a process of no container.
    #[must_use]
    pub fn container(&self, path: &str) -> Option<Container> {
        let parts: Vec<&str> = parts(path).collect();
        self.0.iter().find_map(|root| below(root, &parts))
    }
}

/// Returns the container of a process that lives, where groups are as in most clusters.
#[must_use]
pub fn of_process(pid: u32) -> Option<Container> {
    ContainerRoots::default().container(&group_of(pid)?)
}

/// Returns the path of the group of version 2 in which a process is, as this process sees it.
#[must_use]
pub fn group_of(pid: u32) -> Option<String> {
    let groups = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup")).ok()?;
    groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The container of a group below the root.
fn below(root: &[String], all: &[&str]) -> Option<Container> {
    if all.len() < root.len() || root.iter().zip(all).any(|(root, part)| root != part) {
        return None;
    }
    let rest = &all[root.len()..];
    let first = *rest.first()?;
    let depth = if is_of_kubelet(first, root.last()) {
        1 + usize::from(rest.get(1).is_some_and(|part| is_quality(part)))
    } else if PARENTS.contains(&first) {
        0
    } else {
        return None;
    };
    let pod_uid = if depth > 0 { Some(pod_uid(rest.get(depth)?)?) } else { None };
    let (runtime, id) = container_id(rest.get(depth + 1)?)?;
    Some(Container {
        pod_uid,
        id: id.to_owned(),
        runtime: runtime.or_else(|| (first == "docker").then_some("docker")),
        group: format!("/{}", all[..=root.len() + depth + 1].join("/")),
    })
}

/// Whether it is kubelet's group. As a slice of systemd it has the name of the one above it.
fn is_of_kubelet(part: &str, above: Option<&String>) -> bool {
    let slice = part.strip_suffix("kubepods.slice");
    let above = above.and_then(|name| name.strip_suffix(".slice"));
    let is_slice = |before: &str| match above {
        Some(above) => before.strip_suffix('-') == Some(above),
        None => before.is_empty(),
    };
    part == "kubepods" || slice.is_some_and(is_slice)
}

fn is_quality(part: &str) -> bool {
    let slice = |name: &str| {
        part.strip_suffix(".slice").is_some_and(|slice| slice.ends_with(&format!("kubepods-{name}")))
    };
    QUALITIES.iter().any(|name| part == *name || slice(name))
}

/// Uid in the name of a pod's group: `pod1234-...`, `kubepods-burstable-pod1234_....slice`.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None if name.contains("kubepods") => name.rsplit_once("-pod")?.1,
        None => return None,
    };
    // A pod of a file of the node (a static pod) has a hash as its uid.
    let is_uid = uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'_' | b'-'))
        || uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit());
    is_uid.then(|| uid.replace('_', "-"))
}

/// Runtime and id in the name of a container's group.
fn container_id(part: &str) -> Option<(Option<&'static str>, &str)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let known = RUNTIMES.iter().find_map(|(before, runtime)| Some((*runtime, name.strip_prefix(before)?)));
    let (runtime, id) = known.map_or((None, name), |(runtime, id)| (Some(runtime), id));
    let is_id = id.len() == ID_LENGTH && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then_some((runtime, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    const UID: &str = "5334ab05-8cd0-41c9-9236-2be3b4a5634d";
    const OTHER_UID: &str = "00000000-8cd0-41c9-9236-2be3b4a5634d";

    fn written(path: &str) -> String {
        let path = path.replace("OTHER_U_D", &OTHER_UID.replace('-', "_")).replace("OTHER", OTHER);
        path.replace("ID", ID).replace("U-D", UID).replace("U_D", &UID.replace('-', "_"))
    }

    fn seen(roots: &ContainerRoots, path: &str) -> Option<(Option<String>, Option<&'static str>)> {
        let found = roots.container(&written(path))?;
        assert_eq!(found.id, ID, "{path}");
        assert!(found.group.ends_with(ID) || found.group.ends_with(".scope"), "{}", found.group);
        Some((found.pod_uid, found.runtime))
    }

    #[test]
    fn every_layout_is_known() {
        let of_pod = |runtime| Some((Some(UID.to_owned()), runtime));
        for (path, expected) in [
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_D.slice/cri-containerd-ID.scope",
                of_pod(Some("containerd")),
            ),
            ("/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope", of_pod(Some("cri-o"))),
            ("/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope/container/deeper", of_pod(Some("cri-o"))),
            ("/kubepods/besteffort/podU-D/ID", of_pod(None)),
            ("/kubelet/kubepods/podU-D/ID", of_pod(None)),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podU_D.slice/cri-containerd-ID.scope",
                of_pod(Some("containerd")),
            ),
            ("/system.slice/docker-ID.scope", Some((None, Some("docker")))),
            (
                "/system.slice/docker-ID.scope/kubelet.slice/kubelet-kubepods.slice/a",
                Some((None, Some("docker"))),
            ),
            ("/docker/ID", Some((None, Some("docker")))),
            ("/machine.slice/libpod-ID.scope/container", Some((None, Some("podman")))),
            ("/libpod_parent/libpod-ID", Some((None, Some("podman")))),
        ] {
            assert_eq!(seen(&ContainerRoots::default(), path), expected, "{path}");
        }
        let kind = ContainerRoots::at(&written("system.slice/docker-OTHER.scope/kubelet.slice/"));
        let path = "/system.slice/docker-OTHER.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU_D.slice/cri-containerd-ID.scope";
        assert_eq!(seen(&kind, path), of_pod(Some("containerd")));
        assert_eq!(seen(&kind, "/kubepods/podU-D/ID"), None);
    }

    /// Names that a container, a service with a group of its own, or a user gives.
    #[test]
    fn a_name_counts_where_the_manager_of_the_machine_gives_it() {
        let roots = ContainerRoots::default();
        let own = "/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope";
        for below in [
            "crio-OTHER.scope",
            "kubepods.slice/kubepods-podOTHER_U_D.slice/cri-containerd-OTHER.scope",
            "podOTHER_U_D/OTHER",
        ] {
            let found = roots.container(&written(&format!("{own}/{below}"))).unwrap();
            assert_eq!((found.id.as_str(), found.pod_uid.as_deref()), (ID, Some(UID)), "{below}");
            assert_eq!(found.group, written(own));
        }
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/docker-ID.scope",
            "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            "/system.slice/mallory.service/docker-ID.scope",
            "/system.slice/mallory.service/kubepods/podU-D/ID",
            "/kubepods.slice/x/kubepods-podU_D.slice/crio-ID.scope",
            "/kubepods.slice/crio-ID.scope",
            "/a-kubepods.slice/kubepods-podU_D.slice/crio-ID.scope",
            "/docker-ID.scope",
        ] {
            assert_eq!(roots.container(&written(path)), None, "{path}");
        }
    }

    #[test]
    fn what_is_no_container_is_none() {
        for path in [
            "",
            "/",
            "/init.scope",
            "/user.slice/user-0.slice",
            "/system.slice/x.service",
            "/podx/y",
            "/kubepods.slice/kubepods-podU_D.slice/crio-conmon-ID.scope",
            "/../ID",
        ] {
            assert_eq!(ContainerRoots::default().container(&written(path)), None, "{path}");
        }
    }

    #[test]
    fn a_hostile_path_is_bounded_by_what_an_id_is() {
        for path in [
            "/system.slice/docker-\u{1f4a3}".to_owned(),
            "/kubepods/pod/".repeat(500),
            format!("/docker/{}", "G".repeat(64)),
        ] {
            assert_eq!(ContainerRoots::default().container(&path), None, "{path}");
        }
    }

    #[test]
    fn the_containers_of_a_pod_have_one_account_and_no_uid_has_it() {
        let of = |path: &str| ContainerRoots::default().container(&written(path)).unwrap().account();
        let pod = of("/kubepods/podU-D/ID");
        assert_eq!(pod, of("/kubepods/podU-D/OTHER"));
        assert!(pod != of("/docker/ID") && of("/docker/ID") != of("/docker/OTHER"));
        assert!(pod > u64::from(u32::MAX));
    }
}
