// SPDX-License-Identifier: Apache-2.0
//! `imas kube try`: a share of a workload's pods gets a candidate. `imas kube status`: what the pods of a namespace
//! have.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use imas_cli::format::mib;
use imas_cli::message::{self, Hinted};
use imas_cli::{output, table};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::{StatusArgs, TryArgs};
use crate::kubectl::Kubectl;
use crate::manifests::{self, label};
use crate::pods::{self, Pod};
use crate::prometheus;
use crate::workload::{Entry, NAME, OPT_IN, Workload};

/// Prints the share asked and given, and the state of the pods, by workload and candidate.
pub(crate) fn run(args: &StatusArgs, kubectl: &Kubectl) -> Result<()> {
    let parameters = kubectl.get("configmap", NAME)?.unwrap_or_default();
    let namespace = kubectl.namespace()?;
    let mut groups = vec![];
    for (workload, entry) in parameters["data"].as_object().into_iter().flatten() {
        if prometheus::KEYS.contains(&workload.as_str()) {
            continue;
        }
        if !is_label(workload) {
            message::warning(&format!(
                "the ConfigMap has an entry for {workload}, which no pod can have as its label"
            ));
            continue;
        }
        let entry = Entry::read(entry.as_str().unwrap_or_default());
        let pods = pods::all(kubectl, workload, &namespace, entry.container.as_deref())?;
        groups.extend(groups_of(workload, &entry, &pods));
    }
    if args.json.json {
        let groups: Vec<_> = groups.iter().map(Group::document).collect();
        return output::json(&json!({ "schema": 1, "namespace": namespace, "groups": groups }));
    }
    if groups.is_empty() {
        return output::text("no workload has a candidate here: 'imas kube try' begins\n");
    }
    let head = ["workload", "candidate", "asked", "pods", "ready", "failures", "OOM kills", "MiB", "note"];
    output::text(&table::plain(&head, groups.iter().map(Group::row)))
}

/// Whether a pod can have this as the value of a label.
fn is_label(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63 && is_edge(text.as_bytes().first()) && is_edge(text.as_bytes().last())
}

/// Pods of one workload with the same candidate.
#[derive(Debug)]
struct Group {
    workload: String,
    candidate: String,
    asked: Option<u8>,
    pods: Vec<Pod>,
    note: String,
}

fn groups_of(workload: &str, entry: &Entry, pods: &[Pod]) -> Vec<Group> {
    let mut by_candidate: BTreeMap<&str, Vec<Pod>> = BTreeMap::new();
    entry.shares.keys().for_each(|name| drop(by_candidate.insert(name, vec![])));
    for pod in pods {
        by_candidate.entry(pod.candidate.as_deref().unwrap_or("-")).or_default().push(pod.clone());
    }
    let group = |(name, pods): (&str, Vec<Pod>)| {
        let why = pods.iter().find_map(|pod| pod.left_alone.clone().or_else(|| pod.waits.clone()));
        let before = || (name == "-").then(|| "started before the policy, or without it".to_owned());
        Group {
            workload: workload.to_owned(),
            candidate: name.to_owned(),
            asked: entry.shares.get(name).copied(),
            note: why.or_else(before).unwrap_or_default(),
            pods,
        }
    };
    by_candidate.into_iter().map(group).collect()
}

impl Group {
    fn sum(&self, count: fn(&Pod) -> u32) -> u32 {
        self.pods.iter().map(count).sum()
    }

