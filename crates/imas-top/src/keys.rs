// SPDX-License-Identifier: Apache-2.0
//! Actions of the keys.

use clap::ValueEnum;
use imas_core::printable;
use imas_engine::live::snapshot::{LiveProcess, ProcessState};
use imas_linux::index::ServiceUnit;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::app::{App, ImasCall, Input, Mode};
use crate::column::Column;
use crate::words;

/// Lines that a page key moves.
const PAGE: isize = 10;

/// Text that `?` shows.
const HELP: &str = "\
up, down, j, k, PgUp, PgDn, Home, End   select a process
s, S          sort by the next, the last column; r the other way round
f             show only processes that contain a text; Esc all again
/, n          go to the next process that contains a text
t             children below their parents
Enter         the pane below the table: memory, gain, decisions
Space         stop, go on

e             explain: where its memory is, and why it starts as it does
p             pin the program to a candidate; pinned already: end that
x             exclude the program, or include it again
a             apply a candidate to its service (asks)
F             forget what was measured of the program (asks)
q             end

GAIN: what a restart would change in memory and CPU.
?: not proven by trials, ~: what FREE shows, no trial was made.
";

/// Does what the key means in the present mode.
pub(crate) fn press(app: &mut App, key: KeyEvent) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        // The terminal passes them as keys in raw mode.
        app.has_ended |= matches!(key.code, KeyCode::Char('c' | 'd'));
        return;
    }
    app.message.clear();
    match std::mem::replace(&mut app.mode, Mode::Table) {
        Mode::Table => in_table(app, key.code),
        Mode::Input { what, text } => in_input(app, what, text, key.code),
        Mode::Confirm { question, yes, restart } => in_question(app, question, yes, restart, key.code),
        Mode::Text { title, lines, top } => in_text(app, (title, lines, top), key.code),
    }
}

fn in_table(app: &mut App, key: KeyCode) {
    match key {
        KeyCode::Char('q') => app.has_ended = true,
        KeyCode::Up | KeyCode::Char('k') => app.step(-1),
        KeyCode::Down | KeyCode::Char('j') => app.step(1),
        KeyCode::PageUp => app.step(-PAGE),
        KeyCode::PageDown => app.step(PAGE),
        KeyCode::Home | KeyCode::Char('g') => app.select(0),
        KeyCode::End | KeyCode::Char('G') => app.select(usize::MAX),
        KeyCode::Char('s') => sort(app, 1),
        KeyCode::Char('S') => sort(app, Column::value_variants().len() - 1),
        KeyCode::Char('r') => arrange(app, |app| app.listing.is_reversed ^= true),
        KeyCode::Char('t') => arrange(app, |app| app.listing.is_tree ^= true),
        KeyCode::Char('f') => input(app, Input::Filter, app.listing.filter.clone()),
        KeyCode::Char('/') => input(app, Input::Search, String::new()),
        KeyCode::Char('n') => app.search(None),
        KeyCode::Char(' ') => app.is_paused ^= true,
        KeyCode::Enter => app.has_pane ^= true,
        KeyCode::Esc => arrange(app, |app| app.listing.filter.clear()),
        KeyCode::Char('?' | 'h') => app.show("keys", HELP),
        KeyCode::Char('e' | 'p' | 'x' | 'a' | 'F') => act(app, key),
        _ => {}
    }
}

fn arrange(app: &mut App, change: impl FnOnce(&mut App)) {
    change(app);
    app.arrange();
}

fn sort(app: &mut App, by: usize) {
    let all = Column::value_variants();
    let at = all.iter().position(|column| *column == app.listing.sort).unwrap_or(0);
    app.listing.sort = all[(at + by) % all.len()];
    let name = app.listing.sort.to_possible_value();
    app.message = format!("sorted by {}", name.as_ref().map_or("", |name| name.get_name()));
    app.arrange();
}

fn input(app: &mut App, what: Input, text: String) {
    app.mode = Mode::Input { what, text };
}

