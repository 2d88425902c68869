// SPDX-License-Identifier: Apache-2.0
//! Measured servers as a page for a browser: memory through time, all figures, latency.

use imas_cli::format::{self, counted};
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::run::RawRun;
use imas_core::server_bench::{CandidateFigures, ComparedFigure, ServiceComparison};
use imas_core::stats::{Interval, geometric_mean, median};

use super::{best, open_limits, percent, sentence, verdict};
use crate::chart::{Axis, Chart, CurveLine, Curves, Distribution, DistributionRow, Spacing};
use crate::measure::{self, MeasuredFigure, MeasuredRow, Unit};
use crate::page::{Block, PageSection, ResultPage};

const MIB: f64 = 1048576.0;

/// One service with all its runs.
#[derive(Debug)]
pub struct MeasuredService<'a> {
    /// Name of the service.
    pub name: &'a str,
    /// The comparison of the runs.
    pub comparison: &'a ServiceComparison,
    /// Runs of the service.
    pub runs: Vec<&'a RawRun>,
}

/// The page. `notes` describe how the runs were made.
#[must_use]
pub fn page(title: &str, services: &[MeasuredService<'_>], notes: &[String]) -> ResultPage {
    if let [one] = services {
        return page_of_one(title, one, notes);
    }
    let sections = services.iter().map(|service| {
        let anchor: String =
            service.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        PageSection::new(&anchor, service.name, blocks(service))
    });
    let method = PageSection::new("method", "How it was measured", vec![Block::List(notes.to_vec())]);
    let summary = PageSection::new("services", "All services", vec![Block::Table(summary(services))]);
    ResultPage {
        title: title.to_owned(),
        subtitle: "Servers under load: memory, CPU time and latency under each allocator".to_owned(),
        result: one_for_all(services),
        sections: [summary].into_iter().chain(sections).chain([method]).collect(),
        ..ResultPage::default()
    }
}

/// One server: its sentence and its memory first, then the figures.
fn page_of_one(title: &str, service: &MeasuredService<'_>, notes: &[String]) -> ResultPage {
    let latency = latency_blocks(service.comparison);
    let figures = PageSection::new("candidates", "Candidates", figures(service));
    let latency = (!latency.is_empty()).then(|| PageSection::new("latency", "Latency of requests", latency));
    let method = PageSection::new("method", "Method", vec![Block::List(notes.to_vec())]);
    ResultPage {
        title: title.to_owned(),
        subtitle: "A server under load: memory, CPU time and latency under each allocator".to_owned(),
        result: sentence(service.comparison),
        picture: memory_curves(service),
        sections: [figures].into_iter().chain(latency).chain([method]).collect(),
        is_group: true,
    }
}

/// A row for each candidate, with its remarks.
fn figures(service: &MeasuredService<'_>) -> Vec<Block> {
    let rows = rows(service.comparison, &COLUMNS);
    let table = measure::table(service.name, "Medians of all runs, and changes against system", &rows);
    // Sentences, which would make a column wider than a screen.
    let verdict = |one: &CandidateFigures| {
        let words: Vec<String> =
            std::iter::once(verdict(service.comparison, one)).chain(open_limits(one)).collect();
        format!("{}: {}", one.name, words.join("; "))
    };
    let others = service.comparison.candidates.iter().filter(|one| one.name != SYSTEM);
    vec![Block::Table(table), Block::List(others.map(verdict).collect())]
}

/// Latency as the load reports it, drawn and as a table; nothing where it reports none.
fn latency_blocks(comparison: &ServiceComparison) -> Vec<Block> {
    let rows = rows(comparison, &LATENCIES);
    if rows.iter().all(|row| row.figures.is_empty()) {
        return vec![];
    }
    let chart = Block::Charts(latencies(comparison).into_iter().collect());
    let title = "Latency as the load reports it, medians of all runs";
    vec![Block::Group(vec![chart, Block::Table(measure::table("latency", title, &rows))])]
}

fn latencies(comparison: &ServiceComparison) -> Option<Chart> {
    let row = |one: &CandidateFigures| {
        let ns = |name: &str| {
            let (value, unit) = in_report_units(one.figures.get(name)?);
            (unit == Unit::Seconds).then_some(value * 1e9)
        };
        let high = ns("p99").or_else(|| ns("p90"))?;
        let middle = ns("p50").unwrap_or(high);
        let upper = ns("p90").unwrap_or(middle);
        let text = Unit::Seconds.text(high / 1e9);
        let (group, name) = (String::new(), one.name.clone());
        Some(DistributionRow { group, name, low: middle, lower: middle, middle, upper, high, text })
    };
    Distribution {
        title: "Latency of requests".to_owned(),
        caption: "Mark: half of the requests take no longer. Box: 90 %, where the load reports it. Line and figure: \
                  99 %. Logarithmic axis."
            .to_owned(),
        axis: Axis::new("time of a request").spaced(Spacing::Nanoseconds),
        rows: comparison.candidates.iter().filter_map(row).collect(),
    }
    .draw()
}

fn blocks(service: &MeasuredService<'_>) -> Vec<Block> {
    let is_shown = |one: &&(&str, &str)| one.0.ends_with("p99");
    let all: Vec<_> = COLUMNS.iter().chain(LATENCIES.iter().filter(is_shown)).copied().collect();
    let table = measure::table(service.name, service.name, &rows(service.comparison, &all));
    let charts: Vec<Chart> = memory_curves(service).into_iter().collect();
    let own = |charts| vec![Block::Charts(charts), Block::Table(table)];
    vec![Block::Paragraph(sentence(service.comparison)), Block::Group(own(charts))]
}

/// Memory over time, from one run of each candidate: that with the median of their memory.
#[must_use]
pub fn memory_curves(service: &MeasuredService<'_>) -> Option<Chart> {
    let line = |candidate: &CandidateFigures| {
        let run = middle_run(&candidate.name, &service.runs)?;
        // It may have ended before its last look.
        let alive =
            run.of_server().curve.iter().rposition(|(_, bytes)| *bytes > 0).map_or(0, |last| last + 1);
        let points =
            run.of_server().curve[..alive].iter().map(|(at_s, bytes)| (*at_s, *bytes as f64 / MIB)).collect();
        Some(CurveLine::new(&candidate.name, points))
    };
    Curves {
        title: "Resident anonymous memory of the server, MiB".to_owned(),
        caption:
            "One run of each: cycles of the same load, then a pause. Its memory is the middle one of all runs."
                .to_owned(),
        x: Axis::new("seconds since the start"),
        y: Axis::new("MiB").from_zero(),
        lines: service.comparison.candidates.iter().filter_map(line).collect(),
        ..Curves::default()
    }
    .draw()
}

fn middle_run<'a>(candidate: &str, runs: &[&'a RawRun]) -> Option<&'a RawRun> {
    let fits = |run: &&&RawRun| run.candidate == candidate && run.ok && run.of_server().curve.len() > 1;
    let mut own: Vec<&RawRun> = runs.iter().filter(fits).copied().collect();
    own.sort_by(|a, b| a.value("memory").unwrap_or(0.0).total_cmp(&b.value("memory").unwrap_or(0.0)));
    own.get(own.len() / 2).copied()
}