    fn memory(&self) -> Option<f64> {
        let known: Vec<_> = self.pods.iter().filter_map(|pod| pod.memory).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.workload.clone(),
            self.candidate.clone(),
            self.asked.map_or_else(|| "-".to_owned(), |share| format!("{share} %")),
            self.pods.len().to_string(),
            self.sum(|pod| u32::from(pod.is_ready)).to_string(),
            self.sum(|pod| pod.failures).to_string(),
            self.sum(|pod| pod.oom_kills).to_string(),
            self.memory().map_or_else(|| "no data".to_owned(), mib),
            self.note.clone(),
        ]
    }

    fn document(&self) -> serde_json::Value {
        json!({
            "workload": self.workload, "candidate": self.candidate, "asked_percent": self.asked, "pods": self.pods.len(),
            "ready": self.sum(|pod| u32::from(pod.is_ready)), "failures": self.sum(|pod| pod.failures),
            "oom_kills": self.sum(|pod| pod.oom_kills), "memory_bytes": self.memory(), "note": self.note,
        })
    }
}

/// Most of the pods that candidates may get together: without untouched pods nothing can be compared.
const MOST: u32 = 80;

/// Annotation of the template: when the trial began.
const BEGUN: &str = "imas.io/begun";

const COMMENT: &str = "The ConfigMap, and what the template of the workload's pods needs.\n\
    Nothing was written. To write it: the same with --write.";

/// Prints or writes the entry of the workload.
pub(super) fn run_try(args: &TryArgs, kubectl: &Kubectl) -> Result<()> {
    let all = u32::from(args.share) * u32::try_from(args.with.len()).unwrap_or(u32::MAX);
    if all > MOST {
        bail!(
            "{} candidates with {} % each: at least {} % of the pods must stay untouched",
            args.with.len(),
            args.share,
            100 - MOST
        );
    }
    let workload = Workload::read(kubectl, &args.workload)?;
    let approved = approved(kubectl)?;
    let mut entry = workload.entry();
    entry.container = Some(workload.container(args.container.as_deref().or(entry.container.as_deref()))?);
    entry.env_from |= args.env_from_is_clean;
    entry.shares.clear();
    for name in &args.with {
        let name = label(name);
        if !approved.contains(&name) {
            return Err(Hinted::error(
                format!("{name}: the cluster's policy has no such candidate; it has {}", approved.join(", ")),
                "'imas kube policy --with ...' prints one that does",
            ));
        }
        entry.withdrawn.retain(|one| *one != name);
        entry.shares.insert(name, args.share);
    }
    if !workload.is_in(kubectl)? {
        message::warning(&format!(
            "the namespace {0} takes no part, so nothing will happen: kubectl label namespace {0} {OPT_IN}=enabled",
            workload.namespace
        ));
    }
    let mut template = workload.template_for(&entry);
    if !args.write {
        [template["apiVersion"], template["kind"]] = workload.of_type.clone();
        template["metadata"] = json!({ "name": workload.name, "namespace": workload.namespace });
        return manifests::print_documents(COMMENT, &[workload.parameters_with(&entry), template]);
    }
    // The template has the same entry already where it was taken back since. The pods are replaced in any event.
    template["spec"]["template"]["metadata"]["annotations"][BEGUN] = json!(Timestamp::now().to_string());
    workload.write_entry(kubectl, &entry)?;
    kubectl.merge(&workload.kind, &workload.name, &template)?;
    if workload.has(&entry) {
        kubectl.restart(&workload.kind, &workload.name)?; // what was taken back is tried again
    }
    message::say(&format!("imas: {}: {entry}; its pods are replaced now", workload.name));
    Ok(())
}

/// Candidates of the cluster's policy.
fn approved(kubectl: &Kubectl) -> Result<Vec<String>> {
    let policy = kubectl.get("mutatingadmissionpolicy", NAME)?.ok_or_else(|| {
        Hinted::error(
            "the cluster has no policy of IMAS",
            "'imas kube policy' prints it; an administrator applies it",
        )
    })?;
    let variables = policy.pointer("/spec/variables").and_then(Value::as_array);
    let text = variables.into_iter().flatten().find(|one| one["name"] == "candidates");
    let text = text.and_then(|one| one["expression"].as_str()).unwrap_or_default();
    let candidates: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    Ok(candidates.into_iter().map(|(name, _)| name).collect())
}
