// SPDX-License-Identifier: Apache-2.0
//! `imas kube component`: candidates for clusters without admission policies, as components of Kustomize and as a
//! library chart of Helm. All pods of a workload get one candidate; a share takes a second workload.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_cli::output;
use imas_cli::output_file::{NewFile, OutputFolder};
use imas_core::SYSTEM;
use imas_engine::context::Context;
use serde_json::{Value, json};

use crate::cli::{ComponentArgs, GivenArgs};
use crate::manifests::{self, Environments};
use crate::pods::{CANDIDATE, LIBRARIES};
use crate::workload::WORKLOAD;

/// Kinds whose pods a component changes, as Kustomize reads them: a pattern. A kind of the cluster's own, such as a
/// Rollout, is none: Kustomize does not know its lists, and would put ours in place of them.
const KINDS: &str = "Deployment|StatefulSet|DaemonSet|Job";
/// A kind that has its pods' template one level deeper.
const CRON_JOB: &str = "CronJob";

/// Writes the folders that are asked for.
pub(crate) fn run(args: &ComponentArgs, context: &Context) -> Result<()> {
    let environments = manifests::environments(context, &args.given.with, &args.given.at)?;
    manifests::warn_of_places(context, &args.given.with)?;
    if let Some(folder) = &args.helm {
        write(&folder.join("templates"), &[("_imas.tpl", include_str!("component/_imas.tpl").to_owned())])?;
        write(folder, &[("Chart.yaml", chart()?), ("values.yaml", values(&args.given, &environments)?)])?;
        output::text(&format!("{}: a chart of Helm; its templates say how it is used\n", folder.display()))?;
    }
    if let (Some(folder), Some(workload), Some(container)) =
        (&args.kustomize, &args.workload, &args.container)
    {
        let (untouched, nothing) = (SYSTEM.to_owned(), BTreeMap::new());
        for (name, variables) in environments.iter().chain([(&untouched, &nothing)]) {
            let template = template(&args.given, container, variables);
            let files = [
                ("kustomization.yaml", kustomization(workload)?),
                ("workload.yaml", patch(workload, name, &template)?),
                ("cronjob.yaml", cron_job_patch(workload, name, &template)?),
            ];
            write(&folder.join(name), &files)?;
        }
        output::text(&format!(
            "{0}: components of Kustomize; in a kustomization: components: [{0}/{1}]\n\
             They change a {2} or {CRON_JOB} with the name {workload}, and nothing of another kind (a Rollout).\n",
            folder.display(),
            environments.keys().next().map_or(SYSTEM, String::as_str),
            KINDS.replace('|', ", ")
        ))?;
    }
    Ok(())
}

fn write(folder: &Path, files: &[(&str, String)]) -> Result<()> {
    let new = files.iter().map(|(name, text)| NewFile {
        name: OsStr::new(*name),
        bytes: text.as_bytes(),
        mode: None,
    });
    let written = OutputFolder::make(folder).and_then(|here| here.write_all(&new.collect::<Vec<_>>()));
    written.with_context(|| folder.display().to_string())
}

fn kustomization(workload: &str) -> Result<String> {
    manifests::document(&json!({
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [
            { "path": "workload.yaml", "target": { "kind": KINDS, "name": workload } },
            { "path": "cronjob.yaml", "target": { "kind": CRON_JOB, "name": workload } },
        ],
    }))
}

/// The change of a workload, which Kustomize merges by the names in lists.
fn patch(workload: &str, candidate: &str, spec: &Value) -> Result<String> {
    manifests::document(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": workload },
        "spec": pods(workload, candidate, spec),
    }))
}

/// The change of a workload whose pods belong to its Jobs.
fn cron_job_patch(workload: &str, candidate: &str, spec: &Value) -> Result<String> {
    manifests::document(&json!({
        "apiVersion": "batch/v1",
        "kind": CRON_JOB,
        "metadata": { "name": workload },
        "spec": { "jobTemplate": { "spec": pods(workload, candidate, spec) } },
    }))
}

fn pods(workload: &str, candidate: &str, spec: &Value) -> Value {
    let labels = json!({ WORKLOAD: workload, CANDIDATE: candidate });
    json!({ "template": { "metadata": { "labels": labels }, "spec": spec } })
}

/// Part of the template that pods get; empty under `system`.
fn template(given: &GivenArgs, container: &str, variables: &BTreeMap<String, String>) -> Value {
    if variables.is_empty() {
        return json!({});
    }
    // A variable with a value may not have a source too: null takes away one that the container has.
    let variable =
        |(name, value): (&String, &String)| json!({ "name": name, "value": value, "valueFrom": null });
    let env: Vec<_> = variables.iter().map(variable).collect();
    json!({
        "volumes": [{ "name": LIBRARIES, "emptyDir": {} }],
        "initContainers": [copier(&given.image)],
        "containers": [{
            "name": container,
            "env": env,
            "volumeMounts": [{ "name": LIBRARIES, "mountPath": given.at, "readOnly": true }],
        }],
    })
}

/// The init container that copies the libraries, as `policy/copier.cel` has it for a pod that states no user and no
/// ephemeral storage.
fn copier(image: &str) -> Value {
    let bounds = json!({ "cpu": "10m", "memory": "16Mi" });
    json!({
        "name": LIBRARIES,
        "image": image,
        "args": ["/imas-libraries"],
        "resources": { "requests": bounds, "limits": bounds },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": LIBRARIES, "mountPath": "/imas-libraries" }],
    })
}

fn chart() -> Result<String> {
    manifests::document(&json!({
        "apiVersion": "v2",
        "name": "imas",
        "type": "library",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Pods under an allocator that was measured for them",
    }))
}

fn values(given: &GivenArgs, environments: &Environments) -> Result<String> {
    let values = manifests::document(&json!({
        "candidate": "",
        "workload": "",
        "at": given.at,
        "copier": copier(&given.image),
        "candidates": environments,
    }))?;
    Ok(format!("# The chart that has this one as its dependency sets candidate and workload.\n{values}"))
}
