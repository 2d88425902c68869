// SPDX-License-Identifier: Apache-2.0
//! Names of a node's containers, by kubelet's links to their logs: `POD_NAMESPACE_CONTAINER-ID.log`, which lead to
//! `RESTARTS.log`. No right on the apiserver is needed.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::Path;

use serde::Serialize;

/// Most links that are read: a node has some hundred pods.
const MOST: usize = 20_000;
/// Signs in the random part of a pod's name.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Minutes since 1970 that a CronJob adds to the name of each Job: those of the years 2020 to 2064. No date such as
/// 20261126 is among them.
const MINUTES: std::ops::Range<u32> = 26_300_000..50_000_000;

/// What a container is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    /// The pod's name without what its controller added.
    pub(crate) workload: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// Link of kubelet to the log of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubeletLink {
    pub(crate) name: PodName,
    /// Number of times that kubelet started a container of this name anew in the pod.
    pub(crate) restarts: Option<u32>,
}

/// The links by the ids of the containers. None is followed.
pub(crate) fn all(folder: &Path) -> BTreeMap<String, KubeletLink> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST);
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

/// The name of the workload in that of its pod: `web` of `web-5d4f8c7b9-x2x5q` and of `web-0`.
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
