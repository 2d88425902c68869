// SPDX-License-Identifier: Apache-2.0
//! The loop: look, draw, wait for keys.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_engine::live::ProcessObserver;
use ratatui::crossterm::event::{self, Event};

use crate::app::App;
use crate::cli::Cli;
use crate::command::{self, Running};
use crate::keys;
use crate::listing::Listing;
use crate::page;
use crate::terminal::{Screen, Waited};
use crate::theme::Theme;

/// How often it is looked whether a command in the background has ended.
const ASK: Duration = Duration::from_millis(100);
/// Decisions shown of the selected program.
const DECISIONS: u32 = 4;

/// What the loop works with.
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

    /// What is shown of the selected process alone.
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
            self.running.get_or_insert_with(|| Running::start(command::imas(), calls));
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
