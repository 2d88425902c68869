// SPDX-License-Identifier: Apache-2.0
//! Several commands side by side: what each takes under `system`, and its pick.

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::bench::MedianRun;
use imas_core::candidate::SYSTEM;
use imas_linux::host::Host;
use imas_report::bench::BenchReport;

const HEADS: [&str; 6] = ["command", "wall", "CPU", "to the first", "peak MiB", "pick"];

/// The commands in the order of the call.
pub(super) fn table(reports: &[BenchReport<Host>]) -> String {
    let mut table = Table::new("", "", &HEADS);
    let first = reports.first().and_then(of_system).map(|run| run.cpu_s);
    reports.iter().for_each(|report| table.push(row(report, first)));
    table.plain()
}

fn of_system(report: &BenchReport<Host>) -> Option<&MedianRun> {
    report.candidates.iter().find(|one| one.name == SYSTEM)?.median.as_ref()
}

fn row(report: &BenchReport<Host>, first_cpu_s: Option<f64>) -> Vec<String> {
    let command = report.command.join(" ");
    let Some(run) = of_system(report) else {
        return [&command, "-", "-", "-", "-", "-"].map(str::to_owned).to_vec();
    };
    let ratio = first_cpu_s.filter(|first| *first > 0.0).map(|first| run.cpu_s / first);
    vec![
        command,
        format::seconds(run.wall_s),
        format::seconds(run.cpu_s),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x")),
        format::mib(run.peak_bytes as f64),
        report.picks.balanced.clone(),
    ]
}
