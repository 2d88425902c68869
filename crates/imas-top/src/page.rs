// SPDX-License-Identifier: Apache-2.0
//! The page: head, table, pane and last line, or a text over all.
//!
//! Below the table: the selected process, its memory over time, and the last decisions about its program.

use imas_cli::format::when;
use imas_core::printable::{self, counted};
use imas_engine::live::memory_point::MemoryPoint;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot, ProcessState};
use imas_linux::serving::Injected;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Axis, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, TableState};

use crate::app::{App, Input, MemoryCurve, Mode};
use crate::column::Column;
use crate::words;

/// Lines of the head.
const HEAD: u16 = 3;
/// Lines of the pane.
const PANE: u16 = 9;
/// With fewer lines there is no room for the pane.
const LEAST_FOR_PANE: u16 = 18;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme) {
    let pane = if app.has_pane && frame.area().height >= LEAST_FOR_PANE { PANE } else { 0 };
    let parts =
        [Constraint::Length(HEAD), Constraint::Min(1), Constraint::Length(pane), Constraint::Length(1)];
    let [head, body, below, last] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(app)), head);
    match (&app.mode, &app.look) {
        (Mode::Text { title, lines, top }, _) => {
            let over = body.union(below);
            text(frame, over, (title, lines, *top), theme);
        }
        (_, None) => frame.render_widget(Paragraph::new("looking ..."), body),
        (_, Some(look)) => {
            table(frame, body, app, look, theme);
            if pane > 0 {
                draw_pane(frame, below, app, theme);
            }
        }
    }
    frame.render_widget(Paragraph::new(last_line(app)).style(last_style(app, theme)), last);
}

/// The machine, its pressure, and what follows.
fn head_lines(app: &App) -> Text<'static> {
    let Some(look) = &app.look else { return Text::from("imas top") };
    let machine = &look.machine;
    let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}%"));
    let stalls = &machine.pressure;
    let daemon = if look.daemon { "imasd runs" } else { "no imasd" };
    let clock = when(look.at_unix_s).chars().skip(11).collect::<String>();
    let counts = [(look.hidden, "of others not shown"), (look.unseen, "not looked at")];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let hidden = counts.reduce(|all, more| format!("{all}, {more}"));
    let hidden = hidden.map_or_else(String::new, |counts| format!(" ({counts})"));
    let paused = if app.is_paused { ", stopped" } else { "" };
    let shown = counted(app.lines.len(), "process");
    let first = format!("imas top {clock}  {shown}{hidden}, {daemon}{paused}");
    let second = format!(
        "waiting for CPU {}, memory {} (all: {}), disk {}; memory {} free of {}",
        percent(stalls.cpu_some),
        percent(stalls.memory_some),
        percent(stalls.memory_full),
        percent(stalls.io_some),
        words::size(machine.available_bytes as f64),
        words::size(machine.memory_bytes as f64),
    );
    let third = format!("prefers: {} (weight of CPU {:.2})", machine.preference.words(), machine.weight.w);
    Text::from(vec![Line::from(first), Line::from(second), Line::from(third)])
}

fn table(frame: &mut Frame<'_>, area: Rect, app: &App, look: &LiveSnapshot, theme: Theme) {
    let columns = Column::that_fit(area.width);
    // Only the lines that are seen are made: there may be thousands.
    let height = usize::from(area.height.saturating_sub(1));
    let top = (app.line() + 1).saturating_sub(height.max(1)).min(app.lines.len());
    let seen = app.lines.iter().skip(top).take(height);
    let rows = seen.map(|line| row(&columns, &look.processes[line.process], line.depth, theme));
    let widths = columns.iter().map(|column| match column.share() {
        0 => Constraint::Length(column.width()),
        _ => Constraint::Min(column.width()),
    });
    let head = columns.iter().map(|column| aligned(*column, titled(app, *column)));
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(theme.title()))
        .column_spacing(1)
        .row_highlight_style(theme.selected());
    let mut state = TableState::new().with_selected(Some(app.line() - top));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The column that is sorted by has a mark.
fn titled(app: &App, column: Column) -> String {
    let mark = if app.listing.sort == column { "*" } else { "" };
    format!("{mark}{}", column.title())
}

fn row(columns: &[Column], process: &LiveProcess, depth: usize, theme: Theme) -> Row<'static> {
    let cell = |column: &Column| {
        let text = column.cell(process);
        match column {
            Column::Program if depth > 0 => Cell::from(format!("{}{text}", " ".repeat(depth.min(8)))),
            Column::State => Cell::from(text).style(theme.state(&process.state)),
            _ => aligned(*column, text),
        }
    };
    Row::new(columns.iter().map(cell).collect::<Vec<_>>())
}

