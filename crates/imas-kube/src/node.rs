// SPDX-License-Identifier: Apache-2.0
//! `imas kube node`: the containers of this node, its workloads with what they could gain without a trial, and both as
//! metrics.

use anyhow::Result;
use imas_cli::format::{counted, mib};
use imas_cli::{output, table};
use imas_core::printable;
use serde_json::json;

use crate::cli::NodeArgs;
use crate::gains::{self, Gain};
use crate::look::Look;
use crate::pod_names::PodName;
use crate::row::Row;
use crate::{listen, metrics, trims};

/// Prints what is there, or serves it.
pub(crate) fn run(args: &NodeArgs) -> Result<()> {
    if let Some(address) = args.listen {
        let sums = trims::begin(args)?;
        let trims = || sums.as_ref().map(trims::now);
        return listen::serve(address, args.every, || metrics::text(&Look::now(args)?, trims()));
    }
    let look = Look::now(args)?;
    if args.metrics {
        return output::text(&metrics::text(&look, None)?);
    }
    let noted = |page: String| output::text(&(page + &notes(&look)));
    match (args.advise, args.json.json) {
        (true, true) => output::json(&json!({ "schema": 1, "workloads": advised(&look.rows) })),
        (true, false) => noted(page_of_gains(&advised(&look.rows))),
        (false, true) => {
            let Look { rows, unseen, disputed } = &look;
            output::json(&json!({ "schema": 1, "containers": rows, "unseen": unseen, "disputed": disputed }))
        }
        (false, false) => noted(page(&look.rows)),
    }
}

/// Most containers that are named in the notes.
const NOTED: usize = 20;

/// Notes on what the table leaves out, with the reasons.
fn notes(look: &Look) -> String {
    let unseen = look.unseen.iter().take(NOTED).map(|one| {
        let processes = counted(one.processes, "process");
        format!("not looked at, or not to the end: {processes} of {}\n", shown(one.name.as_ref(), &one.id))
    });
    let disputed = look.disputed.iter().take(NOTED).map(|one| {
        let groups: Vec<_> = one.groups.iter().map(|group| printable::name(group)).collect();
        format!(
            "left out: {} groups have the id of container {}: {}\n",
            groups.len(),
            one.id,
            groups.join(", ")
        )
    });
    let more = (look.unseen.len() + look.disputed.len()).saturating_sub(2 * NOTED);
    let more = (more > 0).then(|| "'--json' lists all\n".to_owned());
    let lines: String = unseen.chain(disputed).chain(more).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn shown(name: Option<&PodName>, id: &str) -> String {
    name.map_or_else(|| id.to_owned(), |name| format!("{}/{}/{}", name.namespace, name.pod, name.container))
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
    vec![
        shown(row.name.as_ref(), &row.id),
        row.program.display().to_string(),
        format!("{} {}", row.libc, row.glibc.as_deref().unwrap_or_default()).trim_end().to_owned(),
        or_dash(
            row.lost
                .as_ref()
                .map(|name| format!("lost: {}", printable::name(name)))
                .or_else(|| row.library.clone()),
        ),
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
