// SPDX-License-Identifier: Apache-2.0
//! How a service is started, loaded and stopped, and the limits of its runs. Data only. Last, the errors that prevent a
//! run: a server that fails is not such an error, the record of its run has the failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imas_linux::environment::UnusablePath;
use imas_linux::measure::RunError;
use imas_linux::program::CommandError;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::service::ready::Ready;

/// One service. The TOML file has the same field names.
///
/// `$PORT` (a free port), `$PORT2` to `$PORT4` (more free ports), `$WORK` (a fresh folder for each run),
/// `$SETUP` (one folder for all runs) and `$SERVICE_DIR` (the folder of the TOML file) are replaced in
/// `command`, `ready` and the values of `environment`. All other lines are run by `sh -eu`, which gets them
/// as variables.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Name in reports.
    #[serde(default)]
    pub name: String,
    /// Description in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Debian packages that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The server's command line, without a shell.
    #[serde(default)]
    pub command: String,
    /// Test for readiness: `tcp:PORT`, `unix:PATH`, a URL, or a command that succeeds.
    pub ready: String,
    /// One cycle of load: shell lines that run one after the other.
    pub load: Vec<String>,
    /// Number of cycles.
    #[serde(default = "default_cycles")]
    pub cycles: u32,
    /// Seconds without load after the last cycle.
    #[serde(default = "default_idle_s")]
    pub idle: f64,
    /// A day after the pause: parts of a fixed length, busy and quiet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub day: Vec<DayPart>,
    /// A line of load with a fixed rate of requests, `$RATE` per second: half of what `system` reaches, which is
    /// measured first with a rate of 0, as fast as it can. It runs after the pause, and its latencies are
    /// `open_p99` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// The signal that ends the server.
    #[serde(default)]
    pub stop: StopSignal,
    /// Runs once before all runs, in `$SETUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Runs before each start, in `$WORK`. A process that it leaves running is a helper of the load. It is
    /// ended after the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Runs after each run, in `$WORK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
    /// Additional variables of the server and of all lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Number of threads that work at once in the server.
    #[serde(default = "one")]
    pub threads: u32,
    /// Time limit for the server to become ready, seconds.
    #[serde(default = "default_limit_s")]
    pub ready_timeout: f64,
    /// Time limit for one line of load, seconds.
    #[serde(default = "default_load_timeout_s")]
    pub load_timeout: f64,
    /// Folder of its file, `$SERVICE_DIR`.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
    /// Folder in which the server and all of its lines run; None: `$WORK`, and `$SETUP` for the set-up.
    #[serde(skip)]
    pub runs_in: Option<PathBuf>,
    /// The server has an allocator or a pool of its own, so no gain is expected.
    #[serde(default)]
    pub own_allocator: bool,
}

/// A part of a day.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct DayPart {
    /// Activity in it.
    pub part: DayKind,
    /// Its length.
    pub seconds: f64,
    /// Cycles of load in it.
    #[serde(default)]
    pub cycles: u32,
}

/// Activity in a part of a day.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum DayKind {
    /// Cycles of load, spread evenly over the part.
    Busy,
    /// No load.
    Quiet,
    /// Cycles of load one after the other from its beginning.
    Burst,
}

impl DayKind {
    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Quiet => "quiet",
            Self::Burst => "burst",
        }
    }
}

/// A signal by its name without `SIG`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGWINCH: Apache finishes the current requests, then ends.
    Winch,
    /// SIGKILL, for a server without state.
    Kill,
}

impl StopSignal {
    /// The signal's value for the kernel.
    #[must_use]
    pub fn signal(self) -> Signal {
        match self {
            Self::Term => Signal::SIGTERM,
            Self::Int => Signal::SIGINT,
            Self::Quit => Signal::SIGQUIT,
            Self::Hup => Signal::SIGHUP,
            Self::Usr1 => Signal::SIGUSR1,
            Self::Winch => Signal::SIGWINCH,
            Self::Kill => Signal::SIGKILL,
        }
    }
}

