// SPDX-License-Identifier: Apache-2.0
//! `imas kube try`: a share of a workload's pods gets a candidate.

use anyhow::{Result, bail};
use imas_cli::message::{self, Hinted};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::candidate::label;
use crate::cli::TryArgs;
use crate::kubectl::Kubectl;
use crate::workload::{NAME, OPT_IN, Workload};
use crate::yaml;

/// Most of the pods that candidates may get together: without untouched pods nothing can be compared.
const MOST: u32 = 80;

/// Annotation of the template: when the trial began.
const BEGUN: &str = "imas.io/begun";

const COMMENT: &str = "The ConfigMap, and what the template of the workload's pods needs.\n\
    Nothing was written. To write it: the same with --write.";

/// Prints or writes the entry of the workload.
pub(crate) fn run(args: &TryArgs, kubectl: &Kubectl) -> Result<()> {
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
        return yaml::print(COMMENT, &[workload.parameters_with(&entry), template]);
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
