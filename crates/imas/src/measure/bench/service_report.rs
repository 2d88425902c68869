// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` of a server: a table for people, JSON for the rest.

use imas_cli::{format, table};
use imas_core::compare::NoiseFloor;
use imas_core::run::RawRun;
use imas_core::server_run::CpuShare;
use imas_core::stats::Interval;
use imas_linux::host::Host;
use imas_runs::service::page::{self, MeasuredService};
use imas_runs::service::{
    CandidateFigures, ComparedFigure, GuardRail, Service, ServiceComparison, ServiceGoal,
};
use serde::Serialize;

/// The shape of `--json` and `--export-json`.
#[derive(Debug, Serialize)]
pub(super) struct ServiceReport {
    pub(super) schema: u32,
    pub(super) kind: &'static str,
    pub(super) service: Service,
    pub(super) command: Vec<String>,
    pub(super) began_unix_s: f64,
    pub(super) seed: u64,
    pub(super) host: Host,
    pub(super) cpus: CpuShare,
    pub(super) goal: ServiceGoal,
    pub(super) at_most: Vec<GuardRail>,
    pub(super) comparison: ServiceComparison,
    /// Candidates that could not be used, and why.
    pub(super) unusable: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    pub(super) runs: Vec<RawRun>,
}

const HEAD: [&str; 9] = [
    "candidate",
    "memory MiB",
    "vs system",
    "peak",
    "after pause",
    "CPU/cycle",
    "vs system",
    "p99",
    "verdict",
];

impl ServiceReport {
    /// A row for each candidate.
    pub(super) fn table(&self) -> String {
        let measured = self.comparison.candidates.iter().map(row);
        let unusable = self.unusable.iter().map(|(name, why)| {
            let mut row = vec![name.clone()];
            row.resize(HEAD.len() - 1, String::new());
            row.push(format!("cannot be used here: {why}"));
            row
        });
        table::plain(&HEAD, measured.chain(unusable))
    }

    /// How far two runs under `system` in one round differ: what the bench cannot see. None where there is one such run
    /// a round.
    pub(super) fn noise(&self) -> Option<String> {
        let one =
            |(figure, floor): (&String, &NoiseFloor)| format!("{figure} {:.1} %", floor.deviation * 100.0);
        let all: Vec<String> = self.comparison.noise.iter().map(one).collect();
        (!all.is_empty()).then(|| {
            format!("two runs under system in one round differ by (standard deviation): {}", all.join(", "))
        })
    }

    /// The report as a page for a browser.
    pub(super) fn html(&self) -> String {
        let service = MeasuredService {
            name: &self.service.name,
            comparison: &self.comparison,
            runs: self.runs.iter().collect(),
        };
        let command = format!("Command: {}", self.command.join(" "));
        let notes = std::iter::once(command).chain(self.noise()).chain(self.notes.iter().cloned());
        let notes: Vec<String> = notes.collect();
        page::page(&self.service.name, &[service], &notes).render()
    }

    /// All figures of `system` and of the pick.
    pub(super) fn figures(&self) -> String {
        let of = |name: &str| self.comparison.candidates.iter().find(|one| one.name == name);
        let Some(system) = of(imas_core::SYSTEM).filter(|one| !one.figures.is_empty()) else {
            return String::new();
        };
        let pick = of(&self.comparison.pick).filter(|one| one.name != system.name);
        let mut head = vec!["figure", "system"];
        head.extend(pick.map(|pick| [pick.name.as_str(), "vs system"]).into_iter().flatten());
        let rows = system.figures.iter().map(|(name, figure)| {
            let mut row = vec![name.clone(), value(figure)];
            let other = pick.map(|pick| pick.figures.get(name));
            row.extend(
                other.into_iter().flat_map(|other| [other.map(value).unwrap_or_default(), change(other)]),
            );
            row
        });
        table::plain(&head, rows)
    }
}

fn row(one: &CandidateFigures) -> Vec<String> {
    let figure = |name: &str| one.figures.get(name);
    let mib = |name: &str| figure(name).map_or_else(|| "-".to_owned(), |found| format::mib(found.median));
    let plain = |name: &str| figure(name).map_or_else(|| "-".to_owned(), value);
    let against =
        |name: &str| if one.name == imas_core::SYSTEM { String::new() } else { change(figure(name)) };
    let exceeds = one.exceeds.iter().map(|rail| format!("not within {rail}"));
    let open = one.unproven.iter().cloned();
    let verdict: Vec<String> = std::iter::once(one.verdict.clone()).chain(exceeds).chain(open).collect();
    vec![
        one.name.clone(),
        mib("memory"),
        against("memory"),
        mib("memory_peak"),
        mib("memory_idle"),
        plain("cpu"),
        against("cpu"),
        plain("p99"),
        verdict.join("; "),
    ]
}

/// Median of the figure with its unit.
fn value(figure: &ComparedFigure) -> String {
    match figure.unit.as_str() {
        "B" => format!("{} MiB", format::mib(figure.median)),
        "B/cycle" => format!("{:+.2} MiB/cycle", figure.median / f64::from(1 << 20)),
        "s" => format::seconds(figure.median),
        "ms" => format::seconds(figure.median / 1e3),
        "" => format!("{:.0}", figure.median),
        unit if figure.median.fract() == 0.0 => format!("{:.0} {unit}", figure.median),
        unit if figure.median >= 100.0 => format!("{:.0} {unit}", figure.median),
        unit => format!("{:.3} {unit}", figure.median),
    }
}

fn change(figure: Option<&ComparedFigure>) -> String {
    let ratio: Option<Interval> = figure.and_then(|figure| figure.ratio);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format::change(&ratio))
}