impl std::str::FromStr for StopSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        serde_json::from_value(name.into())
            .map_err(|_| "one of TERM, INT, QUIT, HUP, USR1, WINCH, KILL".to_owned())
    }
}

fn default_cycles() -> u32 {
    Service::CYCLES
}

fn default_idle_s() -> f64 {
    Service::IDLE_S
}

fn default_limit_s() -> f64 {
    60.0
}

fn default_load_timeout_s() -> f64 {
    900.0
}

fn one() -> u32 {
    1
}

/// The reason why a file does not define a service.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ServiceFileError {
    /// The file cannot be read.
    #[error("{}: {error}", .file.display())]
    Read { file: PathBuf, error: std::io::Error },
    /// The file is not valid TOML, or a key is wrong.
    #[error("{}: {error}", .file.display())]
    Parse { file: PathBuf, error: Box<toml::de::Error> },
    /// The service cannot be measured.
    #[error("{}: {why}", .file.display())]
    Wrong { file: PathBuf, why: String },
}

impl Service {
    /// Default number of cycles.
    pub const CYCLES: u32 = 3;
    /// Default length of the pause, seconds.
    pub const IDLE_S: f64 = 10.0;

    /// The usual day, five minutes: busy, quiet, a burst, quiet.
    #[must_use]
    pub fn usual_day() -> Vec<DayPart> {
        let part = |part, seconds, cycles| DayPart { part, seconds, cycles };
        vec![
            part(DayKind::Busy, 120.0, 2),
            part(DayKind::Quiet, 60.0, 0),
            part(DayKind::Burst, 60.0, 2),
            part(DayKind::Quiet, 60.0, 0),
        ]
    }

    /// A service with the required values. All others have their defaults.
    #[must_use]
    pub fn new(ready: &str, load: Vec<String>) -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            packages: Vec::new(),
            command: String::new(),
            ready: ready.to_owned(),
            load,
            cycles: default_cycles(),
            idle: default_idle_s(),
            day: Vec::new(),
            open: None,
            stop: StopSignal::default(),
            setup: None,
            prepare: None,
            cleanup: None,
            environment: BTreeMap::new(),
            threads: 1,
            ready_timeout: default_limit_s(),
            load_timeout: default_load_timeout_s(),
            folder: None,
            runs_in: None,
            own_allocator: false,
        }
    }

    /// Reads a TOML file. The default for the name is the file's name.
    ///
    /// # Errors
    /// When the file cannot be read or does not define a service.
    pub fn read(file: &Path) -> Result<Self, ServiceFileError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| ServiceFileError::Read { file: file.to_owned(), error })?;
        let mut service: Self = toml::from_str(&text)
            .map_err(|error| ServiceFileError::Parse { file: file.to_owned(), error: Box::new(error) })?;
        if service.name.is_empty() {
            service.name =
                file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        }
        service.folder = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
        service.check().map_err(|why| ServiceFileError::Wrong { file: file.to_owned(), why })?;
        Ok(service)
    }

    /// Checks that the service can be measured.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |seconds: f64| !seconds.is_finite() || !(0.0..=1e6).contains(&seconds);
        if self.load.is_empty() || self.load.iter().any(|line| line.trim().is_empty()) {
            return Err("no load: without one a server does nothing that could be measured".to_owned());
        }
        if self.cycles == 0 {
            return Err("cycles: at least 1".to_owned());
        }
        if wrong(self.idle) || wrong(self.ready_timeout) || wrong(self.load_timeout) {
            return Err("idle, ready_timeout and load_timeout are seconds from 0 to 1000000".to_owned());
        }
        if self.day.iter().any(|part| wrong(part.seconds) || part.seconds == 0.0) {
            return Err("day: each part has seconds above 0, at most 1000000".to_owned());
        }
        if self.day.iter().any(|part| (part.part == DayKind::Quiet) != (part.cycles == 0)) {
            return Err("day: a part that is busy or a burst has cycles, a quiet one has none".to_owned());
        }
        if self.open.as_ref().is_some_and(|line| !line.contains("$RATE")) {
            return Err("open: the line names $RATE, the requests per second".to_owned());
        }
        if self.ready.trim().is_empty() {
            return Err("ready: name a command, tcp:PORT, unix:PATH or a URL".to_owned());
        }
        if Ready::has_wrong_port(&self.ready) {
            return Err(format!("ready: {}: a port is a number from 1 to 65535, or $PORT", self.ready));
        }
        Ok(())
    }

    /// Folder in which the server and its lines run: a given one, else the fresh one.
    pub(crate) fn folder_or<'a>(&'a self, fresh: &'a Path) -> &'a Path {
        self.runs_in.as_deref().unwrap_or(fresh)
    }

    /// The words of the command line.
    ///
    /// # Errors
    /// When quotes do not match or there are no words.
    pub fn words(&self) -> Result<Vec<String>, String> {
        let words = shell_words::split(&self.command).unwrap_or_default();
        if words.is_empty() {
            return Err(format!("command: no words, or quotes that do not match: {}", self.command));
        }
        Ok(words)
    }
}

