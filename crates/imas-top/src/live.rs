// SPDX-License-Identifier: Apache-2.0
//! The loop: look, draw, wait for keys.
//!
//! `imas top --once`: the table on standard output, or the whole snapshot as JSON.
//!
//! The terminal: taken over, given back whatever happens, and watched for its end.

use std::io::{IsTerminal, Stdin, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use imas_cli::format::counted;
use imas_cli::message::{self, Hinted};
use imas_cli::{output, table};
use imas_engine::live::snapshot::LiveSnapshot;
use imas_engine::live::{MEMORY_FROM, ProcessObserver};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::app::{self, App, Running};
use crate::cli::Cli;
use crate::column::{Column, Listing};
use crate::keys;
use crate::page::{self, Theme};

/// How often it is looked whether a command in the background has ended.
const ASK: Duration = Duration::from_millis(100);
/// Decisions shown of the selected program.
const DECISIONS: u32 = 4;

/// State of the loop.
struct Live {
    app: App,
    observer: ProcessObserver,
    theme: Theme,
    interval: Duration,
    next_look: Instant,
    running: Option<Running>,
}

/// Shows the page until the user ends it, a signal asks for it, or the terminal is gone.
pub(crate) fn run(cli: &Cli, listing: Listing) -> Result<()> {
    let mut screen = Screen::take()?;
    let mut live = Live {
        app: App::new(listing, cli.places.clone()),
        theme: Theme::of_environment(),
        observer: ProcessObserver::beside(&cli.places, &cli.run_dir)?,
        interval: cli.interval,
        next_look: Instant::now(),
        running: None,
    };
    live.draw(&mut screen)?;
    while !live.app.has_ended {
        live.look_if_due()?;
        live.collect();
        live.draw(&mut screen)?;
        match screen.wait(live.rest()) {
            Waited::End => break,
            Waited::Nothing => {}
            Waited::Something => live.read_keys()?,
        }
    }
    Ok(())
}

impl Live {
    fn draw(&self, screen: &mut Screen) -> Result<()> {
        screen.terminal.draw(|frame| page::draw(frame, &self.app, self.theme)).context("the terminal")?;
        Ok(())
    }

    /// How long nothing has to be done.
    fn rest(&self) -> Duration {
        let until_look = match self.app.is_paused {
            true => Duration::from_secs(60),
            false => self.next_look.saturating_duration_since(Instant::now()),
        };
        if self.running.is_some() { until_look.min(ASK) } else { until_look }
    }

    fn look_if_due(&mut self) -> Result<()> {
        if !self.app.is_paused && Instant::now() >= self.next_look {
            self.app.take(self.observer.look()?);
            self.look_closer();
            self.next_look = Instant::now() + self.interval;
        }
        Ok(())
    }

    /// Looks up what is shown of the selected process alone.
    fn look_closer(&mut self) {
        let Some(process) = self.app.process().cloned().filter(|_| self.app.has_pane) else {
            self.app.decisions.clear();
            return;
        };
        let stored = process.store.zip(process.number);
        self.app.decisions = stored
            .map(|(store, number)| self.observer.decisions(store, number, DECISIONS))
            .unwrap_or_default();
        if let Some(point) = self.observer.memory(process.pid) {
            self.app.history.add_parts(&process, point);
        }
    }

    /// Every key that is there, and what follows from it.
    fn read_keys(&mut self) -> Result<()> {
        let before = self.app.process().map(|process| process.pid);
        while event::poll(Duration::ZERO).context("the terminal")? {
            if let Event::Key(key) = event::read().context("the terminal")? {
                keys::press(&mut self.app, key);
            }
        }
        if self.app.process().map(|process| process.pid) != before {
            self.look_closer();
        }
        if !self.app.calls.is_empty() {
            let calls = std::mem::take(&mut self.app.calls);
            self.app.message = match &self.running {
                Some(_) => "the last command has not ended yet".to_owned(),
                None => format!("runs: {}", calls[0].text()),
            };
            self.running.get_or_insert_with(|| Running::start(app::imas(), calls));
        }
        Ok(())
    }

    /// Shows what a command in the background has printed.
    fn collect(&mut self) {
        if let Some(text) = self.running.as_ref().and_then(Running::answer) {
            self.running = None;
            self.app.message.clear();
            self.app.show("imas", &text);
            self.next_look = Instant::now();
        }
    }
}

/// The terminal while the page is on it. Dropping it gives the terminal back.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
    input: Stdin,
    is_ended: Arc<AtomicBool>,
}

