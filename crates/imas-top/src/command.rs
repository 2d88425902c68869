// SPDX-License-Identifier: Apache-2.0
//! What a key has `imas` do: the program that lies beside this one, in the background.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use imas_core::printable;
use imas_engine::flags::Places;
use imas_engine::live::snapshot::{LiveProcess, ProcessState, StoreKind};

/// The words of one call of `imas`, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImasCall {
    pub(crate) words: Vec<OsString>,
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
    pub(crate) fn explain(process: &LiveProcess, places: &Places) -> Vec<Self> {
        let pid = process.pid.to_string();
        let memory = Self::new(process, places, &["explain", "--pid", &pid]);
        let program = process.number.map(|number| number.to_string());
        let program = program.map(|number| Self::new(process, places, &["explain", &number]));
        std::iter::once(memory).chain(program).collect()
    }

    /// Pins the program to the candidate.
    pub(crate) fn pin(process: &LiveProcess, candidate: &str, places: &Places) -> Self {
        Self::new(process, places, &["pin", "--", &word(process), candidate])
    }

    /// The call that ends a pin.
    pub(crate) fn unpin(process: &LiveProcess, places: &Places) -> Self {
        Self::new(process, places, &["unpin", "--", &word(process)])
    }

    /// Excludes the program, or ends the exclusion. Exclusions go by path.
    pub(crate) fn exclude(process: &LiveProcess, places: &Places) -> Self {
        let is_script = process.detail.starts_with('/');
        let path = if is_script { &process.detail } else { &process.path };
        let action = if process.state == ProcessState::Excluded { "remove" } else { "add" };
        Self::new(process, places, &["exclude", action, "--", path])
    }

    /// The call that forgets what was measured of the program; None where nothing was.
    pub(crate) fn forget(process: &LiveProcess, places: &Places) -> Option<Self> {
        let number = process.number?.to_string();
        Some(Self::new(process, places, &["forget", &number]))
    }

    /// Gives its service the candidate; None for a process of no service of the system.
    pub(crate) fn apply(process: &LiveProcess, candidate: &str, now: bool, places: &Places) -> Option<Self> {
        let unit = process.unit.as_ref()?.system_name()?;
        let mut words = vec!["apply", unit, "--candidate", candidate, "--write"];
        words.extend(now.then_some("--now"));
        Some(Self::new(process, places, &words))
    }

    /// The call as it would be typed in a shell.
    pub(crate) fn text(&self) -> String {
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
pub(crate) struct Running {
    answer: Receiver<String>,
}

impl Running {
    /// Starts the calls, one after the other.
    pub(crate) fn start(imas: PathBuf, calls: Vec<ImasCall>) -> Self {
        let (to, answer) = channel();
        std::thread::spawn(move || {
            let texts = calls.iter().map(|call| output(&imas, call));
            // The receiver is gone where this program ends.
            let _ = to.send(texts.collect::<Vec<_>>().join("\n"));
        });
        Self { answer }
    }

    /// What the calls printed, once all have ended.
    pub(crate) fn answer(&self) -> Option<String> {
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
pub(crate) fn imas() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("imas"))).filter(|imas| imas.is_file());
    beside.unwrap_or_else(|| PathBuf::from("imas"))
}
