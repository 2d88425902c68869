// SPDX-License-Identifier: Apache-2.0
//! Below the table: the selected process, its memory over time, and the last decisions about its program.

use imas_cli::when::when;
use imas_core::printable;
use imas_engine::live::memory_point::MemoryPoint;
use imas_engine::live::snapshot::{LiveProcess, ProcessState};
use imas_linux::serving::injected::Injected;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};

use crate::app::App;
use crate::history::MemoryCurve;
use crate::theme::Theme;
use crate::words;

/// The parts of a point, from below: name and bytes.
const PARTS: [&str; 5] = ["in use", "free blocks", "free pages", "heap", "other"];

/// Draws the pane.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let Some(process) = app.process() else { return };
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(headline(process)).style(theme.title()), above);
    let curve = app.history.of(process);
    let halves = [Constraint::Percentage(40), Constraint::Percentage(60)];
    match curve.filter(|curve| theme.has_unicode && curve.resident.len() > 1) {
        Some(curve) => {
            let [left, right] = Layout::horizontal(halves).spacing(1).areas(below);
            chart(frame, left, curve, theme);
            frame.render_widget(Paragraph::new(facts(app, process, curve.parts.last())), right);
        }
        None => {
            let point = curve.and_then(|curve| curve.parts.last());
            frame.render_widget(Paragraph::new(facts(app, process, point)), below);
        }
    }
}

fn headline(process: &LiveProcess) -> String {
    let unit = process
        .unit
        .as_ref()
        .map_or_else(String::new, |unit| format!(", {}", printable::name(&unit.to_string())));
    format!("{} {}{unit}", process.pid, printable::name(&process.program))
}

/// Everything that has no place in a narrow table.
fn facts(app: &App, process: &LiveProcess, point: Option<&MemoryPoint>) -> Vec<Line<'static>> {
    let mut lines = vec![allocator(process), words::state(process)];
    if let ProcessState::Testing { next, .. } = &process.state {
        lines.push(format!("next start: {}", printable::name(next)));
    }
    if !process.quarantined.is_empty() {
        lines.push(format!("quarantined: {}", printable::name(&process.quarantined.join(", "))));
    }
    lines.extend(process.gain.as_ref().map(words::gain_sentence));
    lines.extend(point.map(memory));
    let decisions = app.decisions.iter().map(|decided| {
        let kind = if decided.trial { "trial of " } else { "" };
        let because = printable::name(&decided.because);
        format!("{} {kind}{}: {because}", when(decided.at_s), printable::name(&decided.candidate))
    });
    lines.extend(decisions);
    lines.into_iter().map(Line::from).collect()
}

fn allocator(process: &LiveProcess) -> String {
    let injected = match process.injected {
        Injected::Nothing => "",
        Injected::Guard => ", placed by IMAS",
        Injected::Hook => ", counted by the hook",
    };
    let candidate = process.candidate.as_deref().unwrap_or("candidate not known");
    let settings = match &process.settings {
        None => "; settings not readable".to_owned(),
        Some(settings) => settings.iter().map(|(name, value)| format!(" {name}={value}")).collect(),
    };
    printable::name(&format!("{} ({candidate}{injected}){settings}", process.allocator)).into_owned()
}

/// The memory now, part by part.
fn memory(point: &MemoryPoint) -> String {
    let parts = parts(point).into_iter().zip(PARTS);
    let known = parts.filter_map(|(bytes, name)| Some(format!("{name} {}", words::size(bytes? as f64))));
    known.collect::<Vec<_>>().join(", ")
}

fn parts(point: &MemoryPoint) -> [Option<u64>; 5] {
    [point.in_use, point.free_blocks, point.free_pages, Some(point.heap), Some(point.other)]
}

fn chart(frame: &mut Frame<'_>, area: Rect, curve: &MemoryCurve, theme: Theme) {
    let (first, last) = match (curve.resident.first(), curve.resident.last()) {
        (Some(first), Some(last)) => (first.0, last.0),
        _ => return,
    };
    let top = curve.resident.iter().map(|point| point.1).fold(1.0, f64::max) * 1.05;
    let stacked: Vec<Vec<(f64, f64)>> = (0..PARTS.len() - 1).map(|part| stacked(curve, part)).collect();
    let shown = stacked.iter().enumerate().filter(|(_, points)| !points.is_empty());
    let line = |points, at| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(theme.curve(at))
            .data(points)
    };
    let mut lines: Vec<Dataset<'_>> = shown.map(|(at, points)| line(points.as_slice(), at)).collect();
    lines.push(line(&curve.resident, PARTS.len() - 1));
    let span = format!("{:.0} s ago", last - first);
    let chart = Chart::new(lines)
        .x_axis(Axis::default().bounds([first, last]).labels([span, "now".to_owned()]))
        .y_axis(Axis::default().bounds([0.0, top]).labels(["0".to_owned(), words::size(top)]));
    frame.render_widget(chart, area);
}

/// The upper edge of a part over time: with all that is below it. Empty where the part is not known.
fn stacked(curve: &MemoryCurve, part: usize) -> Vec<(f64, f64)> {
    let edge = |point: &MemoryPoint| {
        let parts = parts(point);
        parts[part]?;
        let below: u64 = parts[..=part].iter().flatten().sum();
        Some((point.at_unix_s, below as f64))
    };
    curve.parts.iter().filter_map(edge).collect()
}