/// Outcome of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// Keys, or another size, or a signal.
    Something,
    /// The time is over.
    Nothing,
    /// The terminal is gone, or a signal asks to end.
    End,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When standard input or output is no terminal, or one that cannot be steered.
    pub(super) fn take() -> Result<Self> {
        check()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_ended)).context("signals")?;
        }
        let terminal = ratatui::try_init().context("the terminal cannot be steered")?;
        Ok(Self { terminal, input: stdin(), is_ended })
    }

    /// Waits for input, at most this long. The descriptor is watched here: the library would turn in circles
    /// on a terminal that is gone.
    fn wait(&self, most: Duration) -> Waited {
        if self.is_ended.load(Ordering::Relaxed) {
            return Waited::End;
        }
        let mut fds = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let waited = poll(&mut fds, timeout);
        let events = fds[0].revents().unwrap_or(PollFlags::empty());
        match waited {
            _ if self.is_ended.load(Ordering::Relaxed) || events.intersects(gone) => Waited::End,
            Ok(0) => Waited::Nothing,
            Ok(_) | Err(Errno::EINTR) => Waited::Something,
            Err(_) => Waited::End,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be given back, and needs not.
        let _ = ratatui::try_restore();
    }
}

fn check() -> Result<()> {
    const HINT: &str = "'imas top --once' prints the table once, 'imas top --once --json' is for scripts";
    let no = |what: &str| Err(Hinted::error(format!("top: {what}"), HINT));
    if !stdout().is_terminal() {
        return no("standard output is no terminal");
    }
    if !stdin().is_terminal() {
        return no("standard input is no terminal");
    }
    match std::env::var("TERM").as_deref() {
        Err(_) | Ok("" | "dumb") => no("this terminal cannot be steered (TERM)"),
        Ok(_) => Ok(()),
    }
}

/// CPU time is measured over at most this time.
const MOST: Duration = Duration::from_secs(1);

/// Looks twice, because a share of CPU needs two looks, and prints.
pub(super) fn print_once(
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
    output::text(&(table::plain(&titles, rows) + &notes(&look)))
}

/// Reasons for what is not in the table, or has a dash there.
pub(crate) fn notes(look: &LiveSnapshot) -> String {
    let without = look.processes.iter().filter(|process| process.memory.is_none());
    let (large, small): (Vec<_>, Vec<_>) = without.partition(|process| process.resident_bytes >= MEMORY_FROM);
    let mut notes = String::new();
    let mut note = |count: usize, why: &str| {
        if count > 0 {
            notes += &format!("{}: {why}\n", counted(count, "process"));
        }
    };
    note(look.hidden, "of other users, not shown; root sees them: sudo imas top");
    note(
        small.len(),
        "less than 16 MiB, so that FREE and VERDICT have a dash: 'imas explain PID' looks at any",
    );
    note(
        large.len(),
        "memory not read in the time of this look, so that FREE and VERDICT have a dash: 'imas explain PID' looks at any",
    );
    note(look.unseen, "not looked at, or not to the end: looks at the processes of its owner took too long");
    notes
}

/// The snapshot with the processes that are listed, in their order.
fn listed(look: LiveSnapshot, listing: &Listing) -> LiveSnapshot {
    let lines = listing.lines(&look.processes);
    let processes = lines.iter().map(|line| look.processes[line.process].clone()).collect();
    LiveSnapshot { processes, ..look }
}
