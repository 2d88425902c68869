// SPDX-License-Identifier: Apache-2.0
//! A look at the containers of this node, and what of them was not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anyhow::Result;
use imas_linux::container::Container;
use imas_linux::{foreign_process, process};
use serde::Serialize;

use crate::cli::NodeArgs;
use crate::group::{GroupFigures, NodeGroups};
use crate::pod_names::{self, KubeletLink, PodName};
use crate::row::Row;

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
        let links = pod_names::all(&args.logs);
        let (mut members, disputed) = members(&groups)?;
        let mut look = Self { disputed, ..Self::default() };
        let is_sandbox = |container: &Container| {
            container.pod_uid.is_some() && !links.is_empty() && !links.contains_key(&container.id)
        };
        members.retain(|container, _| !is_sandbox(container));
        for (container, pids) in members {
            look.add(&container, &pids, links.get(&container.id), groups.figures(&container));
        }
        look.rows.sort_by_key(|row| std::cmp::Reverse(row.resident));
        look.unseen.sort_by_key(|one| std::cmp::Reverse(one.processes));
        Ok(look)
    }

    fn add(
        &mut self,
        container: &Container,
        pids: &[u32],
        link: Option<&KubeletLink>,
        figures: GroupFigures,
    ) {
        drop(foreign_process::take_unseen());
        self.rows.extend(Row::of(container, pids, link, figures));
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
}
