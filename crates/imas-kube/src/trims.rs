// SPDX-License-Identifier: Apache-2.0
//! `imas kube node --trim`: processes in pods of some namespaces give free pages back by themselves, by the rule of
//! [`imas_core::trimming`]. A namespace is known by kubelet's links, and a process by the group that its runtime made.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use anyhow::Result;
use imas_cli::message;
use imas_core::trimming::{TrimRule, TrimSums, Trimmable};
use imas_linux::trim_turns::{Trimmer, trimmable};

use crate::cli::NodeArgs;
use crate::group::NodeGroups;
use crate::look;
use crate::pod_names;

/// The rule of every pod.
const RULE: TrimRule = TrimRule { every: Duration::from_secs(600), at_least: 32 << 20 };

/// Sums over all trims, which a thread adds up.
pub(crate) type SharedSums = Arc<Mutex<TrimSums>>;

/// Begins to trim in a thread, where namespaces are named.
pub(crate) fn begin(args: &NodeArgs) -> Result<Option<SharedSums>> {
    if args.trim.is_empty() {
        return Ok(None);
    }
    let node =
        Node { groups: NodeGroups::open(&args.cgroups, args.cgroup_root.as_deref())?, args: args.clone() };
    let sums = SharedSums::default();
    let shared = Arc::clone(&sums);
    Builder::new().name("trims".to_owned()).spawn(move || node.trim(&shared))?;
    Ok(Some(sums))
}

/// Sums at this moment.
pub(crate) fn now(sums: &SharedSums) -> TrimSums {
    *sums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node whose pods are trimmed.
struct Node {
    groups: NodeGroups,
    args: NodeArgs,
}

impl Node {
    fn trim(&self, sums: &SharedSums) {
        let mut trimmer = Trimmer::new(RULE);
        loop {
            let all = self.processes().unwrap_or_else(|error| {
                message::warning(&format!("nothing is trimmed: {error:#}"));
                vec![]
            });
            for taken in trimmer.round(&all) {
                if let Some(words) = taken.words {
                    message::say(&format!("imas: process {} {words}", taken.identity.pid));
                }
            }
            *sums.lock().unwrap_or_else(PoisonError::into_inner) = trimmer.sums();
            sleep(trimmer.pause());
        }
    }

    /// The processes of the namespaces that are named.
    fn processes(&self) -> Result<Vec<Trimmable>> {
        let links = pod_names::all(&self.args.logs);
        let (mut members, _) = look::members(&self.groups)?;
        members.retain(|container, _| {
            links.get(&container.id).is_some_and(|link| self.args.trim.contains(&link.name.namespace))
        });
        let of = |(container, pids): (_, Vec<u32>)| {
            let owner = imas_linux::container::Container::account(&container);
            pids.into_iter().filter_map(move |pid| trimmable(pid, owner))
        };
        Ok(members.into_iter().flat_map(of).collect())
    }
}
