// SPDX-License-Identifier: Apache-2.0
//! `imas top --once`: the table on standard output, or the whole snapshot as JSON.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;
use imas_cli::format::counted;
use imas_cli::{message, output, table};
use imas_engine::live::ProcessObserver;
use imas_engine::live::snapshot::LiveSnapshot;

use crate::column::Column;
use crate::listing::Listing;

/// CPU time is measured over at most this time.
const MOST: Duration = Duration::from_secs(1);

/// Looks twice, because a share of CPU needs two looks, and prints.
pub(crate) fn print(
    observer: &mut ProcessObserver,
    listing: &Listing,
    interval: Duration,
    is_json: bool,
) -> Result<()> {
    observer.look()?;
    std::thread::sleep(interval.min(MOST));
    let look = observer.look()?;
    look.problems.iter().for_each(|problem| message::warning(problem));
    if is_json {
        return output::json(&listed(look, listing));
    }
    if look.unseen > 0 {
        message::warning(&format!("{} not looked at, or not to the end", counted(look.unseen, "process")));
    }
    let lines = listing.lines(&look.processes);
    let rows = lines.iter().map(|line| {
        let indented = |column: &Column| {
            let text = column.cell(&look.processes[line.process]);
            let depth = if *column == Column::Program { line.depth } else { 0 };
            format!("{}{text}", " ".repeat(depth))
        };
        Column::value_variants().iter().map(indented).collect()
    });
    let titles: Vec<&str> = Column::value_variants().iter().map(|column| column.title()).collect();
    output::text(&table::plain(&titles, rows))
}

/// The snapshot with the processes that are listed, in their order.
fn listed(look: LiveSnapshot, listing: &Listing) -> LiveSnapshot {
    let lines = listing.lines(&look.processes);
    let processes = lines.iter().map(|line| look.processes[line.process].clone()).collect();
    LiveSnapshot { processes, ..look }
}
