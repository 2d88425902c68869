// SPDX-License-Identifier: Apache-2.0
//! The page: head, table, pane and last line, or a text over all.

use imas_cli::when::when;
use imas_core::plural::counted;
use imas_core::printable;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::app::{App, Input, Mode};
use crate::column::Column;
use crate::pane;
use crate::theme::Theme;
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
                pane::draw(frame, below, app, theme);
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

/// What is typed or asked, a message, or the most important keys.
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
