// SPDX-License-Identifier: Apache-2.0
//! Timing and footprint of the versions, and their state during the walk.

use super::runs::Runs;
use crate::band::{milliseconds, whole};
use imas_cli::table::Table;

/// The iterations in the table.
const SHOWN: [usize; 6] = [0, 200, 400, 600, 800, 1000];

pub(crate) fn tables(runs: &Runs) -> Vec<Table> {
    vec![states(runs), footprints(runs), times(runs)]
}

fn states(runs: &Runs) -> Table {
    let columns =
        ["version", "iteration", "free blocks", "mean free bytes", "used blocks", "requests refused so far"];
    let mut table = Table::new("states", "Along the walk: median and central nine tenths", &columns);
    for (version, walks) in runs.versions() {
        for i in SHOWN {
            let cell = |of| whole(walks.band_at(i, of));
            table.push(vec![
                version.to_owned(),
                i.to_string(),
                cell(|r| r.free_blocks),
                cell(|r| r.mean_free_bytes),
                cell(|r| r.used_blocks),
                cell(|r| r.refused),
            ]);
        }
    }
    table
}

fn footprints(runs: &Runs) -> Table {
    let columns = [
        "version",
        "header bytes",
        "first free block, bytes",
        "1,000 blocks of 16: payload bytes",
        "footprint bytes",
    ];
    let mut table = Table::new("footprint", "Memory", &columns);
    for f in &runs.footprints {
        let numbers = [f.header_bytes, f.first_free_bytes, f.payload_bytes, f.footprint_bytes];
        table.push(std::iter::once(f.version.clone()).chain(numbers.map(|n| n.to_string())).collect());
    }
    table
}

fn times(runs: &Runs) -> Table {
    let columns = ["header bytes", "printed ms a session", "ours, ms a session"];
    let mut table = Table::new("times", "Write sessions after the 30th", &columns);
    let large = milliseconds(runs.writing.settled(|s| s.large_header_ns));
    let small = milliseconds(runs.writing.settled(|s| s.small_header_ns));
    table.push(vec!["24".to_owned(), "8".to_owned(), large]);
    table.push(vec!["8".to_owned(), "6".to_owned(), small]);
    table
}
