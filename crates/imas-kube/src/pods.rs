// SPDX-License-Identifier: Apache-2.0
//! The pods of a workload, as the apiserver and metrics-server know them.
//!
//! Types of the cluster's nodes: pods are compared with pods on nodes of the same type.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::workload::WORKLOAD;

/// Label of a pod: the candidate that the policy gave it.
pub(crate) const CANDIDATE: &str = "imas.io/candidate";
/// Annotation of a pod: why the policy left it alone.
const LEFT_ALONE: &str = "imas.io/left-alone";
/// The volume with the libraries, and the init container that copies them.
pub(crate) const LIBRARIES: &str = "imas-libraries";
/// Exit status of a program that was asked to end.
const TERMINATED: i64 = 143;
/// Reasons of an end for which no program ran, or nobody knows whether it did. It counts where the message names our
/// volume: the container cannot mount it.
const NEVER_RAN: [&str; 4] =
    ["ContainerCannotRun", "ContainerStatusUnknown", "RunContainerError", "StartError"];

/// One pod, and the container that is meant in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// Uid of the pod: a StatefulSet gives a new pod the old name.
    pub(crate) uid: String,
    /// The candidate; `system` for a pod that the draw left untouched.
    pub(crate) candidate: Option<String>,
    pub(crate) left_alone: Option<String>,
    /// Name of the container that is meant.
    pub(crate) container: String,
    /// Preloads of the container, where it has our libraries.
    pub(crate) preload: Option<String>,
    /// The process that lacks the candidate, where somebody looked into the pod.
    pub(crate) lacks: Option<String>,
    pub(crate) is_ready: bool,
    /// Whether its controller has another in its place: it was evicted, or its program has ended for good.
    pub(crate) has_ended: bool,
    /// Why it does not start: the image cannot be had, for example.
    pub(crate) waits: Option<String>,
    /// Whether it waits for our libraries, and not for something of its own.
    pub(crate) waits_for_us: bool,
    /// The node that it runs on.
    pub(crate) node: Option<String>,
    /// Seconds since its container started.
    pub(crate) age_s: Option<u64>,
    /// Number of ends by a failure of a program that ran, an exceeded memory limit among them.
    pub(crate) failures: u32,
    pub(crate) oom_kills: u32,
    /// Cause of the last failure.
    pub(crate) last_failure: Option<String>,
    /// Bytes, by metrics-server.
    pub(crate) memory: Option<f64>,
    /// Cores, by metrics-server; CPU seconds of a request, where a Prometheus counts them.
    pub(crate) cpu: Option<f64>,
    /// Seconds, by a Prometheus.
    pub(crate) latency: Option<f64>,
}

/// The workload's pods that are not about to end. `container`: the one that the workload's entry names.
pub(crate) fn all(
    kubectl: &Kubectl,
    workload: &str,
    namespace: &str,
    container: Option<&str>,
) -> Result<Vec<Pod>> {
    let selector = format!("{WORKLOAD}={workload}");
    let pods = kubectl.list("pods", &selector)?;
    let path = format!(
        "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={WORKLOAD}%3D{workload}"
    );
    let figures = kubectl.raw(&path).unwrap_or_default();
    let is_living = |pod: &&Value| pod["metadata"].get("deletionTimestamp").is_none();
    let living: Vec<_> = pods.iter().filter(is_living).collect();
    let container = container.or_else(|| living.iter().copied().find_map(container_with_libraries));
    Ok(living.into_iter().map(|pod| Pod::read(pod, &figures, container)).collect())
}

