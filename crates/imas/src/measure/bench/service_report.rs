// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` of a server: a table for people, JSON for the rest.

use imas_cli::{format, table};
use imas_core::compare::NoiseFloor;
use imas_core::run::RawRun;
use imas_core::server_bench::{ComparedFigure, GuardRail, ServiceComparison};
use imas_core::server_run::CpuShare;
use imas_linux::host::Host;
use imas_report::bench::RoundsMade;
use imas_report::service::{self, MeasuredService, value};
use imas_runs::service::Service;
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
    pub(super) at_most: Vec<GuardRail>,
    /// Worth of 1 % of CPU time in per cent of memory.
    pub(super) worth_of_cpu: f64,
    pub(super) comparison: ServiceComparison,
    /// Result in words.
    pub(super) sentence: String,
    pub(super) rounds: RoundsMade,
    /// Candidates that could not be used, and why.
    pub(super) unusable: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    pub(super) runs: Vec<RawRun>,
}

impl ServiceReport {
    /// A row for each candidate.
    pub(super) fn table(&self, width: usize) -> String {
        service::terminal_table(&self.comparison, &self.unusable, width)
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
        service::page(&self.service.name, &[service], &notes).render()
    }

    /// All figures of `system` and of the pick.
    pub(super) fn figures(&self) -> String {
        let of = |name: &str| self.comparison.named(name);
        let Some(system) = of(imas_core::SYSTEM).filter(|one| !one.figures.is_empty()) else {
            return String::new();
        };
        let pick = of(self.comparison.pick()).filter(|one| one.name != system.name);
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

fn change(figure: Option<&ComparedFigure>) -> String {
    let ratio = figure.and_then(|figure| figure.ratio);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format::change(&ratio))
}
