// SPDX-License-Identifier: Apache-2.0
//! The state of the page: what was seen, what is selected, what is being typed. It knows no terminal.
//!
//! Calls of `imas` by a key: the program that lies beside this one, in the background.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use imas_core::printable;
use imas_engine::flags::Places;
use imas_engine::live::memory_point::MemoryPoint;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot, ProcessState, StoreKind};
use imas_store::decisions::Decided;

use crate::column::{Line, Listing, contains};

/// Mode of the program, which takes the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The table.
    Table,
    /// Text is typed.
    Input {
        /// Purpose of the text.
        what: Input,
        /// The text that was typed so far.
        text: String,
    },
    /// A question is to be answered with y or n.
    Confirm {
        /// The question.
        question: String,
        /// Action of the key y.
        yes: Vec<ImasCall>,
        /// Action of the key r, if it is offered: the same with a restart.
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

/// Purpose of a text that is typed.
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
    /// Calls to start in the background.
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

/// The words of one call of `imas`, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImasCall {
    pub(super) words: Vec<OsString>,
}

impl ImasCall {
    fn new(process: &LiveProcess, places: &Places, words: &[&str]) -> Self {
        let mut all: Vec<OsString> = vec![];
        if let Some(folder) = &places.lib_dir {
            all.extend(["--lib-dir".into(), folder.clone().into_os_string()]);
        }
        match (process.store, &places.store) {
            (Some(StoreKind::System), _) => all.push("--system".into()),
            _ if places.system => all.push("--system".into()),
            (_, Some(store)) => all.extend(["--store".into(), store.clone().into_os_string()]),
            (_, None) => {}
        }
        all.extend(words.iter().map(OsString::from));
        Self { words: all }
    }

    /// Calls that show where the memory of the process is and, of a known program, why it starts as it does.
    pub(super) fn explain(process: &LiveProcess, places: &Places) -> Vec<Self> {
        let pid = process.pid.to_string();
        let memory = Self::new(process, places, &["explain", "--pid", &pid]);
        let program = process.number.map(|number| number.to_string());
        let program = program.map(|number| Self::new(process, places, &["explain", &number]));
        std::iter::once(memory).chain(program).collect()
    }

    /// Pins the program to the candidate.
    pub(super) fn pin(process: &LiveProcess, candidate: &str, places: &Places) -> Self {
        Self::new(process, places, &["pin", "--", &word(process), candidate])
    }

    /// The call that ends a pin.
    pub(super) fn unpin(process: &LiveProcess, places: &Places) -> Self {
        Self::new(process, places, &["unpin", "--", &word(process)])
    }

    /// Excludes the program, or ends the exclusion. Exclusions go by path.
    pub(super) fn exclude(process: &LiveProcess, places: &Places) -> Self {
        let is_script = process.detail.starts_with('/');
        let path = if is_script { &process.detail } else { &process.path };
        let action = if process.state == ProcessState::Excluded { "remove" } else { "add" };
        Self::new(process, places, &["exclude", action, "--", path])
    }

    /// The call that forgets what was measured of the program; None where nothing was.
    pub(super) fn forget(process: &LiveProcess, places: &Places) -> Option<Self> {
        let number = process.number?.to_string();
        Some(Self::new(process, places, &["forget", &number]))
    }

    /// Gives its service the candidate; None for a process of no service of the system.
    pub(super) fn apply(process: &LiveProcess, candidate: &str, now: bool, places: &Places) -> Option<Self> {
        let unit = process.unit.as_ref()?.system_name()?;
        let mut words = vec!["apply", unit, "--candidate", candidate, "--write"];
        words.extend(now.then_some("--now"));
        Some(Self::new(process, places, &words))
    }

    /// The call as it would be typed in a shell.
    pub(super) fn text(&self) -> String {
        let words = self.words.iter().map(|word| printable::name(&word.to_string_lossy()).into_owned());
        format!("imas {}", words.collect::<Vec<_>>().join(" "))
    }
}

/// The number where the store has one; else the path, as for a program that never started under IMAS.
fn word(process: &LiveProcess) -> String {
    process.number.map_or_else(|| process.path.clone(), |number| number.to_string())
}

/// Calls that run in the background.
#[derive(Debug)]
pub(super) struct Running {
    answer: Receiver<String>,
}

