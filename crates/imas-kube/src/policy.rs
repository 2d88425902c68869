// SPDX-License-Identifier: Apache-2.0
//! `imas kube policy`: the `MutatingAdmissionPolicy` that gives pods a candidate, and its binding.
//!
//! The policy holds every candidate with its environment, and the ConfigMap of a namespace no more than names
//! of them with shares: who may write that ConfigMap can choose among what the cluster's administrator
//! approved, and bring nothing of his own.
//!
//! The expressions lie in `policy/*.cel`. CEL has no chance and pods of one ReplicaSet are equal at admission,
//! so `digits.cel` takes the first key of a map: the apiserver iterates over a map in an order that differs
//! each time (the language that it is written in promises no order and starts anywhere). Twelve equal digits
//! mean that this is no longer so, and then every pod is left alone.
//!
//! The init container is what the pod is: its user is the pod's, which a namespace may give, and `copier.cel` names one
//! where the pod's is root alone. `bounds.cel` states ephemeral storage where all containers of the pod do: a LimitRange
//! may ask it of each. Where they do not, a limit of ours would be the limit of the whole pod, and kubelet would evict it.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use imas_engine::context::Context;
use serde::Serialize;
use serde_json::{Value, json};

use crate::candidate::{self, Environments};
use crate::cli::PolicyArgs;
use crate::workload::NAME;
use crate::yaml;

/// Variables of language runtimes that decide about their memory: a container that sets them has decided.
const OF_RUNTIMES: [&str; 7] = [
    "DOTNET_gcServer",
    "GLIBC_TUNABLES",
    "GOGC",
    "GOMEMLIMIT",
    "JAVA_TOOL_OPTIONS",
    "LD_PRELOAD",
    "NODE_OPTIONS",
];
/// Words of the ConfigMap that are no candidates.
const WORDS: [&str; 3] = ["container", "env-from", "withdrawn"];
/// Longest entry of the ConfigMap that is read: it bounds what an expression costs.
const LONGEST_ENTRY: usize = 1000;

const COMMENT: &str = "Pods with the label imas.io/workload: NAME, in namespaces with the label imas.io/policy: enabled, get what the\n\
    ConfigMap imas of their namespace says for NAME. If anything is wrong, a pod starts untouched.\n\
    To end it for every new pod: kubectl delete mutatingadmissionpolicybinding imas";

/// Prints the policy and its binding.
pub(crate) fn print(args: &PolicyArgs, context: &Context) -> Result<()> {
    let environments = candidate::environments(context, &args.given.with, &args.given.at)?;
    if let Some(word) = WORDS.iter().find(|word| environments.contains_key(**word)) {
        bail!("{word}: no candidate can have this name in a cluster");
    }
    let every: BTreeSet<_> = context
        .catalogue
        .candidates()
        .iter()
        .flat_map(|one| one.environment.iter())
        .map(|(name, _)| name.as_str())
        .collect();
    // A candidate with settings of the command line sets variables that no catalogue names.
    let given = environments.values().flat_map(|variables| variables.keys().map(String::as_str));
    let held: BTreeSet<_> = OF_RUNTIMES.into_iter().chain(every).chain(given).collect();
    candidate::warn_of_libraries(context, &args.given.with)?;
    yaml::print(COMMENT, &[policy(args, &environments, &held)?, binding(&group(&args.api))])
}

fn policy(args: &PolicyArgs, environments: &Environments, held: &BTreeSet<&str>) -> Result<Value> {
    let variables = [
        ("candidates", literal(environments)?),
        ("held", literal(held)?),
        ("image", literal(&args.given.image)?),
        ("at", literal(&args.given.at)?),
        ("copied", literal(&!args.image_volume)?),
        ("workload", "object.metadata.labels[\"imas.io/workload\"]".to_owned()),
        ("words", include_str!("policy/words.cel").to_owned()),
        ("containers", include_str!("policy/containers.cel").to_owned()),
        ("shares", include_str!("policy/shares.cel").to_owned()),
        ("digits", include_str!("policy/digits.cel").to_owned()),
        ("place", include_str!("policy/place.cel").to_owned()),
        ("chosen", include_str!("policy/chosen.cel").to_owned()),
        ("own", include_str!("policy/own.cel").to_owned()),
        ("bounds", include_str!("policy/bounds.cel").to_owned()),
        ("why", include_str!("policy/why.cel").to_owned()),
    ];
    let variable = |(name, expression)| json!({ "name": name, "expression": expression });
    let variables = variables.map(variable);
    let mut mutations = vec![json!({
        "patchType": "ApplyConfiguration",
        "applyConfiguration": { "expression": include_str!("policy/mutation.cel") },
    })];
    if !args.image_volume {
        // An ApplyConfiguration cannot set lists such as the capabilities of a container. The draw is made once: this
        // reads the label that the first mutation gave.
        mutations.push(json!({
            "patchType": "JSONPatch",
            "jsonPatch": { "expression": include_str!("policy/copier.cel") },
        }));
    }
    let is_named = format!(
        "object.metadata.labels[\"imas.io/workload\"] in params.?data.orValue({{}}) && size(params.data[object.metadata.labels[\"imas.io/workload\"]]) <= {LONGEST_ENTRY}"
    );
    Ok(json!({
        "apiVersion": group(&args.api),
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": NAME },
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "matchConstraints": {
                "objectSelector": { "matchExpressions": [
                    { "key": "imas.io/workload", "operator": "Exists" },
                    { "key": "imas.io/candidate", "operator": "DoesNotExist" },
                ] },
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }],
            },
            "matchConditions": [{ "name": "the-workload-is-named", "expression": is_named }],
            "variables": variables,
            "mutations": mutations,
        },
    }))
}

/// The group of the objects, with its version.
fn group(version: &str) -> String {
    format!("admissionregistration.k8s.io/{version}")
}

fn binding(group: &str) -> Value {
    json!({
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": NAME },
        "spec": {
            "policyName": NAME,
            "paramRef": { "name": NAME, "parameterNotFoundAction": "Allow" },
            "matchResources": { "namespaceSelector": { "matchLabels": { "imas.io/policy": "enabled" } } },
        },
    })
}

/// A value as CEL writes it. JSON's strings, lists and maps are literals of CEL.
fn literal(value: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}
