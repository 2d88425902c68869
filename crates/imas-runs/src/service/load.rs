// SPDX-License-Identifier: Apache-2.0
//! One cycle of load: its lines one after the other, and their figures.

use std::collections::BTreeMap;
use std::path::Path;

use imas_linux::environment::Variables;

use crate::service::adapter::{self, Adapter};
use crate::service::line::LineEnd;
use crate::service::request_log::LogsBefore;
use imas_core::server_run::{CycleFigures, Figure, PhaseFigures, together};

/// The logs of requests that are there before a line runs.
pub(crate) fn logs_before(line: &str, folder: &Path, variables: &Variables) -> Option<LogsBefore<'static>> {
    Adapter::of(line)?.logs_before(line, folder, variables)
}

/// The figures of one line: from the file that it may have written, from its output, and from the requests that
/// it logged. The former have priority.
pub(crate) fn figures_of(
    line: &str,
    output: &str,
    metrics: &Path,
    logs: Option<LogsBefore<'_>>,
) -> Vec<Figure> {
    let mut figures = adapter::metrics(metrics);
    let printed = Adapter::of(line).map(|adapter| adapter.read(output)).unwrap_or_default();
    let logged = logs.map(|logs| logs.figures()).unwrap_or_default();
    for figure in printed.into_iter().chain(logged) {
        if !figures.iter().any(|known| known.name == figure.name) {
            figures.push(figure);
        }
    }
    figures
}

/// How many requests of the line failed, in words, if they are too many: some tools end well whatever fails.
pub(crate) fn too_many_failed(line: &str, end: &LineEnd) -> Option<String> {
    Adapter::of(line)?.too_many_failed(&end.output, end.wall_s)
}

/// Whether one of these lines runs for a fixed time.
pub(crate) fn is_by_clock(lines: &[String]) -> bool {
    lines.iter().any(|line| Adapter::of(line).is_some_and(|adapter| adapter.is_by_clock(line)))
}

/// The figures of all cycles and lines, combined by name.
pub(crate) fn over_all(cycles: &[CycleFigures]) -> BTreeMap<String, Figure> {
    let phases = cycles.iter().flat_map(|cycle: &CycleFigures| &cycle.phases);
    let mut named: BTreeMap<&str, Vec<&Figure>> = BTreeMap::new();
    for figure in phases.flat_map(|phase: &PhaseFigures| &phase.figures) {
        named.entry(&figure.name).or_default().push(figure);
    }
    let one = |(name, figures): (&str, Vec<&Figure>)| Some((name.to_owned(), together(&figures)?));
    named.into_iter().filter_map(one).collect()
}