/// Figure and heading of each column.
const COLUMNS: [(&str, &str); 8] = [
    ("memory", "memory"),
    ("memory_peak", "peak"),
    ("memory_idle", "after the pause"),
    ("memory_day", "over the day"),
    ("memory_slope", "growth per cycle"),
    ("cpu", "CPU per cycle"),
    ("rate", "rate"),
    ("ready", "ready after"),
];
const LATENCIES: [(&str, &str); 5] =
    [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p99.9"), ("open_p99", "p99 at a fixed rate")];
/// The figures whose change against `system` has a column of its own.
const CHANGES: [&str; 6] = ["memory", "memory_idle", "memory_day", "cpu", "p99", "open_p99"];

fn rows(comparison: &ServiceComparison, columns: &[(&str, &str)]) -> Vec<MeasuredRow> {
    let row = |one: &CandidateFigures| {
        let mut figures = Vec::new();
        for &(name, heading) in columns {
            let Some(figure) = one.figures.get(name) else { continue };
            let (value, unit) = in_report_units(figure);
            figures.push(MeasuredFigure::new(heading, value, unit));
            let change = figure.ratio.filter(|_| one.name != SYSTEM && CHANGES.contains(&name));
            figures.extend(change.map(|ratio| changed(&format!("{heading} vs system"), ratio)));
        }
        MeasuredRow { name: one.name.clone(), figures }
    };
    // Candidates with changes come first, so that the column headings are next to figures.
    let mut rows: Vec<MeasuredRow> = comparison.candidates.iter().map(row).collect();
    rows.sort_by_key(|row| row.name == SYSTEM);
    rows
}

fn in_report_units(figure: &ComparedFigure) -> (f64, Unit) {
    match figure.unit.as_str() {
        "B" | "B/cycle" => (figure.median, Unit::Bytes),
        "s" => (figure.median, Unit::Seconds),
        "ms" => (figure.median / 1e3, Unit::Seconds),
        "1/s" => (figure.median, Unit::PerSecond),
        _ => (figure.median, Unit::Count),
    }
}

fn changed(name: &str, ratio: Interval) -> MeasuredFigure {
    let percent = |x: f64| (x - 1.0) * 100.0;
    let figure = MeasuredFigure::new(name, percent(ratio.mid), Unit::PercentChange);
    if ratio.lo == ratio.hi { figure } else { figure.within(percent(ratio.lo), percent(ratio.hi)) }
}

/// One row for each service: its best candidate and the changes under it. Services without a gain are
/// included.
#[must_use]
pub fn summary(services: &[MeasuredService<'_>]) -> Table {
    const FIGURES: [(&str, &str); 5] = [
        ("memory", "memory"),
        ("memory_idle", "after the pause"),
        ("memory_day", "over the day"),
        ("cpu", "CPU"),
        ("p99", "p99"),
    ];
    let is_measured = |(figure, _): &(&str, &str)| {
        let mut system = services.iter().filter_map(|service| service.comparison.named(SYSTEM));
        system.any(|system| system.figures.contains_key(*figure))
    };
    let figures: Vec<(&str, &str)> = FIGURES.into_iter().filter(is_measured).collect();
    let own = ["service", "rounds", "memory under system", "best"];
    let columns: Vec<&str> = own.into_iter().chain(figures.iter().map(|one| one.1)).collect();
    let mut table = Table::new("services", "Services under load", &columns);
    for service in services {
        let Some(system) = service.comparison.named(SYSTEM).filter(|system| system.rounds > 0) else {
            continue;
        };
        let memory = system.figures.get("memory");
        let best = best(service.comparison);
        let cell = |figure: &str| {
            let ratio = best.and_then(|best| best.figures.get(figure)?.ratio);
            ratio.map_or_else(|| "-".to_owned(), |ratio| change(&ratio, system.rounds))
        };
        let own = [
            service.name.to_owned(),
            system.rounds.to_string(),
            memory.map_or_else(|| "-".to_owned(), |memory| format!("{} MiB", format::mib(memory.median))),
            best.map_or("system", |best| best.name.as_str()).to_owned(),
        ];
        table.push(own.into_iter().chain(figures.iter().map(|one| cell(one.0))).collect());
    }
    table
}

/// The change as text. One run has no spread, so its change has no interval.
fn change(ratio: &Interval, rounds: usize) -> String {
    if rounds > 1 { format::change(ratio) } else { percent(ratio.mid) }
}

fn memory_ratio(one: &CandidateFigures) -> Option<f64> {
    Some(one.figures.get("memory")?.ratio?.mid)
}

/// Compares the leanest single candidate for all services with the best candidate of each service.
#[must_use]
pub fn one_for_all(services: &[MeasuredService<'_>]) -> String {
    let measured: Vec<&MeasuredService<'_>> = services
        .iter()
        .filter(|service| service.comparison.named(SYSTEM).is_some_and(|system| system.rounds > 0))
        .collect();
    let ratios = |name: &str| -> Option<Vec<f64>> {
        measured.iter().map(|service| memory_ratio(service.comparison.named(name)?)).collect()
    };
    let mut names: Vec<&str> =
        measured.iter().flat_map(|s| &s.comparison.candidates).map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let means = names
        .into_iter()
        .filter(|name| *name != SYSTEM)
        .filter_map(|name| Some((geometric_mean(&ratios(name)?)?, name)));
    let best: Vec<f64> = measured
        .iter()
        .map(|service| best(service.comparison).and_then(memory_ratio).unwrap_or(1.0))
        .collect();
    let Some(own) = geometric_mean(&best) else {
        return "No service has runs that can be compared.".to_owned();
    };
    let gains = best.iter().filter(|ratio| **ratio <= 0.75).count();
    let take = if gains == 1 { "takes" } else { "take" };
    let all = means.min_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(String::new, |(ratio, name)| {
        format!(" One candidate for all, {name}, changes it by {}.", percent(ratio))
    });
    format!(
        "With its best candidate a service's memory changes by {} on geometric mean of {} (middle one {}); {gains} of them {take} at \
         least 25 % less.{all}",
        percent(own),
        counted(best.len(), "service"),
        percent(median(&best).unwrap_or(1.0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_bench::{ServiceOptions, compare_services};
    use imas_core::server_run::{Figure, ServerRun};

    fn run(candidate: &str, round: u32, mib: u32) -> RawRun {
        let figure = Figure::lower("memory", f64::from(mib) * MIB, "B");
        let p99 = Figure::lower("p99", f64::from(mib) / 10.0, "ms");
        let curve = vec![(0.0, 1 << 20), (10.0, u64::from(mib) << 20)];
        RawRun { program: "puma".into(), candidate: candidate.into(), round, ..RawRun::default() }
            .with_server(ServerRun { curve, ..ServerRun::of([figure, p99]) })
    }

    fn compared(runs: &[RawRun]) -> ServiceComparison {
        let names = ["system", "glibc:arena1", "mimalloc"].map(str::to_owned);
        compare_services(&names, runs, &ServiceOptions { seed: 1, ..ServiceOptions::default() })
    }

    #[test]
    fn a_page_has_the_curves_and_the_summary_the_best() {
        let runs: Vec<RawRun> = (0..3)
            .flat_map(|round| {
                [run("system", round, 100), run("glibc:arena1", round, 70), run("mimalloc", round, 180)]
            })
            .collect();
        let comparison = compared(&runs);
        let puma = MeasuredService { name: "puma", comparison: &comparison, runs: runs.iter().collect() };
        let page = page("Services", std::slice::from_ref(&puma), &["4 rounds".to_owned()]).render();
        assert!(page.contains("<svg") && page.contains("glibc:arena1") && page.contains("4 rounds"));
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("<svg") < at("<nav") && at("id=\"candidates\"") < at("id=\"latency\""));
        assert!(page.contains("glibc:arena1: 30 % less memory"), "{page}");
        assert!(at("id=\"latency\"") < at("id=\"method\"") && page.contains("Latency of requests"));
        let table = summary(std::slice::from_ref(&puma));
        assert_eq!(table.rows[0][..4], ["puma", "3", "100.0 MiB", "glibc:arena1"]);
        let text = one_for_all(&[puma]);
        assert!(
            text.contains("-30.0 %")
                && text.contains("glibc:arena1")
                && text.contains("1 of them takes at least"),
            "{text}"
        );
    }

    /// Under load `mimalloc` is the leanest, over the day it is not.
    #[test]
    fn the_day_chooses_and_has_its_column() {
        let of = |candidate: &str, round: u32, mib: u32, day: f64| {
            let mut run = run(candidate, round, mib);
            run.server.as_mut().unwrap().record(Figure::lower("memory_day", day * MIB, "B"));
            run
        };
        let round = |round: u32| {
            [
                of("system", round, 100, 100.0),
                of("glibc:arena1", round, 99, 60.0),
                of("mimalloc", round, 80, 100.0),
            ]
        };
        let runs: Vec<RawRun> = (0..2).flat_map(round).collect();
        let comparison = compared(&runs);
        let puma = MeasuredService { name: "puma", comparison: &comparison, runs: runs.iter().collect() };
        let table = summary(std::slice::from_ref(&puma));
        let columns = ["best", "memory", "over the day"];
        assert_eq!(table.columns[3..6], columns, "and no pause, which nobody measured");
        assert_eq!(table.rows[0][3], "glibc:arena1");
        assert!(table.rows[0][5].starts_with("-40.0 %"), "{table:?}");
        let page = page("Services", &[puma], &[]).render();
        assert!(page.contains("over the day vs system"), "{page}");
    }

    /// The server may have ended before its last look: its memory is not drawn down to nothing.
    #[test]
    fn a_curve_ends_with_the_server() {
        let with = |end: &[(f64, u64)]| {
            let mut run = run("system", 0, 100);
            run.server.as_mut().unwrap().curve.extend(end);
            let comparison = compared(std::slice::from_ref(&run));
            let one = MeasuredService { name: "x", comparison: &comparison, runs: vec![&run] };
            memory_curves(&one).unwrap().document()
        };
        assert_eq!(with(&[(10.1, 0), (10.2, 0)]), with(&[]));
        assert_ne!(with(&[(10.1, 0), (10.2, 1 << 20)]), with(&[]));
    }

    #[test]
    fn one_round_has_a_best_and_what_gains_nothing_has_a_row() {
        let runs = [run("system", 0, 100), run("glibc:arena1", 0, 80)];
        let comparison = compared(&runs);
        let of = |comparison| MeasuredService { name: "x", comparison, runs: vec![] };
        let row = &summary(&[of(&comparison)]).rows[0];
        assert_eq!(
            (row[3].as_str(), row[4].as_str()),
            ("glibc:arena1", "-20.0 %"),
            "one run must have no interval"
        );
        let runs = [run("system", 0, 100), run("glibc:arena1", 0, 120)];
        let comparison = compared(&runs);
        assert_eq!(summary(&[of(&comparison)]).rows[0][3], "system");
        assert!(one_for_all(&[]).contains("No service"));
    }
}
