// SPDX-License-Identifier: Apache-2.0
//! What the workloads of a node could gain without a trial: their containers, added up. Their number is bounded.

use std::collections::BTreeMap;
use std::fmt;

use imas_linux::running;
use imas_linux::running_runtime::RunningRuntime;
use serde::Serialize;

use crate::libc::Libc;
use crate::pod_names::PodName;
use crate::row::{Row, WORTH_IT, advice};

/// Most workloads that stand for themselves; all others are added up.
pub(crate) const MOST: usize = 500;
/// Name for those.
pub(crate) const OTHER: &str = "other";

/// The containers of one name in the pods of a workload on this node.
#[derive(Debug, Serialize)]
pub(crate) struct Gain {
    /// Names; all three are empty where they are not known.
    pub(crate) namespace: String,
    pub(crate) workload: String,
    pub(crate) container: String,
    pub(crate) containers: usize,
    /// The largest process.
    #[serde(skip)]
    largest: u32,
    pub(crate) libc: Libc,
    pub(crate) resident: u64,
    /// Bytes that glibc could return: the X-ray of its heaps.
    pub(crate) free: Option<u64>,
    /// Containers with heaps of glibc that could not be read.
    pub(crate) not_readable: usize,
    /// Containers whose largest process lacks the candidate with which it was started.
    pub(crate) lost: usize,
    pub(crate) oom_kills: u64,
    /// Number of times that kubelet started them anew.
    pub(crate) restarts: u64,
    /// CPU time, seconds; None where it is known of none.
    pub(crate) cpu_s: Option<f64>,
    /// Share of its limit that the container uses which is nearest to it.
    pub(crate) nearness: Option<f64>,
    pub(crate) advice: String,
}

/// The workloads of the containers, those with most free memory first.
pub(crate) fn of(rows: &[Row]) -> Vec<Gain> {
    let mut by_name: BTreeMap<[&str; 3], Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_name.entry(names(row.name.as_ref())).or_default().push(row);
    }
    let mut groups: Vec<_> = by_name.into_iter().collect();
    let held = |rows: &[&Row]| -> u64 { rows.iter().map(|row| row.resident).sum() };
    groups.sort_by_key(|(_, rows)| std::cmp::Reverse(held(rows)));
    let others: Vec<&Row> =
        groups.split_off(groups.len().min(MOST)).into_iter().flat_map(|(_, rows)| rows).collect();
    let mut gains: Vec<_> = groups.iter().map(|(names, rows)| Gain::of(*names, rows)).collect();
    if !others.is_empty() {
        gains.push(Gain::of(["", OTHER, ""], &others));
    }
    gains.sort_by_key(|gain| std::cmp::Reverse((gain.free, gain.resident)));
    gains
}

pub(crate) fn names(name: Option<&PodName>) -> [&str; 3] {
    name.map_or([""; 3], |name| [name.namespace.as_str(), name.workload.as_str(), name.container.as_str()])
}

impl Gain {
    /// The rows have at least one.
    fn of(names: [&str; 3], rows: &[&Row]) -> Self {
        let free: Vec<_> = rows.iter().filter_map(|row| row.free).collect();
        let [namespace, workload, container] = names.map(str::to_owned);
        let largest = rows.iter().max_by_key(|row| row.resident);
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
            oom_kills: rows.iter().filter_map(|row| row.group.oom_kills).sum(),
            restarts: rows.iter().filter_map(|row| row.restarts).map(u64::from).sum(),
            cpu_s: rows.iter().filter_map(|row| row.group.cpu_s).reduce(|sum, more| sum + more),
            nearness: rows.iter().filter_map(|row| row.group.nearness()).max_by(f64::total_cmp),
            advice: String::new(),
        };
        let name = largest.and_then(|row| row.name.as_ref()).filter(|name| name.workload == gain.workload);
        gain.advice = advice(gain.libc, gain.nearness, gain.free, name);
        if gain.advice.is_empty() && gain.free.is_some_and(|free| free < WORTH_IT) {
            gain.advice = "nothing: little is free; a trial shows what other allocators do".to_owned();
        }
        gain
    }

    /// Names the runtime of a workload that can take no library. Its executable is read, which a look at each minute
    /// could not afford.
    pub(crate) fn name_runtime(&mut self) {
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
    use crate::group::GroupFigures;
    use crate::row::Kinds;

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
                used: Some(95),
                limit: Some(100),
                oom_kills: Some(1),
                cpu_s: Some(1.5),
                throttled: None,
            },
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
        let gains = of(&rows);
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

    #[test]
    fn the_number_of_workloads_is_bounded() {
        let rows: Vec<_> =
            (0..MOST as u64 + 7).map(|at| row(Some(&format!("w{at}")), 1000 + at, None)).collect();
        let gains = of(&rows);
        assert_eq!(gains.len(), MOST + 1);
        let other = gains.iter().find(|gain| gain.workload == OTHER).unwrap();
        assert_eq!((other.containers, other.namespace.as_str(), other.resident), (7, "", 7 * 1000 + 21));
    }
}
