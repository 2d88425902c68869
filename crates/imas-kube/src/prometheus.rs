// SPDX-License-Identifier: Apache-2.0
//! What a Prometheus knows of pods, asked by the user's own curl: its logins, certificates and proxies count.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use imas_cli::message::{self, Hinted};
use serde_json::Value;

use crate::cli::PrometheusArgs;
use crate::pods::Pod;

/// Longest time for one answer, in seconds. Meanwhile nobody looks whether pods crash.
const TIMEOUT_S: &str = "10";

/// Puts CPU time of a request in place of CPU by time, where requests are counted, and adds latencies. What is not
/// known of a pod is None.
pub(crate) fn add(args: &PrometheusArgs, pods: &mut [Pod], namespace: &str) {
    let Some(url) = &args.url else { return };
    let known = |query: &str| {
        by_pod(url, query, namespace).unwrap_or_else(|error| {
            message::warning(&format!("{query}: {error:#}"));
            BTreeMap::new()
        })
    };
    let requests = args.queries.requests.as_deref().map(known);
    let latencies = args.queries.latency.as_deref().map(known);
    for pod in pods {
        if let Some(requests) = &requests {
            let rate = requests.get(&pod.name).filter(|rate| **rate > 0.0);
            pod.cpu = pod.cpu.zip(rate).map(|(cores, rate)| cores / rate);
        }
        pod.latency = latencies.as_ref().and_then(|latencies| latencies.get(&pod.name).copied());
    }
}

/// Values of the query by the label `pod`.
fn by_pod(url: &str, query: &str, namespace: &str) -> Result<BTreeMap<String, f64>> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--globoff", "--max-time", TIMEOUT_S, "--get"]);
    curl.arg("--data-urlencode").arg(format!("query={query}"));
    curl.arg("--url").arg(format!("{}/api/v1/query", url.trim_end_matches('/')));
    let ended = curl.output().map_err(|error| {
        Hinted::error(format!("curl cannot be run: {error}"), "install curl; it is the client that is used")
    })?;
    if !ended.status.success() {
        bail!("{}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    values(&serde_json::from_slice(&ended.stdout).context("no answer of a Prometheus")?, namespace)
}

fn values(answer: &Value, namespace: &str) -> Result<BTreeMap<String, f64>> {
    if answer["status"] != "success" {
        bail!("{}", answer["error"].as_str().unwrap_or("no answer of a Prometheus"));
    }
    let mut values = BTreeMap::new();
    for series in answer["data"]["result"].as_array().into_iter().flatten() {
        let labels = &series["metric"];
        if labels["namespace"].as_str().is_some_and(|name| name != namespace) {
            continue;
        }
        let pod =
            labels["pod"].as_str().context("a series without the label pod: write sum by (pod) (...)")?;
        let value = series["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
        let Some(value) = value.filter(|value| value.is_finite()) else { continue };
        if values.insert(pod.to_owned(), value).is_some() {
            bail!("several series of the pod {pod}: write sum by (pod) (...)");
        }
    }
    if values.is_empty() {
        bail!("no figure of a pod");
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(series: &[(Value, &str)]) -> Value {
        let result: Vec<_> =
            series.iter().map(|(labels, value)| json!({ "metric": labels, "value": [1.5, value] })).collect();
        json!({ "status": "success", "data": { "resultType": "vector", "result": result } })
    }

    #[test]
    fn figures_of_other_namespaces_and_without_a_value_are_left_out() {
        let of = |pod: &str, namespace: &str| json!({ "pod": pod, "namespace": namespace });
        let series = [
            (json!({ "pod": "a" }), "0.5"),
            (of("b", "shop"), "2"),
            (of("b", "other"), "7"),
            (json!({ "pod": "c" }), "NaN"),
        ];
        let expected = BTreeMap::from([("a".to_owned(), 0.5), ("b".to_owned(), 2.0)]);
        assert_eq!(values(&answer(&series), "shop").unwrap(), expected);
    }

    #[test]
    fn what_is_no_figure_by_pod_is_said() {
        let pod = || json!({ "pod": "a" });
        for (bad, said) in [
            (json!({ "status": "error", "error": "parse error" }), "parse error"),
            (json!([]), "no answer of a Prometheus"),
            (answer(&[]), "no figure of a pod"),
            (answer(&[(json!({ "instance": "x" }), "1")]), "without the label pod"),
            (answer(&[(pod(), "1"), (pod(), "2")]), "several series of the pod a"),
            (
                json!({ "status": "success", "data": { "resultType": "scalar", "result": [1.5, "1"] } }),
                "without the label pod",
            ),
        ] {
            let error = values(&bad, "shop").unwrap_err().to_string();
            assert!(error.contains(said), "{bad}: {error}");
        }
    }
}