impl Running {
    /// Starts the calls, one after the other.
    pub(super) fn start(imas: PathBuf, calls: Vec<ImasCall>) -> Self {
        let (to, answer) = channel();
        std::thread::spawn(move || {
            let texts = calls.iter().map(|call| output(&imas, call));
            // The receiver is gone where this program ends.
            let _ = to.send(texts.collect::<Vec<_>>().join("\n"));
        });
        Self { answer }
    }

    /// Text that the calls printed, once all have ended.
    pub(super) fn answer(&self) -> Option<String> {
        match self.answer.try_recv() {
            Ok(text) => Some(text),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some("imas gave no answer".to_owned()),
        }
    }
}

/// Everything that the call printed, safe for a terminal.
fn output(imas: &PathBuf, call: &ImasCall) -> String {
    let mut command = Command::new(imas);
    command.args(&call.words).stdin(Stdio::null()).env("NO_COLOR", "1");
    let text = match command.output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).into_owned()
        }
        Err(error) => {
            format!("{}: {error}\nhint: imas and imas-top belong into one folder\n", imas.display())
        }
    };
    printable::text(&text).replace('\t', "    ")
}

/// The `imas` beside this program; by its name where there is none.
pub(super) fn imas() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("imas"))).filter(|imas| imas.is_file());
    beside.unwrap_or_else(|| PathBuf::from("imas"))
}

/// Points kept of a process. Beyond, every other one is dropped: the whole time stays in view.
const MOST_POINTS: usize = 240;

/// Resident memory of one process over time, and its parts from when it was selected on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MemoryCurve {
    /// Unix time in seconds, and resident bytes.
    pub(super) resident: Vec<(f64, f64)>,
    /// The parts, while the process was selected.
    pub(super) parts: Vec<MemoryPoint>,
    /// Looks that pass between two points.
    stride: usize,
    skipped: usize,
}

impl MemoryCurve {
    fn add(&mut self, at_s: f64, bytes: u64) {
        if self.resident.last().is_some_and(|last| at_s < last.0) {
            *self = Self::default(); // the clock was set back
        }
        self.skipped += 1;
        if self.skipped < self.stride.max(1) {
            return;
        }
        self.skipped = 0;
        self.resident.push((at_s, bytes as f64));
        if self.resident.len() > MOST_POINTS {
            self.stride = self.stride.max(1) * 2;
            thin(&mut self.resident);
        }
    }
}

/// Keeps every other point, and the last.
fn thin<T: Copy>(points: &mut Vec<T>) {
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at == last);
    *points = kept.map(|(_, point)| *point).collect();
}

/// The curves of all processes.
#[derive(Debug, Default)]
pub(super) struct History {
    curves: HashMap<(u32, u64), MemoryCurve>,
}

impl History {
    /// Takes a look in; curves of processes that have ended are dropped.
    pub(super) fn add(&mut self, look: &LiveSnapshot) {
        let mut before = std::mem::take(&mut self.curves);
        for process in &look.processes {
            let key = (process.pid, process.start_ticks);
            let mut curve = before.remove(&key).unwrap_or_default();
            curve.add(look.at_unix_s, process.resident_bytes);
            self.curves.insert(key, curve);
        }
    }

    /// Takes the parts of the selected process in.
    pub(super) fn add_parts(&mut self, process: &LiveProcess, point: MemoryPoint) {
        let curve = self.curves.entry((process.pid, process.start_ticks)).or_default();
        // The same answer twice is one point.
        if curve.parts.last() != Some(&point) {
            curve.parts.push(point);
        }
        if curve.parts.len() > MOST_POINTS {
            thin(&mut curve.parts);
        }
    }

    /// The memory curve of a process.
    pub(super) fn of(&self, process: &LiveProcess) -> Option<&MemoryCurve> {
        self.curves.get(&(process.pid, process.start_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_beginning_and_its_end() {
        let mut curve = MemoryCurve::default();
        (0..10_000u32).for_each(|at| curve.add(f64::from(at), u64::from(at)));
        assert!(curve.resident.len() <= MOST_POINTS && curve.resident.len() > MOST_POINTS / 4);
        assert_eq!(curve.resident[0].0, 0.0);
        assert!(curve.resident.last().unwrap().0 > 9800.0, "{:?}", curve.resident.last());
        assert!(curve.resident.is_sorted_by(|a, b| a.0 < b.0));
        curve.add(1.0, 1);
        assert_eq!(curve.resident, [(1.0, 1.0)], "the clock was set back");
    }
}
