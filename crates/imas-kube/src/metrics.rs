// SPDX-License-Identifier: Apache-2.0
//! The workloads of a node as OpenMetrics. Labels are namespace, workload and container, no more: no command line, no
//! path, no variable.
//!
//! Gains that the workloads of a node could have without a trial: their containers, added up. Their number is
//! bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;

use anyhow::Result;
use imas_core::printable;
use imas_core::trimming::TrimSums;
use imas_engine::memory_look::fit::{FitKind, MemoryFit};
use imas_engine::memory_look::parts::PartKind;
use imas_engine::memory_look::verdict::MemoryVerdict;
use imas_linux::running;
use imas_linux::running_runtime::RunningRuntime;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::group::PodName;
use crate::look::{Libc, Look, Row, Unseen, WORTH_IT, advice};

type Labels = Vec<(&'static str, String)>;
type Sums = Family<Labels, Gauge<f64, AtomicU64>>;
/// A figure of a workload; None where it is not known.
type Figure = fn(&Gain) -> Option<f64>;

/// Name, help and value of what each workload has.
const FIGURES: [(&str, &str, Figure); 10] = [
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
    (
        "highest_bytes",
        "Most memory that one of its containers ever had, page cache included, as long as it lives",
        |gain| Some(gain.highest? as f64),
    ),
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
    let gains = gains_of(&look.rows);
    let mut registry = Registry::with_prefix("imas_node");
    for (name, help, figure) in FIGURES {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (gain, value) in gains.iter().filter_map(|gain| Some((gain, figure(gain)?))) {
            family.get_or_create(&labels(gain)).set(value);
        }
        registry.register(name, help, family);
    }
    of_answers(&mut registry, &gains);
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

/// Registers the parts of the memory of the largest process of each container, and the verdicts on these.
fn of_answers(registry: &mut Registry, gains: &[Gain]) {
    let both = |gain: &Gain, more| [labels(gain), vec![more]].concat();
    let (parts, verdicts, fits) = (Sums::default(), Sums::default(), Sums::default());
    for gain in gains {
        for (part, bytes) in &gain.parts {
            parts.get_or_create(&both(gain, ("part", part.id().to_owned()))).inc_by(*bytes as f64);
        }
        for (verdict, count) in &gain.verdicts {
            verdicts.get_or_create(&both(gain, ("verdict", verdict.id().to_owned()))).inc_by(*count as f64);
        }
        let is_too_large = gain.fit.as_ref().is_some_and(|fit| fit.fit == FitKind::TooLarge);
        if gain.fit.is_some() {
            fits.get_or_create(&labels(gain)).inc_by(f64::from(u8::from(!is_too_large)));
        }
    }
    registry.register(
        "memory_bytes",
        "Resident memory of the largest process of each container, by owner",
        parts,
    );
    registry.register(
        "verdicts",
        "Containers by the verdict on the memory of their largest process",
        verdicts,
    );
    registry.register("fits_limit", "0 where the heap of a JVM may grow beyond the limit of its container; other runtimes are not looked at here", fits);
}

/// Processes by workload; those beyond the number that is shown one by one are added up.
fn unseen(all: &[Unseen]) -> BTreeMap<Labels, usize> {
    let mut found = BTreeMap::new();
    for one in all {
        let mut labels = of_names(names_of(one.name.as_ref()));
        if found.len() >= MOST && !found.contains_key(&labels) {
            labels = of_names(["", OTHER, ""]);
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

/// Most workloads that stand for themselves; all others are added up.
pub(super) const MOST: usize = 500;
/// Name for those.
const OTHER: &str = "other";

/// The containers of one name in the pods of a workload on this node.
#[derive(Debug, Serialize)]
pub(super) struct Gain {
    /// Names; all three are empty where they are not known.
    pub(super) namespace: String,
    pub(super) workload: String,
    pub(super) container: String,
    pub(super) containers: usize,
    /// The largest process.
    #[serde(skip)]
    largest: u32,
    pub(super) libc: Libc,
    pub(super) resident: u64,
    /// Bytes that glibc could return: the X-ray of its heaps.
    pub(super) free: Option<u64>,
    /// Containers with heaps of glibc that could not be read.
    pub(super) not_readable: usize,
    /// Containers whose largest process lacks the candidate with which it was started.
    pub(super) lost: usize,
    pub(super) oom_kills: u64,
    /// Number of times that kubelet started them anew.
    pub(super) restarts: u64,
    /// CPU time, seconds; None where it is known of none.
    pub(super) cpu_s: Option<f64>,
    /// Share of its limit that the container uses which is nearest to it.
    pub(super) nearness: Option<f64>,
    /// Most bytes that one of them ever had.
    pub(super) highest: Option<u64>,
    /// Whether they fit their limit: of the container that fits it least.
    pub(super) fit: Option<MemoryFit>,
    /// Number of containers by verdict.
    pub(super) verdicts: BTreeMap<MemoryVerdict, usize>,
    /// Bytes of their largest processes by part.
    pub(super) parts: BTreeMap<PartKind, u64>,
    pub(super) advice: String,
}

/// The workloads of the containers, those with most free memory first.
pub(super) fn gains_of(rows: &[Row]) -> Vec<Gain> {
    let mut by_name: BTreeMap<[&str; 3], Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_name.entry(names_of(row.name.as_ref())).or_default().push(row);
    }
    let mut groups: Vec<_> = by_name.into_iter().collect();
    let held = |rows: &[&Row]| -> u64 { rows.iter().map(|row| row.resident).sum() };
    groups.sort_by_key(|(_, rows)| std::cmp::Reverse(held(rows)));
    let others: Vec<&Row> =
        groups.split_off(groups.len().min(MOST)).into_iter().flat_map(|(_, rows)| rows).collect();
    let mut gains: Vec<_> = groups.iter().map(|(names_of, rows)| Gain::of(*names_of, rows)).collect();
    if !others.is_empty() {
        gains.push(Gain::of(["", OTHER, ""], &others));
    }
    gains.sort_by_key(|gain| std::cmp::Reverse((gain.free, gain.resident)));
    gains
}

fn names_of(name: Option<&PodName>) -> [&str; 3] {
    name.map_or([""; 3], |name| [name.namespace.as_str(), name.workload.as_str(), name.container.as_str()])
}

impl Gain {
    /// The rows have at least one.
    fn of(names: [&str; 3], rows: &[&Row]) -> Self {
        let free: Vec<_> = rows.iter().filter_map(|row| row.free).collect();
        let [namespace, workload, container] = names.map(str::to_owned);
        let largest = rows.iter().max_by_key(|row| row.resident);
        // A lower limit is for all replicas: each has to be known.
        let is_whole = rows.iter().all(|row| row.group.memory.limit.is_none() || row.fit().is_some());
        let fits = rows.iter().filter_map(|row| row.fit());
        let fits = fits.filter(|fit| is_whole || fit.fit == FitKind::TooLarge);
        let is_closed = |row: &&&Row| row.libc == Libc::Glibc && row.free.is_none();
        let mut gain = Self {
            namespace,
            workload,
            container,
            containers: rows.len(),
            largest: largest.map_or(0, |row| row.largest),
            libc: largest.map_or(Libc::Static, |row| row.libc),
            resident: rows.iter().map(|row| row.resident).sum(),
            free: (!free.is_empty()).then(|| free.iter().sum()),
            not_readable: rows.iter().filter(is_closed).count(),
            lost: rows.iter().filter(|row| row.lost.is_some()).count(),
            oom_kills: rows.iter().filter_map(|row| row.group.memory.oom_kills).sum(),
            restarts: rows.iter().filter_map(|row| row.restarts).map(u64::from).sum(),
            cpu_s: rows.iter().filter_map(|row| row.group.cpu_s).reduce(|sum, more| sum + more),
            nearness: rows.iter().filter_map(|row| row.group.memory.nearness()).max_by(f64::total_cmp),
            highest: rows.iter().filter_map(|row| row.group.memory.highest).max(),
            fit: fits.min_by_key(|fit| (fit.fit, std::cmp::Reverse(fit.could_be))).cloned(),
            verdicts: BTreeMap::new(),
            parts: BTreeMap::new(),
            advice: String::new(),
        };
        let name = largest.and_then(|row| row.name.as_ref()).filter(|name| name.workload == gain.workload);
        for answer in rows.iter().filter_map(|row| row.answer.as_ref()) {
            *gain.verdicts.entry(answer.verdict).or_default() += 1;
            for part in &answer.parts {
                *gain.parts.entry(part.kind).or_default() += part.resident_bytes;
            }
        }
        gain.advice = advice(gain.libc, (gain.nearness, gain.fit.as_ref()), gain.free, name);
        if gain.advice.is_empty() && gain.free.is_some_and(|free| free < WORTH_IT) {
            gain.advice = "nothing: little is free; a trial shows what other allocators do".to_owned();
        }
        gain
    }

    /// Names the runtime of a workload that can take no library. Its executable is read, which a look at each minute
    /// could not afford.
    pub(super) fn name_runtime(&mut self) {
        if self.libc == Libc::Glibc {
            return;
        }
        let runtime = running::one(self.largest).as_ref().and_then(RunningRuntime::of);
        if let Some(runtime) = runtime {
            let name = runtime.found.runtime.name();
            self.advice = self.advice.replace("its runtime", &format!("{name} ('imas list')"));
        }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true if self.workload.is_empty() => f.write_str("without a name"),
            true => f.write_str(&self.workload),
            false => write!(f, "{}/{}/{}", self.namespace, self.workload, self.container),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use imas_engine::memory_look::MemoryAnswer;
    use imas_linux::control_group::{GroupLimit, GroupMemory};

    use crate::group::GroupFigures;
    use crate::look::{Disputed, Kinds};

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

    pub(crate) fn row(workload: Option<&str>, resident: u64, free: Option<u64>) -> Row {
        let name = workload.map(|workload| PodName {
            namespace: "shop".into(),
            workload: workload.into(),
            pod: format!("{workload}-0"),
            container: "app".into(),
        });
        Row {
            id: "0123456789ab".into(),
            runtime: None,
            pod_uid: None,
            name,
            processes: 1,
            largest: 0,
            program: "/app".into(),
            libc: Libc::Glibc,
            glibc: None,
            library: None,
            lost: None,
            resident,
            memory: Kinds { anonymous: resident, ..Kinds::default() },
            free,
            not_readable: None,
            group: GroupFigures {
                memory: GroupMemory {
                    used: Some(95),
                    limit: Some(100),
                    oom_kills: Some(1),
                    ..GroupMemory::default()
                },
                cpu_s: Some(1.5),
                throttled: None,
            },
            answer: None,
            restarts: Some(3),
            advice: String::new(),
        }
    }

    #[test]
    fn replicas_are_added_up_and_most_free_memory_is_first() {
        let rows = [
            row(Some("web"), 100 << 20, Some(30 << 20)),
            row(Some("db"), 500 << 20, Some(0)),
            row(Some("web"), 100 << 20, None),
            row(None, 1 << 20, None),
        ];
        let gains = gains_of(&rows);
        let names: Vec<_> = gains.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["shop/web/app", "shop/db/app", "without a name"]);
        let web = &gains[0];
        assert_eq!((web.containers, web.resident, web.free), (2, 200 << 20, Some(30 << 20)));
        assert_eq!((web.oom_kills, web.not_readable, web.nearness), (2, 1, Some(0.95)));
        assert_eq!((web.restarts, web.cpu_s), (6, Some(3.0)));
        assert!(
            web.advice.contains("near its limit; 30.0 MiB are free: imas kube try web -n shop"),
            "{}",
            web.advice
        );
    }

    fn fitted(could_be: Option<u64>) -> Option<MemoryAnswer> {
        let kind = if could_be.is_some() { FitKind::CouldBeLess } else { FitKind::Fits };
        let group = GroupLimit {
            limit: 1 << 30,
            highest: Some(310 << 20),
            age_s: Some(6e5),
            ..GroupLimit::default()
        };
        Some(MemoryAnswer {
            verdict: MemoryVerdict::Live,
            sentence: String::new(),
            parts: vec![],
            named_share: 1.0,
            limit: Some(MemoryFit {
                group,
                fit: kind,
                heap_limit: None,
                native: 0,
                stacks: 0,
                others: 0,
                live: None,
                could_be,
                warning: None,
                sentence: String::new(),
            }),
        })
    }

    #[test]
    fn a_limit_falls_where_it_could_for_all_replicas() {
        let rows = |answers: [Option<u64>; 2]| {
            answers.map(|could_be| Row { answer: fitted(could_be), ..row(Some("web"), 1 << 20, None) })
        };
        let both = gains_of(&rows([Some(300 << 20), Some(372 << 20)]));
        let advice = "never above 310 MiB of 1024 MiB in 7 d: the limit could fall to 372 MiB";
        assert!(both[0].advice.starts_with(advice), "{}", both[0].advice);
        let one = gains_of(&rows([Some(300 << 20), None]));
        assert!(!one[0].advice.contains("could fall"), "{}", one[0].advice);
        let look = Look { rows: rows([Some(1), None]).into(), ..Look::default() };
        let text = text(&look, None).unwrap();
        let labels = r#"{namespace="shop",workload="web",container="app""#;
        for line in [
            format!(r#"imas_node_verdicts{labels},verdict="live"}} 2.0"#),
            format!("imas_node_fits_limit{labels}}} 1.0"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_number_of_workloads_is_bounded() {
        let rows: Vec<_> =
            (0..MOST as u64 + 7).map(|at| row(Some(&format!("w{at}")), 1000 + at, None)).collect();
        let gains = gains_of(&rows);
        assert_eq!(gains.len(), MOST + 1);
        let other = gains.iter().find(|gain| gain.workload == OTHER).unwrap();
        assert_eq!((other.containers, other.namespace.as_str(), other.resident), (7, "", 7 * 1000 + 21));
    }
}
