// SPDX-License-Identifier: Apache-2.0
//! Sizes, times and memory of every candidate, as tables.

use std::collections::BTreeMap;

use imas_core::candidate::SYSTEM;
use imas_core::stats::median;

use super::change::{ORDERS, STATES, order_name};
use super::contrast::deviation;
use super::sample::{MobilePart, Samples};
use crate::band::mean;
use imas_cli::table::Table;

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;
const NOTHING: &str = "-";

pub(crate) fn tables(samples: &Samples) -> Vec<Table> {
    let mut tables = vec![sizes(samples), benchmarks(samples)];
    if !samples.tests(MobilePart::UseCase).is_empty() {
        tables.extend([memory(samples), programs(samples), pages(samples), served(samples)]);
    }
    tables.extend(failures(samples));
    tables
}

fn sizes(samples: &Samples) -> Table {
    let columns = [
        "candidate",
        "version",
        "file, KiB",
        "loaded, KiB",
        "code, KiB",
        "minimal process: resident beyond system, KiB",
        "private beyond system, KiB",
    ];
    let mut table =
        Table::new("sizes", "Size of the library and of a minimal process under it (medians)", &columns);
    for name in samples.candidates() {
        let size = |figure| {
            samples.values("library", name, figure).first().map(|bytes| format!("{:.1}", bytes / KIB))
        };
        let beyond = |figure| {
            let of = |name| median(&samples.values("minimal", name, figure));
            Some(format!("{:+.0}", (of(name)? - of(SYSTEM)?) / KIB))
        };
        let version = samples.headers.iter().rev().find_map(|header| header.versions.get(name)).cloned();
        let cells = [
            Some(name.to_owned()),
            version,
            size("file"),
            size("loaded"),
            size("code"),
            beyond("first.Rss"),
            beyond("first.Private_Dirty"),
        ];
        table.push(cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned())).to_vec());
    }
    table
}

fn benchmarks(samples: &Samples) -> Table {
    let candidates = samples.candidates();
    let others: Vec<&str> = candidates.into_iter().filter(|name| *name != SYSTEM).collect();
    let columns: Vec<&str> =
        ["test", "figure", "system, ns an operation"].into_iter().chain(others.iter().copied()).collect();
    let title = "Benchmarks: time over system's in the same round, median and 95 % interval; lower is better";
    let mut table = Table::new("benchmarks", title, &columns);
    for test in samples.tests(MobilePart::Benchmarks) {
        for figure in samples.figures(test) {
            let system = median(&samples.values(test, SYSTEM, figure))
                .map_or_else(|| NOTHING.to_owned(), |ns| format!("{ns:.1}"));
            let cells = others.iter().map(|name| {
                samples
                    .ratio(test, figure, name, SYSTEM)
                    .map_or_else(|| NOTHING.to_owned(), |c| c.text(2, ""))
            });
            table.push([test.to_owned(), figure.to_owned(), system].into_iter().chain(cells).collect());
        }
    }
    table
}

/// Mean and standard deviation, in the given unit.
fn spread(values: &[f64], unit: f64, decimals: usize) -> String {
    if values.is_empty() {
        return NOTHING.to_owned();
    }
    let average = mean(values.iter().copied()) / unit;
    let around = deviation(values).map_or_else(String::new, |sd| format!(" ± {:.decimals$}", sd / unit));
    format!("{average:.decimals$}{around}")
}

fn memory(samples: &Samples) -> Table {
    let columns = [
        "candidate",
        "state",
        "iterations",
        "MemFree, MiB",
        "MemAvailable, MiB",
        "used, MiB",
        "MemFree since before, MiB",
        "MemAvailable since before, MiB",
    ];
    let mut table =
        Table::new("memory", "Use case: memory of the machine, mean ± standard deviation", &columns);
    for name in samples.candidates() {
        for state in ["before", "running", "idle"] {
            let values = |figure: &str| samples.values("use-case", name, &format!("{state}.{figure}"));
            let figures = ["free", "available", "used", "free.change", "available.change"];
            let cells = figures.map(|figure| spread(&values(figure), MIB, 1));
            let head = [name.to_owned(), state.to_owned(), values("free").len().to_string()];
            table.push(head.into_iter().chain(cells).collect());
        }
    }
    table
}

/// Names of the programs of the use case that have a figure.
fn program_names(samples: &Samples) -> Vec<&str> {
    let figures = samples.figures("use-case");
    figures.into_iter().filter_map(|figure| figure.strip_suffix(".resident")).collect()
}

fn programs(samples: &Samples) -> Table {
    let names = program_names(samples);
    let headings: Vec<String> = names.iter().map(|name| format!("{name}, MiB")).collect();
    let columns: Vec<&str> =
        std::iter::once("candidate").chain(headings.iter().map(String::as_str)).collect();
    let title =
        "Use case: resident anonymous memory of the programs while running, mean ± standard deviation";
    let mut table = Table::new("programs", title, &columns);
    for candidate in samples.candidates() {
        let cells = names
            .iter()
            .map(|name| spread(&samples.values("use-case", candidate, &format!("{name}.resident")), MIB, 2));
        table.push(std::iter::once(candidate.to_owned()).chain(cells).collect());
    }
    table
}

fn pages(samples: &Samples) -> Table {
    let headings: Vec<String> = (0..ORDERS).map(|order| format!("order {order}")).collect();
    let columns: Vec<&str> =
        ["candidate", "state"].into_iter().chain(headings.iter().map(String::as_str)).collect();
    let title = "Use case: free blocks of each order (2^order pages) since before, mean ± standard deviation";
    let mut table = Table::new("pages", title, &columns);
    for name in samples.candidates() {
        for state in STATES {
            let cells = (0..ORDERS).map(|order| {
                let figure = format!("{state}.{}.change", order_name(order));
                spread(&samples.values("use-case", name, &figure), 1.0, 0)
            });
            table.push([name.to_owned(), state.to_owned()].into_iter().chain(cells).collect());
        }
    }
    table
}

fn served(samples: &Samples) -> Table {
    let mut table = Table::new(
        "served",
        "Use case: who served the malloc calls",
        &["program", "candidate", "served by", "iterations"],
    );
    let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    for sample in &samples.samples {
        for (program, by) in &sample.served {
            *counts.entry((program, &sample.candidate, by)).or_default() += 1;
        }
    }
    for ((program, candidate, by), count) in counts {
        table.push(vec![program.to_owned(), candidate.to_owned(), by.to_owned(), count.to_string()]);
    }
    table
}

fn failures(samples: &Samples) -> Option<Table> {
    let columns = ["test", "candidate", "round", "why"];
    let mut table = Table::new("left-out", "Samples that failed and count nowhere", &columns);
    for sample in &samples.samples {
        if let Some(why) = &sample.failed {
            table.push(vec![
                sample.test.clone(),
                sample.candidate.clone(),
                sample.round.to_string(),
                why.clone(),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
