// SPDX-License-Identifier: Apache-2.0
//! Types of the cluster's nodes: pods are compared with pods on nodes of the same type.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::pods::Pod;

/// The type of each node, by its name.
pub(crate) type Types = BTreeMap<String, String>;

/// Reads the types where a pod runs on a node that was not asked for yet. A type that cannot be had is empty.
pub(crate) fn learn(kubectl: &Kubectl, pods: &[Pod], types: &mut Types) -> Result<()> {
    let used = || pods.iter().filter_map(|pod| pod.node.clone());
    if used().all(|node| types.contains_key(&node)) {
        return Ok(());
    }
    let nodes = kubectl.list("nodes", "");
    for node in used() {
        types.entry(node).or_default();
    }
    let named = |node: &Value| Some((node["metadata"]["name"].as_str()?.to_owned(), type_of(node)));
    types.extend(nodes?.iter().filter_map(named));
    Ok(())
}

/// What the cloud calls the machine, its architecture and number of CPUs. Without a cloud the first is missing, or the
/// same for all.
fn type_of(node: &Value) -> String {
    let labels = &node["metadata"]["labels"];
    let words = [
        &labels["node.kubernetes.io/instance-type"],
        &labels["kubernetes.io/arch"],
        &node["status"]["capacity"]["cpu"],
    ];
    words.map(|word| word.as_str().unwrap_or("?")).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_without_a_cloud_has_its_architecture_and_size() {
        let labels = json!({ "kubernetes.io/arch": "arm64" });
        let node = json!({ "metadata": { "labels": labels }, "status": { "capacity": { "cpu": "8" } } });
        assert_eq!(type_of(&node), "? arm64 8");
        assert_eq!(type_of(&json!([])), "? ? ?");
    }
}
