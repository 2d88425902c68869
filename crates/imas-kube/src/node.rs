// SPDX-License-Identifier: Apache-2.0
//! `imas kube node`: the containers of this node, its workloads with what they could gain without a trial, and both as
//! metrics.

use anyhow::Result;
use imas_cli::format::mib;
use imas_cli::{output, table};
use serde_json::json;

use crate::cli::NodeArgs;
use crate::gains::{self, Gain};
use crate::row::{self, Row};
use crate::{listen, metrics};

/// Prints what is there, or serves it.
pub(crate) fn run(args: &NodeArgs) -> Result<()> {
    if let Some(address) = args.listen {
        return listen::serve(address, args.every, || metrics::text(&row::look(args)?));
    }
    let rows = row::look(args)?;
    if args.metrics {
        return output::text(&metrics::text(&rows)?);
    }
    match (args.advise, args.json.json) {
        (true, true) => output::json(&json!({ "schema": 1, "workloads": advised(&rows) })),
        (true, false) => output::text(&page_of_gains(&advised(&rows))),
        (false, true) => output::json(&json!({ "schema": 1, "containers": rows })),
        (false, false) => output::text(&page(&rows)),
    }
}

fn advised(rows: &[Row]) -> Vec<Gain> {
    let mut gains = gains::of(rows);
    gains.iter_mut().for_each(Gain::name_runtime);
    gains
}

fn bytes(bytes: u64) -> String {
    mib(bytes as f64)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn cells(row: &Row) -> Vec<String> {
    let name = row.name.as_ref().map(|name| format!("{}/{}/{}", name.namespace, name.pod, name.container));
    vec![
        name.unwrap_or_else(|| row.id.clone()),
        row.program.display().to_string(),
        format!("{} {}", row.libc, row.glibc.as_deref().unwrap_or_default()).trim_end().to_owned(),
        or_dash(row.library.clone()),
        bytes(row.resident),
        or_dash(row.free.map(bytes)),
        or_dash(row.group.nearness().map(percent)),
        or_dash(row.restarts.map(|count| count.to_string())),
        or_dash(row.group.oom_kills.map(|count| count.to_string())),
        or_dash(row.group.throttled.map(percent)),
        row.advice.clone(),
    ]
}

fn cells_of_gain(gain: &Gain) -> Vec<String> {
    vec![
        gain.to_string(),
        gain.containers.to_string(),
        gain.libc.to_string(),
        bytes(gain.resident),
        or_dash(gain.free.map(bytes)),
        or_dash(gain.free.map(|free| percent(free as f64 / gain.resident.max(1) as f64))),
        or_dash(gain.nearness.map(percent)),
        gain.advice.clone(),
    ]
}

const NOTHING: &str =
    "no container that you may look into: root may look into all in control groups of version 2\n";

fn page(rows: &[Row]) -> String {
    if rows.is_empty() {
        return NOTHING.to_owned();
    }
    let head = [
        "container",
        "program",
        "libc",
        "candidate",
        "MiB",
        "free",
        "of limit",
        "restarts",
        "OOM kills",
        "throttled",
        "what to do",
    ];
    table::plain(&head, rows.iter().map(cells))
}

fn page_of_gains(gains: &[Gain]) -> String {
    if gains.is_empty() {
        return NOTHING.to_owned();
    }
    let head = ["workload", "containers", "libc", "MiB", "free", "share", "of limit", "without a trial"];
    table::plain(&head, gains.iter().map(cells_of_gain))
}