impl Pod {
    /// `container`: the one that is meant in pods without our mount.
    fn read(pod: &Value, figures: &Value, container: Option<&str>) -> Self {
        let meta = &pod["metadata"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let name = text(&meta["name"]).unwrap_or_default();
        let first = || pod.pointer("/spec/containers/0/name").and_then(Value::as_str);
        let container = container_with_libraries(pod).or(container).or_else(first).unwrap_or_default();
        let figures = figures["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["metadata"]["name"] == meta["name"]);
        let used = figures.and_then(|one| named(&one["containers"], container)).map(|one| &one["usage"]);
        let status = named(&pod["status"]["containerStatuses"], container);
        // With a reason of its own, the node ended the pod: it was evicted, for example.
        let is_ended_by_node = !pod["status"]["reason"].is_null();
        let copier = named(&pod["status"]["initContainerStatuses"], LIBRARIES);
        let by_us = copier.filter(|_| !is_ended_by_node).and_then(copier_fails);
        let mut read = Self {
            name,
            uid: text(&meta["uid"]).unwrap_or_default(),
            candidate: text(&meta["labels"][CANDIDATE]),
            left_alone: text(&meta["annotations"][LEFT_ALONE]),
            container: container.to_owned(),
            preload: preload(pod, container).map(str::to_owned),
            lacks: None,
            is_ready: status.is_some_and(|status| status["ready"] == true),
            has_ended: matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")),
            waits_for_us: by_us.is_some() || status.is_some_and(|status| waits_for_libraries(pod, status)),
            waits: status.and_then(waits).or(by_us),
            node: text(&pod["spec"]["nodeName"]),
            age_s: status.and_then(age_s),
            failures: 0,
            oom_kills: 0,
            last_failure: None,
            memory: used.and_then(|used| quantity(used["memory"].as_str()?)),
            cpu: used.and_then(|used| quantity(used["cpu"].as_str()?)),
            latency: None,
        };
        if let Some(status) = status.filter(|_| !is_ended_by_node) {
            read.count_ends(status);
        }
        read
    }

    /// Adds the ends of the container. The apiserver keeps the number of restarts, and how the last end was.
    fn count_ends(&mut self, status: &Value) {
        let restarts =
            status["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let ends = [&status["lastState"]["terminated"], &status["state"]["terminated"]];
        let failed = |end: &&Value| {
            let ran = end["reason"].as_str().is_none_or(|reason| !NEVER_RAN.contains(&reason));
            let by_us = end["message"].as_str().is_some_and(|message| message.contains(LIBRARIES));
            (ran || by_us) && end["exitCode"].as_i64().is_some_and(|code| code != 0 && code != TERMINATED)
        };
        let Some(last) = ends.into_iter().rev().find(failed) else { return };
        let is_now = u32::from(failed(&ends[1]));
        self.failures = restarts + is_now;
        let reason = last["reason"].as_str().unwrap_or("Error");
        self.oom_kills = u32::from(reason == "OOMKilled");
        self.last_failure = Some(format!("{reason}, exit status {}", last["exitCode"]));
    }
}

/// Name of the container that has our mount. A sidecar may come before it, and in other pods nothing marks it.
fn container_with_libraries(pod: &Value) -> Option<&str> {
    let has_mount = |one: &&Value| named(&one["volumeMounts"], LIBRARIES).is_some();
    pod["spec"]["containers"].as_array()?.iter().find(has_mount)?["name"].as_str()
}

/// Preloads of a container; `None` where they are not stated.
fn preload<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    named(&named(&pod["spec"]["containers"], container)?["env"], "LD_PRELOAD")?["value"].as_str()
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|one| one["name"] == name)
}

/// Seconds since the container started, by the clock of this machine; 0 where that one is behind.
fn age_s(status: &Value) -> Option<u64> {
    let started: Timestamp = status["state"]["running"]["startedAt"].as_str()?.parse().ok()?;
    Some(u64::try_from(Timestamp::now().as_second() - started.as_second()).unwrap_or(0))
}

/// Reasons for which a container does not start, other than that it is about to.
fn waits(status: &Value) -> Option<String> {
    let reason = status["state"]["waiting"]["reason"].as_str()?;
    let is_usual = matches!(reason, "ContainerCreating" | "PodInitializing" | "CrashLoopBackOff");
    (!is_usual).then(|| reason.to_owned())
}

/// Whether the container waits for the libraries: the message names their volume or its image, or says that kubelet
/// could not mount an image.
fn waits_for_libraries(pod: &Value, status: &Value) -> bool {
    let Some(message) = status["state"]["waiting"]["message"].as_str() else { return false };
    let image = named(&pod["spec"]["volumes"], LIBRARIES).and_then(|one| one["image"]["reference"].as_str());
    let is_of_image =
        |image: &str| has_reference(message, image) || message.starts_with("ImageVolumeMountFailed");
    message.contains(LIBRARIES) || image.is_some_and(is_of_image)
}

/// Whether the text has the reference of an image, and not as the beginning of another one.
fn has_reference(text: &str, image: &str) -> bool {
    let goes_on = |rest: &str| {
        rest.trim_start_matches(['-', '_', '.', '/']).starts_with(|sign: char| sign.is_ascii_alphanumeric())
    };
    text.match_indices(image).any(|(at, _)| !goes_on(&text[at + image.len()..]))
}

/// Why the copier does not do its work. One that has done it may have failed before.
fn copier_fails(status: &Value) -> Option<String> {
    if status["state"]["terminated"]["exitCode"] == 0 {
        return None;
    }
    let ends = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let failed = ends.into_iter().find(|end| end["exitCode"].as_i64().is_some_and(|code| code != 0));
    let said = failed.map(|end| format!("the copier: {}", end["reason"].as_str().unwrap_or("Error")));
    said.or_else(|| waits(status))
}

/// Reads a quantity of Kubernetes: `12Mi`, `250m`, `1500000n`.
fn quantity(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let (number, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    number
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0)
        .map(|number| number * factor)
}

/// The type of each node, by its name.
pub(super) type Types = BTreeMap<String, String>;

/// Reads the types where a pod runs on a node that was not asked for yet. A type that cannot be had is empty.
pub(super) fn learn_nodes(kubectl: &Kubectl, pods: &[Pod], types: &mut Types) -> Result<()> {
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

/// Type of a machine: the cloud's name for it, its architecture and number of CPUs. Without a cloud the first
/// is missing, or the same for all.
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
    use serde_json::json;

    use super::*;

    /// The pod, if metrics-server does not know it.
    fn read(pod: &Value) -> Pod {
        Pod::read(pod, &Value::Null, None)
    }

    #[test]
    fn quantities_are_read() {
        assert_eq!(quantity("12Ki"), Some(12288.0));
        assert_eq!(quantity("250m"), Some(0.25));
        assert_eq!(quantity("1500000n"), Some(0.0015));
        assert_eq!(quantity("77"), Some(77.0));
        assert_eq!((quantity("x"), quantity("-1Mi"), quantity("")), (None, None, None));
    }

    #[test]
    fn an_end_by_a_limit_is_a_failure_and_one_that_was_asked_for_is_none() {
        let pod = |last: Value, restarts: u32| {
            let status = json!([{ "name": "app", "restartCount": restarts, "ready": true, "lastState": { "terminated": last } }]);
            let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "app" }] }, "status": { "containerStatuses": status } });
            read(&pod)
        };
        let killed = pod(json!({ "exitCode": 137, "reason": "OOMKilled" }), 2);
        assert_eq!((killed.failures, killed.oom_kills, killed.is_ready), (2, 1, true));
        assert_eq!(pod(json!({ "exitCode": 143, "reason": "Error" }), 1).failures, 0);
        assert_eq!(pod(json!({ "exitCode": 0 }), 1).failures, 0);
        assert_eq!(pod(json!({ "exitCode": 139, "reason": "Error" }), 1).failures, 1);
        for reason in NEVER_RAN {
            assert_eq!(pod(json!({ "exitCode": 128, "reason": reason }), 3).failures, 0, "{reason}");
        }
        let message = "error mounting \"/var/lib/kubelet/x/imas-libraries\" to rootfs at \"/opt/imas\"";
        let end = json!({ "exitCode": 128, "reason": "StartError", "message": message });
        assert_eq!(pod(end, 3).failures, 3, "it cannot mount our volume");
    }

    #[test]
    fn the_age_is_that_of_the_container() {
        let age = |started: &str| age_s(&json!({ "state": { "running": { "startedAt": started } } }));
        let hour_ago = Timestamp::from_second(Timestamp::now().as_second() - 3600).unwrap();
        assert!((3600..3660).contains(&age(&hour_ago.to_string()).unwrap()));
        assert_eq!((age("2999-01-01T00:00:00Z"), age("x"), age_s(&json!({}))), (Some(0), None, None));
    }

    #[test]
    fn an_end_by_the_node_is_no_failure() {
        let status =
            json!([{ "name": "app", "state": { "terminated": { "exitCode": 137, "reason": "Error" } } }]);
        let pod = |reason: Value| {
            let status = json!({ "containerStatuses": status, "reason": reason });
            read(&json!({ "spec": { "containers": [{ "name": "app" }] }, "status": status })).failures
        };
        assert_eq!((pod(json!(null)), pod(json!("Evicted"))), (1, 0));
    }

    #[test]
    fn a_pod_waits_for_us_where_our_image_is_named() {
        let pod = |message: &str| {
            let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": message } });
            let volume = json!({ "name": LIBRARIES, "image": { "reference": "registry.test/imas:1" } });
            let pod = json!({
                "spec": { "containers": [{ "name": "app" }], "volumes": [volume] },
                "status": { "containerStatuses": [{ "name": "app", "state": waiting }] },
            });
            let pod = read(&pod);
            (pod.waits, pod.waits_for_us)
        };
        let waits = Some("ErrImagePull".to_owned());
        for (image, is_ours) in [
            ("registry.test/imas:1", true),
            ("registry.test/app:1", false),
            ("registry.test/imas:1.2", false),
            ("registry.test/imas:1-app", false),
        ] {
            let message = format!("failed to pull \"{image}\": not found");
            assert_eq!(pod(&message), (waits.clone(), is_ours), "{image}");
        }
        assert!(pod("error mounting \"/x/empty-dir/imas-libraries\": read-only file system").1);
        assert!(pod("ImageVolumeMountFailed: x").1 && !pod("error mounting \"/x/empty-dir/data\"").1);
    }

    #[test]
    fn the_same_container_is_meant_in_all_pods() {
        let pod = |mounts: Value| {
            let containers =
                json!([{ "name": "proxy" }, { "name": "app", "volumeMounts": [{ "name": "data" }, mounts] }]);
            json!({ "metadata": { "name": "a" }, "spec": { "containers": containers } })
        };
        let usage = |memory: &str| json!({ "memory": memory, "cpu": "1" });
        let usages =
            json!([{ "name": "proxy", "usage": usage("9") }, { "name": "app", "usage": usage("7") }]);
        let figures = json!({ "items": [{ "metadata": { "name": "a" }, "containers": usages }] });
        let (given, untouched) = (pod(json!({ "name": LIBRARIES })), pod(json!({ "name": "more" })));
        assert_eq!(container_with_libraries(&given), Some("app"));
        assert_eq!(container_with_libraries(&untouched), None);
        let memory = |pod: &Value, container| Pod::read(pod, &figures, container).memory;
        assert_eq!((memory(&given, None), memory(&given, Some("proxy"))), (Some(7.0), Some(7.0)));
        assert_eq!((memory(&untouched, Some("app")), memory(&untouched, None)), (Some(7.0), Some(9.0)));
        assert_eq!(memory(&untouched, Some("gone")), None);
    }

    #[test]
    fn a_copier_that_fails_is_why_a_pod_waits() {
        let failed = json!({ "terminated": { "exitCode": 137, "reason": "Error" } });
        let of = |status: Value| {
            read(&json!({ "spec": { "containers": [{ "name": "app" }] }, "status": status })).waits
        };
        let copier =
            |name: &str, state: &Value| json!([{ "name": name, "state": state, "lastState": failed }]);
        let pod = |state: Value| of(json!({ "initContainerStatuses": copier(LIBRARIES, &state) }));
        assert_eq!(
            pod(json!({ "terminated": { "exitCode": 1, "reason": "StartError" } })).unwrap(),
            "the copier: StartError"
        );
        assert_eq!(pod(json!({ "running": {} })).unwrap(), "the copier: Error", "it tries again");
        assert_eq!(pod(json!({ "terminated": { "exitCode": 0 } })), None, "it failed before");
        assert_eq!(
            of(json!({ "initContainerStatuses": copier("migrate", &json!({})) })),
            None,
            "another one"
        );
        let evicted = json!({ "initContainerStatuses": copier(LIBRARIES, &json!({})), "reason": "Evicted" });
        assert_eq!(of(evicted), None);
        let pulls = json!([{ "name": LIBRARIES, "state": { "waiting": { "reason": "ErrImagePull" } } }]);
        assert_eq!(of(json!({ "initContainerStatuses": pulls })).unwrap(), "ErrImagePull");
    }

    #[test]
    fn a_pod_of_odd_shape_is_read_as_far_as_it_goes() {
        for odd in
            [json!(null), json!([]), json!({ "metadata": 7, "spec": { "containers": "x" }, "status": [] })]
        {
            assert_eq!(Pod::read(&odd, &odd, None).name, "");
        }
    }

    #[test]
    fn a_node_without_a_cloud_has_its_architecture_and_size() {
        let labels = json!({ "kubernetes.io/arch": "arm64" });
        let node = json!({ "metadata": { "labels": labels }, "status": { "capacity": { "cpu": "8" } } });
        assert_eq!(type_of(&node), "? arm64 8");
        assert_eq!(type_of(&json!([])), "? ? ?");
    }
}
