// SPDX-License-Identifier: Apache-2.0
//! The workloads of a node as OpenMetrics. Labels are namespace, workload and container, no more: no command line, no
//! path, no variable.

use std::sync::atomic::AtomicU64;

use anyhow::Result;
use imas_core::printable;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::gains::{self, Gain};
use crate::row::Row;

type Labels = Vec<(&'static str, String)>;
/// A figure of a workload; None where it is not known.
type Figure = fn(&Gain) -> Option<f64>;

/// Name, help and value of what each workload has.
const FIGURES: [(&str, &str, Figure); 8] = [
    ("containers", "Containers of the workload on this node", |gain| Some(gain.containers as f64)),
    ("resident_bytes", "Resident memory of their processes", |gain| Some(gain.resident as f64)),
    ("returnable_bytes", "Free pages in glibc's heaps that malloc_trim(0) would return", |gain| {
        Some(gain.free? as f64)
    }),
    ("unreadable_containers", "Containers whose heaps of glibc could not be read", |gain| {
        Some(gain.not_readable as f64)
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

/// The text for a collector.
pub(crate) fn text(rows: &[Row]) -> Result<String> {
    let gains = gains::of(rows);
    let mut registry = Registry::with_prefix("imas_node");
    for (name, help, figure) in FIGURES {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (gain, value) in gains.iter().filter_map(|gain| Some((gain, figure(gain)?))) {
            family.get_or_create(&labels(gain)).set(value);
        }
        registry.register(name, help, family);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn labels(gain: &Gain) -> Labels {
    let label = |name, text: &str| (name, printable::name(text).into_owned());
    vec![
        label("namespace", &gain.namespace),
        label("workload", &gain.workload),
        label("container", &gain.container),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gains::tests::row;

    #[test]
    fn a_workload_is_a_line_of_each_figure() {
        let text = text(&[row(Some("web"), 100, Some(7)), row(Some("web"), 100, None)]).unwrap();
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
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_hostile_name_ends_no_line_and_no_quotation() {
        let text = text(&[row(Some("a\"} 1\nimas_node_x{y=\"\u{1b}[2J"), 100, None)]).unwrap();
        assert!(
            !text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("imas_node_x")),
            "{text}"
        );
        assert!(text.contains(r#"a\""#), "{text}");
    }
}
