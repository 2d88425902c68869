// SPDX-License-Identifier: Apache-2.0
//! The workloads of a node as OpenMetrics. Labels are namespace, workload and container, no more: no command line, no
//! path, no variable.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use anyhow::Result;
use imas_core::printable;
use imas_core::trimming::TrimSums;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::gains::{self, Gain};
use crate::look::{Look, Unseen};

type Labels = Vec<(&'static str, String)>;
/// A figure of a workload; None where it is not known.
type Figure = fn(&Gain) -> Option<f64>;

/// Name, help and value of what each workload has.
const FIGURES: [(&str, &str, Figure); 9] = [
    ("containers", "Containers of the workload on this node", |gain| Some(gain.containers as f64)),
    ("resident_bytes", "Resident memory of their processes", |gain| Some(gain.resident as f64)),
    ("returnable_bytes", "Free pages in glibc's heaps that malloc_trim(0) would return", |gain| {
        Some(gain.free? as f64)
    }),
    ("unreadable_containers", "Containers whose heaps of glibc could not be read", |gain| {
        Some(gain.not_readable as f64)
    }),
    ("lost_containers", "Containers whose largest process lacks the candidate it was started with", |gain| {
        Some(gain.lost as f64)
    }),
    (
        "oom_kills",
        "Processes that the kernel killed because of the limit, in the containers that live",
        |gain| Some(gain.oom_kills as f64),
    ),
    ("restarts", "Times that kubelet started its containers anew", |gain| Some(gain.restarts as f64)),
    ("cpu_seconds", "CPU time of its containers, those that live", |gain| gain.cpu_s),
    ("limit_ratio", "Used share of its memory limit, of the container that is nearest to it", |gain| {
        gain.nearness
    }),
];

/// Value of what came of all trims together.
type Sum = fn(&TrimSums) -> f64;

/// Name, help and value of the sums over all trims.
const SUMS: [(&str, &str, Sum); 4] = [
    ("trims", "Trims of processes in pods", |sums| sums.trims as f64),
    ("trim_returned_bytes", "Memory that trims returned", |sums| sums.returned as f64),
    ("trim_came_back_bytes", "Memory of it that was taken back within minutes", |sums| sums.came_back as f64),
    ("trim_cost_seconds", "CPU time that looks and trims cost at most", |sums| sums.spent.as_secs_f64()),
];

/// The text for a collector.
pub(crate) fn text(look: &Look, trims: Option<TrimSums>) -> Result<String> {
    let gains = gains::of(&look.rows);
    let mut registry = Registry::with_prefix("imas_node");
    for (name, help, figure) in FIGURES {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (gain, value) in gains.iter().filter_map(|gain| Some((gain, figure(gain)?))) {
            family.get_or_create(&labels(gain)).set(value);
        }
        registry.register(name, help, family);
    }
    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (labels, processes) in unseen(&look.unseen) {
        family.get_or_create(&labels).set(processes as f64);
    }
    let help = "Processes that were not looked at, or not to the end: looks at its pods took too long, or one has too much";
    registry.register("unseen_processes", help, family);
    let disputed = Gauge::<f64, AtomicU64>::default();
    disputed.set(look.disputed.len() as f64);
    let help = "Ids of containers that more than one control group claims: these count for nobody";
    registry.register("disputed_containers", help, disputed);
    for (sums, (name, help, sum)) in trims.iter().flat_map(|sums| SUMS.map(|one| (sums, one))) {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(sum(sums));
        registry.register(name, help, gauge);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Processes by workload; those beyond the number that is shown one by one are added up.
fn unseen(all: &[Unseen]) -> BTreeMap<Labels, usize> {
    let mut found = BTreeMap::new();
    for one in all {
        let mut labels = of_names(gains::names(one.name.as_ref()));
        if found.len() >= gains::MOST && !found.contains_key(&labels) {
            labels = of_names(["", gains::OTHER, ""]);
        }
        *found.entry(labels).or_default() += one.processes;
    }
    found
}

fn labels(gain: &Gain) -> Labels {
    of_names([&gain.namespace, &gain.workload, &gain.container])
}

fn of_names([namespace, workload, container]: [&str; 3]) -> Labels {
    let label = |name, text: &str| (name, printable::name(text).into_owned());
    vec![label("namespace", namespace), label("workload", workload), label("container", container)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gains::tests::row;
    use crate::look::Disputed;

    #[test]
    fn a_workload_is_a_line_of_each_figure() {
        let rows = vec![row(Some("web"), 100, Some(7)), row(Some("web"), 100, None)];
        let name = row(Some("db"), 1, None).name;
        let unseen = [3, 4].map(|processes| Unseen { id: "0".into(), name: name.clone(), processes }).into();
        let disputed = vec![Disputed { id: "0".into(), groups: vec![] }];
        let text = text(&Look { rows, unseen, disputed }, Some(TrimSums { trims: 3, ..TrimSums::default() }))
            .unwrap();
        let of_db = r#"imas_node_unseen_processes{namespace="shop",workload="db",container="app"} 7.0"#;
        assert!(text.contains(of_db) && text.contains("imas_node_disputed_containers 1.0"), "{text}");
        let labels = r#"{namespace="shop",workload="web",container="app"}"#;
        for (name, value) in [
            ("containers", "2.0"),
            ("resident_bytes", "200.0"),
            ("returnable_bytes", "7.0"),
            ("restarts", "6.0"),
            ("cpu_seconds", "3.0"),
        ] {
            let line = format!("imas_node_{name}{labels} {value}");
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("\nimas_node_trims 3.0\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_hostile_name_ends_no_line_and_no_quotation() {
        let rows = vec![row(Some("a\"} 1\nimas_node_x{y=\"\u{1b}[2J"), 100, None)];
        let text = text(&Look { rows, ..Look::default() }, None).unwrap();
        assert!(
            !text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("imas_node_x")),
            "{text}"
        );
        assert!(text.contains(r#"a\""#), "{text}");
    }
}