/// Handles the keys that concern the selected process.
fn act(app: &mut App, key: KeyCode) {
    let Some(process) = app.process().cloned() else { return };
    let places = &app.places;
    let suggested = || process.gain.as_ref().map(|gain| gain.candidate.clone()).unwrap_or_default();
    let is_pinned = matches!(process.state, ProcessState::Pinned { .. });
    match key {
        KeyCode::Char('e') => app.calls = ImasCall::explain(&process, places),
        KeyCode::Char('p') if is_pinned => app.calls = vec![ImasCall::unpin(&process, places)],
        KeyCode::Char('p') => input(app, Input::Pin(process.pid), suggested()),
        KeyCode::Char('x') => app.calls = vec![ImasCall::exclude(&process, places)],
        KeyCode::Char('a') if process.unit.as_ref().and_then(ServiceUnit::system_name).is_none() => {
            app.message =
                "it belongs to no service of the system: start it again with 'imas run -- ...'".to_owned();
        }
        KeyCode::Char('a') => input(app, Input::Apply(process.pid), suggested()),
        _ => match ImasCall::forget(&process, places) {
            Some(call) => {
                let question = format!("Forget all that was measured of {}?", words::program(&process));
                app.mode = Mode::Confirm { question, yes: vec![call], restart: None };
            }
            None => app.message = "nothing was measured of it".to_owned(),
        },
    }
}

fn in_input(app: &mut App, what: Input, mut text: String, key: KeyCode) {
    match key {
        KeyCode::Esc => return,
        KeyCode::Enter => return entered(app, what, text),
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(typed) => text.push(typed),
        _ => {}
    }
    if what == Input::Filter {
        app.listing.filter.clone_from(&text);
        app.arrange();
    }
    app.mode = Mode::Input { what, text };
}

fn entered(app: &mut App, what: Input, text: String) {
    match what {
        Input::Filter => {}
        Input::Search => app.search(Some(text)),
        Input::Pin(_) | Input::Apply(_) if text.trim().is_empty() => {
            app.message = "no candidate was named; 'imas list' has them".to_owned();
        }
        Input::Pin(pid) => {
            let Some(process) = still_selected(app, pid) else { return };
            app.calls = vec![ImasCall::pin(&process, text.trim(), &app.places)];
        }
        Input::Apply(pid) => ask_to_apply(app, pid, text.trim()),
    }
}

/// The process for which a candidate was typed. Where it is gone, another one is selected by now.
fn still_selected(app: &mut App, pid: u32) -> Option<LiveProcess> {
    let process = app.process().filter(|process| process.pid == pid).cloned();
    if process.is_none() {
        app.message = "the process is gone: nothing was done".to_owned();
    }
    process
}

fn ask_to_apply(app: &mut App, pid: u32, candidate: &str) {
    let Some(process) = still_selected(app, pid) else { return };
    let call = |now| ImasCall::apply(&process, candidate, now, &app.places);
    let (Some(write), Some(restart)) = (call(false), call(true)) else { return };
    let unit = process.unit.as_ref().map_or_else(String::new, ServiceUnit::to_string);
    let unit = printable::name(&unit);
    let question = format!("Give {unit} the allocator {} by a drop-in?", printable::name(candidate));
    app.mode = Mode::Confirm { question, yes: vec![write], restart: Some(restart) };
}

fn in_question(app: &mut App, question: String, yes: Vec<ImasCall>, restart: Option<ImasCall>, key: KeyCode) {
    match (key, restart) {
        (KeyCode::Char('y' | 'Y'), _) => app.calls = yes,
        (KeyCode::Char('r' | 'R'), Some(restart)) => app.calls = vec![restart],
        (KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc, _) => app.message = "nothing was done".to_owned(),
        (_, restart) => app.mode = Mode::Confirm { question, yes, restart },
    }
}

fn in_text(app: &mut App, (title, lines, top): (String, Vec<String>, usize), key: KeyCode) {
    let page = PAGE.unsigned_abs();
    let last = lines.len().saturating_sub(1);
    let top = match key {
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?' | 'h') => return,
        KeyCode::Up | KeyCode::Char('k') => top.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (top + 1).min(last),
        KeyCode::PageUp => top.saturating_sub(page),
        KeyCode::PageDown | KeyCode::Char(' ') => (top + page).min(last),
        KeyCode::Home => 0,
        _ => top,
    };
    app.mode = Mode::Text { title, lines, top };
}
