// SPDX-License-Identifier: Apache-2.0
//! The eight tests under the five allocators, and the printed runs compared digit by digit.

use super::claims::{RUNS, STATISTICS};
use super::runs::Runs;
use super::runs::Subject;
use crate::band::Band;
use crate::band::{milliseconds_of_us, per_cent_of_ppm, ratio, whole};
use imas_cli::table::Table;

/// A row of the table of eight: test, label, the driver's name, and the formatting of the figure.
type Shown = (usize, &'static str, &'static str, fn(Option<Band>) -> String);

const SHOWN: [Shown; 14] = [
    (1, "processor time of the program", "cpu_us", milliseconds_of_us),
    (2, "processor time of the program", "cpu_us", milliseconds_of_us),
    (2, "max heap, bytes", "max_heap", whole),
    (3, "processor time of the program", "cpu_us", milliseconds_of_us),
    (4, "holes that six requests go to (0: new memory)", "placement", whole),
    (5, "fragmentation", "fragmentation_ppm", per_cent_of_ppm),
    (5, "splits", "splits", whole),
    (6, "heap growth, bytes", "growth_bytes", whole),
    (6, "moves of the break", "break_moves", whole),
    (7, "largest heap, bytes", "max_heap_bytes", whole),
    (7, "coalesces", "coalesces", whole),
    (8, "ns an operation", "ns_per_operation", whole),
    (8, "processor time of the program", "cpu_us", milliseconds_of_us),
    (8, "peak resident memory, KiB", "max_resident_kib", whole),
];

pub(crate) fn tables(runs: &Runs) -> Vec<Table> {
    vec![eight_tests(runs), printed_runs(runs), time_ratios(runs)]
}

fn eight_tests(runs: &Runs) -> Table {
    let mut table = Table::new("tests", "Eight tests: median and central nine tenths", &columns("figure"));
    for (test, title, key, worded) in SHOWN {
        let cell = |subject: &Subject| match runs.exact(test, *subject, key) {
            Some(value) => value.to_string(),
            None => runs.band(test, *subject, key).map_or_else(|| "-".to_owned(), |b| worded(Some(b))),
        };
        let cells = Subject::ALL.iter().map(cell);
        table.push([test.to_string(), title.to_owned()].into_iter().chain(cells).collect());
    }
    table
}

fn columns(second: &'static str) -> Vec<&'static str> {
    ["test", second].into_iter().chain(Subject::ALL.map(Subject::name)).collect()
}

fn printed_runs(runs: &Runs) -> Table {
    let columns: Vec<&str> = ["test", "run"].into_iter().chain(STATISTICS).collect();
    let mut table = Table::new("printed-runs", "The paper's three runs, digit by digit", &columns);
    for printed in &RUNS {
        let numbers = printed.statistics.map(|n| n.to_string());
        table.push([printed.test.to_string(), "printed".to_owned()].into_iter().chain(numbers).collect());
        for policy in Subject::POLICIES {
            let cell =
                |key| runs.exact(printed.test, policy, key).map_or_else(|| "-".to_owned(), |n| n.to_string());
            let head = [printed.test.to_string(), policy.name().to_owned()];
            table.push(head.into_iter().chain(STATISTICS.map(cell)).collect());
        }
    }
    table
}

fn time_ratios(runs: &Runs) -> Table {
    let columns = ["test", "first fit", "next fit", "best fit", "worst fit"];
    let mut table =
        Table::new("time-ratios", "Processor time of the whole program over the system's", &columns);
    for test in 1..=super::runs::TESTS {
        let cells = Subject::POLICIES.map(|policy| ratio(Band::of(&runs.ratios(test, policy, "cpu_us"))));
        table.push(std::iter::once(test.to_string()).chain(cells).collect());
    }
    table
}