fn aligned(column: Column, text: String) -> Cell<'static> {
    let alignment = if column.is_number() { Alignment::Right } else { Alignment::Left };
    Cell::from(Text::from(text).alignment(alignment))
}

fn text(frame: &mut Frame<'_>, area: Rect, (title, lines, top): (&str, &[String], usize), theme: Theme) {
    let height = usize::from(area.height.saturating_sub(1));
    let end = (top + height).min(lines.len());
    let title = format!("{title}: lines {} to {end} of {}; Esc goes back", (top + 1).min(end), lines.len());
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(title).style(theme.title()), above);
    let seen: Vec<Line<'_>> =
        lines.iter().skip(top).take(height).map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(seen), below);
}

/// The text that is typed, the question, a message, or the most important keys.
fn last_line(app: &App) -> String {
    match &app.mode {
        Mode::Input { what, text } => {
            let what = match what {
                Input::Filter => "show only",
                Input::Search => "search",
                Input::Pin(_) => "pin to the candidate",
                Input::Apply(_) => "give its service the candidate",
            };
            format!("{what}: {}_", printable::name(text))
        }
        Mode::Confirm { question, restart: None, .. } => format!("{question} y: yes, n: no"),
        Mode::Confirm { question, .. } => format!("{question} y: write, r: and restart, n: no"),
        _ if !app.message.is_empty() => app.message.clone(),
        _ => problem(app).unwrap_or_else(|| keys(app)),
    }
}

fn problem(app: &App) -> Option<String> {
    let problem = app.look.as_ref()?.problems.first()?;
    Some(printable::name(problem).into_owned())
}

fn keys(app: &App) -> String {
    let filter = &app.listing.filter;
    let filter = if filter.is_empty() { String::new() } else { format!(" [{}]", printable::name(filter)) };
    format!("? keys  q end  s sort  f filter{filter}  / search  t tree  e explain  p pin  x exclude  a apply")
}

fn last_style(app: &App, theme: Theme) -> ratatui::style::Style {
    let is_warning = app.message.is_empty() && problem(app).is_some() && app.mode == Mode::Table;
    let is_question = matches!(app.mode, Mode::Confirm { .. });
    if is_warning || is_question { theme.warning() } else { ratatui::style::Style::default() }
}

/// The parts of a point, from below: name and bytes.
const PARTS: [&str; 5] = ["in use", "free blocks", "free pages", "heap", "other"];

/// Draws the pane.
fn draw_pane(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
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
    lines.extend(process.memory.iter().flat_map(|memory| words::memory_lines(memory)));
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

/// How the page looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Theme {
    has_colour: bool,
    /// Whether lines and dots beyond ASCII can be shown.
    pub(super) has_unicode: bool,
}

impl Theme {
    /// The theme that `NO_COLOR` and the locale's variables ask for. `NO_COLOR` counts when it is not empty.
    pub(super) fn of_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        Self { has_colour: set("NO_COLOR").is_none(), has_unicode: is_utf8(&locale) }
    }

    /// A theme with or without colour, and with or without characters beyond ASCII.
    #[cfg(test)]
    pub(super) fn new(has_colour: bool, has_unicode: bool) -> Self {
        Self { has_colour, has_unicode }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colour { Style::default().fg(colour) } else { Style::default() }
    }

    /// Style of the column titles.
    pub(super) fn title(self) -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    /// Style of the selected line.
    pub(super) fn selected(self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }

    /// Style of what needs attention.
    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of a state.
    pub(super) fn state(self, state: &ProcessState) -> Style {
        match state {
            ProcessState::Trial { .. } => self.coloured(Color::Yellow),
            ProcessState::Settled { .. } | ProcessState::Pinned { .. } => self.coloured(Color::Green),
            ProcessState::Quarantined { .. } | ProcessState::Lost { .. } => self.coloured(Color::Red),
            ProcessState::Testing { .. } => self.coloured(Color::Cyan),
            ProcessState::LeftAlone { .. } | ProcessState::Excluded | ProcessState::Unknown => {
                Style::default()
            }
        }
    }

    /// Style of the lines of a curve: in use, free blocks, free pages, heap, other.
    pub(super) fn curve(self, at: usize) -> Style {
        const COLOURS: [Color; 5] = [Color::Green, Color::Yellow, Color::Red, Color::Cyan, Color::Blue];
        self.coloured(COLOURS[at % COLOURS.len()])
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_no_style_has_one() {
        let theme = Theme::new(false, true);
        let styles = [
            theme.title(),
            theme.selected(),
            theme.warning(),
            theme.curve(0),
            theme.state(&ProcessState::Excluded),
        ];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert!(is_utf8("C.UTF-8") && is_utf8("de_DE.utf8") && !is_utf8("C") && !is_utf8(""));
    }
}