/// Limits of each run. The default sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceLimits {
    /// Time limit from the start of the server to its end.
    pub timeout: Option<Duration>,
    /// A load that ends with an exit status other than 0, or whose requests fail, leaves the run valid.
    pub ignores_load_failure: bool,
    /// The server is kept on one CPU.
    pub one_cpu: bool,
}

/// Bound on the memory of the server in one run, by a control group that counts it, page cache included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryBound {
    /// Most bytes that the group may have, without swap; `None` counts alone.
    pub limit: Option<u64>,
    /// Variables that go with it, such as the limit of a heap.
    pub variables: Vec<(String, String)>,
    /// Most seconds of a line of load: one that takes longer ends the run.
    pub longest_line_s: Option<f64>,
}

/// The reason why no run could be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ServiceError {
    #[error("{0}")]
    Definition(String),
    /// The server's command cannot be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The candidate's library cannot be preloaded.
    #[error(transparent)]
    Path(#[from] UnusablePath),
    /// A file or folder of the run cannot be used.
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("cannot measure: {0}")]
    System(#[from] std::io::Error),
    /// The shared library code could not make a run.
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    #[error("the set-up failed ({how}): {last}")]
    Setup { how: String, last: String },
}

impl ServiceError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_equivalent_to_options() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cache.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Service::read(&file)
        };
        let service =
            read("command = 'redis-server --port $PORT'\nready = 'tcp:$PORT'\nload = ['a']\nstop = 'INT'")
                .unwrap();
        let by_options = Service {
            name: "cache".into(),
            folder: Some(folder.path().to_owned()),
            command: "redis-server --port $PORT".into(),
            stop: "sigint".parse().unwrap(),
            ..Service::new("tcp:$PORT", vec!["a".into()])
        };
        assert_eq!(service, by_options);
        assert_eq!(service.words().unwrap(), ["redis-server", "--port", "$PORT"]);
        for wrong in [
            "ready = 'x'\nload = ['a']\nopen = 'ab'",
            "ready = 'x'\nload = ['a']\nday = [{ part = 'quiet', seconds = 9, cycles = 1 }]",
            "ready = 'x'\nload = []",
            "ready = 'x'\nload = ['a']\ncycles = 0",
            "ready = ''\nload = ['a']",
            "ready = 'tcp:99999'\nload = ['a']",
        ] {
            assert!(matches!(read(wrong), Err(ServiceFileError::Wrong { .. })), "{wrong}");
        }
        assert!(matches!(
            read("ready = 'x'\nload = ['a']\nsurprise = 1"),
            Err(ServiceFileError::Parse { .. })
        ));
    }
}
