// SPDX-License-Identifier: Apache-2.0
//! Figures of pods from a Prometheus, asked by the user's own curl: its logins, certificates and proxies
//! count.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use imas_cli::message::{self, Hinted};
use serde_json::Value;

use crate::cli::PrometheusArgs;
use crate::pods::Pod;
use crate::workload::NAME;

/// Keys of the ConfigMap, for the queries of requests and of latencies. No label begins so, so no workload has one
/// as its name.
pub(crate) const KEYS: [&str; 2] = ["_requests", "_latency"];
/// Longest time for one answer, in seconds. Meanwhile nobody looks whether pods crash.
const TIMEOUT_S: &str = "10";

/// The Prometheus with the queries that count: the command line's, else what the ConfigMap has. Its address is
/// never read there: curl may send a login to it.
pub(crate) fn asked<'a>(
    args: &PrometheusArgs,
    kept: impl Fn(&str) -> Option<&'a str>,
) -> Result<PrometheusArgs> {
    let mut asked = args.clone();
    if asked.url.is_none() {
        return Ok(asked);
    }
    let queries = &mut asked.queries;
    for (query, key) in [&mut queries.requests, &mut queries.latency].into_iter().zip(KEYS) {
        *query = query.take().or_else(|| kept(key).map(str::to_owned));
    }
    if queries.requests.is_none() && queries.latency.is_none() {
        return Err(Hinted::error(
            "--prometheus without a query",
            format!("give --requests or --latency, or write {} into the ConfigMap {NAME}", KEYS.join(" or ")),
        ));
    }
    Ok(asked)
}

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
    use crate::cli::QueryArgs;
    use serde_json::json;

    #[test]
    fn a_query_of_the_command_line_counts_before_that_of_the_config_map() {
        let args = |url: Option<&str>, requests: Option<&str>| PrometheusArgs {
            url: url.map(str::to_owned),
            queries: QueryArgs { requests: requests.map(str::to_owned), latency: None },
        };
        let has = |key: &str| Some(if key == "_requests" { "kept" } else { "p99" });
        let found = |url, requests| {
            let asked = asked(&args(url, requests), has).unwrap().queries;
            (asked.requests.unwrap_or_default(), asked.latency.unwrap_or_default())
        };
        let of = |requests: &str, latency: &str| (requests.to_owned(), latency.to_owned());
        assert_eq!(found(Some("http://x"), Some("own")), of("own", "p99"));
        assert_eq!(found(Some("http://x"), None), of("kept", "p99"));
        assert_eq!(found(None, None), of("", ""));
        assert!(asked(&args(Some("http://x"), Some("own")), |_| None).is_ok());
        assert!(asked(&args(Some("http://x"), None), |_| None).is_err());
    }

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
