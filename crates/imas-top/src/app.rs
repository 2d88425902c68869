// SPDX-License-Identifier: Apache-2.0
//! The state of the page: what was seen, what is selected, what is being typed. It knows no terminal.

use imas_engine::flags::Places;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot};
use imas_store::decisions::Decided;

use crate::command::ImasCall;
use crate::history::History;
use crate::listing::{Line, Listing, contains};

/// What takes the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The table.
    Table,
    /// Text is typed.
    Input {
        /// What the text is typed for.
        what: Input,
        /// The text that was typed so far.
        text: String,
    },
    /// A question is to be answered with y or n.
    Confirm {
        /// The question.
        question: String,
        /// What y does.
        yes: Vec<ImasCall>,
        /// What r does, if that is offered: the same with a restart.
        restart: Option<ImasCall>,
    },
    /// Text that was printed is shown.
    Text {
        /// Title above the text.
        title: String,
        /// The lines.
        lines: Vec<String>,
        /// The first line shown.
        top: usize,
    },
}

/// What text is typed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// A text to filter the processes by.
    Filter,
    /// A text to search for. The next process that contains it is selected.
    Search,
    /// A candidate to pin the program of the process with this pid to.
    Pin(u32),
    /// A candidate to give to the service of the process with this pid.
    Apply(u32),
}

/// The page.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) look: Option<LiveSnapshot>,
    pub(crate) listing: Listing,
    pub(crate) lines: Vec<Line>,
    pub(crate) mode: Mode,
    pub(crate) history: History,
    /// Decisions on the program of the selected process.
    pub(crate) decisions: Vec<Decided>,
    /// Whether the pane below the table is shown.
    pub(crate) has_pane: bool,
    pub(crate) is_paused: bool,
    pub(crate) has_ended: bool,
    /// Message in the last line, until the next key.
    pub(crate) message: String,
    /// What is to be started in the background.
    pub(crate) calls: Vec<ImasCall>,
    pub(crate) places: Places,
    /// Pid of the selected process, and its line when it was last there.
    selected: (Option<u32>, usize),
    searched: String,
}

impl App {
    /// A page without a look yet.
    pub(crate) fn new(listing: Listing, places: Places) -> Self {
        Self {
            look: None,
            listing,
            lines: vec![],
            mode: Mode::Table,
            history: History::default(),
            decisions: vec![],
            has_pane: true,
            is_paused: false,
            has_ended: false,
            message: String::new(),
            calls: vec![],
            places,
            selected: (None, 0),
            searched: String::new(),
        }
    }

    /// Takes the next look in.
    pub(crate) fn take(&mut self, look: LiveSnapshot) {
        self.history.add(&look);
        self.look = Some(look);
        self.arrange();
    }

    /// Makes the lines anew; the selection stays on its process, or at its place if that is gone.
    pub(crate) fn arrange(&mut self) {
        self.lines = self.look.as_ref().map_or_else(Vec::new, |look| self.listing.lines(&look.processes));
        let at = self.selected.0.and_then(|pid| self.line_of(pid));
        self.select(at.unwrap_or(self.selected.1));
    }

    fn line_of(&self, pid: u32) -> Option<usize> {
        let look = self.look.as_ref()?;
        self.lines.iter().position(|line| look.processes[line.process].pid == pid)
    }

    /// Selects a line; the last one if there are fewer.
    pub(crate) fn select(&mut self, line: usize) {
        let line = line.min(self.lines.len().saturating_sub(1));
        self.selected = (self.process_at(line).map(|process| process.pid), line);
    }

    /// Moves the selection.
    pub(crate) fn step(&mut self, by: isize) {
        self.select(self.selected.1.saturating_add_signed(by));
    }

    /// The selected line.
    pub(crate) fn line(&self) -> usize {
        self.selected.1
    }

    fn process_at(&self, line: usize) -> Option<&LiveProcess> {
        self.look.as_ref()?.processes.get(self.lines.get(line)?.process)
    }

    /// The selected process.
    pub(crate) fn process(&self) -> Option<&LiveProcess> {
        self.process_at(self.selected.1)
    }

    /// Goes to the next process below that contains the text; after the last comes the first.
    pub(crate) fn search(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.searched = text;
        }
        let len = self.lines.len();
        let below = (1..=len).map(|by| (self.selected.1 + by) % len.max(1));
        let is_it =
            |line: &usize| self.process_at(*line).is_some_and(|process| contains(process, &self.searched));
        match below.into_iter().find(is_it).filter(|_| !self.searched.is_empty()) {
            Some(line) => self.select(line),
            None => self.message = format!("nothing contains '{}'", self.searched),
        }
    }

    /// Shows what was printed.
    pub(crate) fn show(&mut self, title: impl Into<String>, text: &str) {
        let lines = text.lines().map(str::to_owned).collect();
        self.mode = Mode::Text { title: title.into(), lines, top: 0 };
    }
}
