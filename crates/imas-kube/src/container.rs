// SPDX-License-Identifier: Apache-2.0
//! Whose container a process belongs to, by the path of its control group: those of kubelet with containerd or
//! CRI-O, of docker and podman, also where a node is itself a container (kind).

use std::fmt;

/// Digits of a container's id.
const ID_LENGTH: usize = 64;
/// What runtimes write before the id.
const RUNTIMES: [(&str, &str); 5] = [
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("docker-", "docker"),
    ("libpod-", "podman"),
    ("nerdctl-", "containerd"),
];

/// A container of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Container {
    /// Uid of its pod; None for a container of no pod.
    pub(crate) pod_uid: Option<String>,
    pub(crate) id: String,
    /// The runtime, if its name is in the path.
    pub(crate) runtime: Option<&'static str>,
    /// Path of the container's group: the process may be in one below it.
    pub(crate) group: String,
}

impl Container {
    /// Reads the path of a group of version 2. None for a process of no container.
    pub(crate) fn of_group(path: &str) -> Option<Self> {
        let parts: Vec<_> = path.split('/').collect();
        // The innermost pod: a node that is a container has the pods' groups below its own.
        let pod = parts.iter().rposition(|part| pod_uid(part).is_some());
        let first = pod.map_or(0, |at| at + 1);
        let is_after = |&(at, part): &(usize, &&str)| at >= first && container_id(part).is_some();
        let mut named = parts.iter().enumerate().filter(is_after);
        let (at, part) = if pod.is_some() { named.next() } else { named.next_back() }?;
        let (runtime, id) = container_id(part)?;
        let before = at.checked_sub(1).map_or("", |at| parts[at]);
        let runtime = runtime.or_else(|| (before == "docker").then_some("docker"));
        Some(Self {
            pod_uid: pod.and_then(|at| pod_uid(parts[at])),
            id: id.to_owned(),
            runtime,
            group: parts[..=at].join("/"),
        })
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id[..12])
    }
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
    const UID: &str = "5334ab05-8cd0-41c9-9236-2be3b4a5634d";

    fn seen(path: &str) -> Option<(Option<String>, Option<&'static str>)> {
        let path = path.replace("ID", ID).replace("UID", UID).replace("U_D", &UID.replace('-', "_"));
        let found = Container::of_group(&path)?;
        assert_eq!(found.id, ID);
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
            ("/kubepods/besteffort/podU-D/ID".replace("U-D", UID).as_str(), of_pod(None)),
            (
                "/system.slice/docker-ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podU_D.slice/cri-containerd-ID.scope",
                of_pod(Some("containerd")),
            ),
            ("/system.slice/docker-ID.scope", Some((None, Some("docker")))),
            ("/docker/ID", Some((None, Some("docker")))),
            ("/machine.slice/libpod-ID.scope/container", Some((None, Some("podman")))),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
                Some((None, Some("podman"))),
            ),
        ] {
            assert_eq!(seen(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_container_is_none() {
        let conmon =
            format!("/kubepods.slice/kubepods-pod{}.slice/crio-conmon-{ID}.scope", UID.replace('-', "_"));
        for path in [
            "",
            "/",
            "/init.scope",
            "/user.slice/user-0.slice",
            "/system.slice/x.service",
            "/podx/y",
            &conmon,
        ] {
            assert_eq!(Container::of_group(path), None, "{path}");
        }
    }

    #[test]
    fn a_hostile_path_is_bounded_by_what_an_id_is() {
        for path in [
            "/docker-\u{1f4a3}".to_owned(),
            "/kubepods/pod/".repeat(500),
            format!("/docker/{}", "G".repeat(64)),
        ] {
            assert_eq!(Container::of_group(&path), None, "{path}");
        }
    }
}
