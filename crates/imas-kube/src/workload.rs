// SPDX-License-Identifier: Apache-2.0
//! A workload of the cluster, with its entry in the ConfigMap of its namespace.
//!
//! The entry of a workload in the ConfigMap `imas`: `container=app jemalloc=20 glibc.lean=20`.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, bail};
use imas_cli::message::Hinted;
use serde_json::{Value, json};

use crate::kubectl::Kubectl;

/// Name of the ConfigMap, of the policy and of its binding.
pub(crate) const NAME: &str = "imas";
/// Label of a pod: whose entry counts for it.
pub(crate) const WORKLOAD: &str = "imas.io/workload";
/// Annotation of a workload's template: the entry with which its pods were made.
const ENTRY: &str = "imas.io/entry";
/// Label of a namespace that takes part.
pub(crate) const OPT_IN: &str = "imas.io/policy";

/// A Deployment, a StatefulSet, or another object with a template of pods.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Kind, as kubectl names it: `deployment/web`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// `apiVersion` and `kind`, for a document that is applied.
    pub(crate) of_type: [Value; 2],
    template: Value,
    /// The ConfigMap, if there is one.
    parameters: Option<Value>,
}

impl Workload {
    /// Reads it, by a word such as `web` or `statefulset/db`.
    pub(crate) fn read(kubectl: &Kubectl, word: &str) -> Result<Self> {
        let (kind, name) = word.split_once('/').unwrap_or(("deployment", word));
        let is_sound = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        if !is_sound(kind) || !is_sound(name) || name.len() > 63 || word.starts_with('-') {
            bail!("{word}: not the name of a workload: web, deployment/web or statefulset/db");
        }
        let object = kubectl.get(kind, name)?.with_context(|| format!("there is no {kind} {name}"))?;
        Ok(Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: kubectl.namespace()?,
            of_type: [object["apiVersion"].clone(), object["kind"].clone()],
            template: object.pointer("/spec/template").cloned().unwrap_or_default(),
            parameters: kubectl.get("configmap", NAME)?,
        })
    }

    /// Reads the ConfigMap again: somebody may have written into it.
    pub(crate) fn read_again(&mut self, kubectl: &Kubectl) -> Result<()> {
        self.parameters = kubectl.get("configmap", NAME)?;
        Ok(())
    }

    /// Its entry; an empty one if there is none.
    pub(crate) fn entry(&self) -> Entry {
        Entry::read(self.parameter(&self.name).unwrap_or_default())
    }

    /// Value of a key of the ConfigMap; None if it has none.
    pub(crate) fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.as_ref()?["data"][key].as_str().filter(|text| !text.trim().is_empty())
    }

    /// The container that is meant.
    pub(crate) fn container(&self, named: Option<&str>) -> Result<String> {
        let containers = self.template.pointer("/spec/containers").and_then(Value::as_array);
        let names: Vec<_> = containers.into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
        match (named, names.as_slice()) {
            (_, []) => Err(Hinted::error(
                format!("{}/{}: it has no template of pods", self.kind, self.name),
                "name a Deployment, a StatefulSet or a DaemonSet",
            )),
            (Some(name), _) if names.contains(&name) => Ok(name.to_owned()),
            (None, [only]) => Ok((*only).to_owned()),
            _ => Err(Hinted::error(
                format!("{}: which container? It has {}", self.name, names.join(", ")),
                "name it with --container",
            )),
        }
    }

    /// Whether its namespace takes part.
    pub(crate) fn is_in(&self, kubectl: &Kubectl) -> Result<bool> {
        let namespace = kubectl.get("namespace", &self.namespace)?.unwrap_or_default();
        Ok(namespace["metadata"]["labels"][OPT_IN] == "enabled")
    }

    /// The ConfigMap with that entry, all other entries as they are.
    pub(crate) fn parameters_with(&self, entry: &Entry) -> Value {
        let mut data = self.parameters.as_ref().map_or_else(|| json!({}), |old| old["data"].clone());
        if !data.is_object() {
            data = json!({});
        }
        data[&self.name] = json!(entry.to_string());
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": self.namespace }, "data": data })
    }

    /// Patch for the template of its pods. The annotation makes the controller replace the pods when the
    /// entry changes.
    pub(crate) fn template_for(&self, entry: &Entry) -> Value {
        json!({ "spec": { "template": { "metadata": {
            "labels": { WORKLOAD: self.name }, "annotations": { ENTRY: entry.to_string() },
        } } } })
    }

    /// Whether the template has that entry already: writing it again would replace no pod.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        self.template["metadata"]["annotations"][ENTRY] == entry.to_string()
    }

    /// Writes the entry, and nothing else of the ConfigMap.
    pub(crate) fn write_entry(&self, kubectl: &Kubectl, entry: &Entry) -> Result<()> {
        match self.parameters {
            Some(_) => {
                kubectl.merge("configmap", NAME, &json!({ "data": { &self.name: entry.to_string() } }))
            }
            None => kubectl.create(&self.parameters_with(entry)),
        }
    }
}

/// Assignment of candidates to the pods of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The container that is meant; not needed where a pod has one.
    pub(super) container: Option<String>,
    /// Whether the container's `envFrom` is known to set none of our variables.
    pub(super) env_from: bool,
    /// Shares of the pods in per cent, by candidate.
    pub(super) shares: BTreeMap<String, u8>,
    /// Candidates that were taken back after failures.
    pub(super) withdrawn: Vec<String>,
}

impl Entry {
    /// Reads what of the words is understood, as the policy does.
    pub(super) fn read(text: &str) -> Self {
        let mut entry = Self::default();
        for (key, value) in text.split(' ').filter_map(|word| word.split_once('=')) {
            match (key, value.parse()) {
                ("container", _) => entry.container = Some(value.to_owned()),
                ("env-from", _) => entry.env_from = value == "allowed",
                ("withdrawn", _) => entry.withdrawn.push(value.to_owned()),
                (candidate, Ok(share @ 0..=100)) => drop(entry.shares.insert(candidate.to_owned(), share)),
                _ => {}
            }
        }
        entry
    }

    /// Takes a candidate back.
    pub(super) fn withdraw(&mut self, candidate: &str) {
        self.shares.remove(candidate);
        if !self.withdrawn.iter().any(|one| one == candidate) {
            self.withdrawn.push(candidate.to_owned());
        }
    }

    /// Gives all new pods this candidate.
    pub(super) fn keep(&mut self, candidate: &str) {
        self.shares = [(candidate.to_owned(), 100)].into();
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = self.container.iter().map(|name| format!("container={name}"));
        let env_from = self.env_from.then(|| "env-from=allowed".to_owned());
        let shares = self.shares.iter().map(|(name, share)| format!("{name}={share}"));
        let withdrawn = self.withdrawn.iter().map(|name| format!("withdrawn={name}"));
        f.write_str(&container.chain(env_from).chain(shares).chain(withdrawn).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let text = "container=app env-from=allowed glibc.trim=20 jemalloc=100 withdrawn=mimalloc";
        let mut entry = Entry::read(text);
        assert_eq!(entry.to_string(), text);
        entry.withdraw("jemalloc");
        entry.withdraw("jemalloc");
        assert_eq!(
            entry.to_string(),
            "container=app env-from=allowed glibc.trim=20 withdrawn=mimalloc withdrawn=jemalloc"
        );
        entry.keep("glibc.trim");
        assert_eq!(entry.shares, BTreeMap::from([("glibc.trim".to_owned(), 100)]));
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        assert_eq!(Entry::read("x jemalloc=-1 jemalloc=101 jemalloc=300 =\n env-from=no"), Entry::default());
    }
}
