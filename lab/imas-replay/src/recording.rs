// SPDX-License-Identifier: Apache-2.0
//! A recording: the folder of its raw files, the settings of the recorder, and the trace that is made of them.
//!
//! The process of a trace whose replay stands for the whole program.

use std::fs::File;
use std::io::{BufWriter, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;
use imas_linux::host::now_unix_s;
use imas_runs::command::Recorder;
use nix::time::{ClockId, clock_gettime};

use crate::trace::file::{TraceHeader, TraceProcess, TraceWriter};
use crate::trace::raw::{self, RecordingEnd, Stop};

const LIBRARY: &str = "libimas-record.so";
const CONTROL: &str = "record.control";

/// When recording stops before the program does.
#[derive(Debug, Clone, Copy)]
pub struct RecordingLimits {
    /// Bytes of all raw files.
    pub bytes: u64,
    /// Time since the begin of the recording after which it ends; None: no such limit.
    pub duration: Option<Duration>,
}

/// Facts about the recorded run beside its calls.
#[derive(Debug, Clone, Copy)]
pub struct RecordedRun {
    /// CPU seconds of the whole tree.
    pub cpu_s: f64,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// Exit status, or 128 + signal.
    pub exit: i32,
}

/// A hidden folder, for the raw files. It is deleted with this value.
#[derive(Debug)]
pub struct Recording {
    folder: tempfile::TempDir,
    began_unix_s: f64,
}

impl Recording {
    /// Makes the folder in `beside`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin(beside: &Path, limits: RecordingLimits) -> anyhow::Result<Self> {
        let absolute = beside.canonicalize().with_context(|| beside.display().to_string())?;
        let folder = tempfile::Builder::new().prefix(".imas-record-").tempdir_in(&absolute);
        let folder = folder.with_context(|| format!("{}: no folder can be made", absolute.display()))?;
        let recording = Self { folder, began_unix_s: now_unix_s() };
        recording.make_control(limits)?;
        if nix::unistd::geteuid().is_root() {
            recording.open_to_other_users()?;
        }
        Ok(recording)
    }

    /// A server that gives up root's rights must still reach its raw files. They have the permissions of the
    /// control file. Other users cannot list the folder, and its name is random.
    fn open_to_other_users(&self) -> anyhow::Result<()> {
        let set = |path: &Path, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).with_context(|| path.display().to_string())
        };
        set(&self.control(), 0o666)?;
        set(self.folder(), 0o1733)
    }

    /// Where the raw files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn control(&self) -> PathBuf {
        self.folder().join(CONTROL)
    }

    fn make_control(&self, limits: RecordingLimits) -> anyhow::Result<()> {
        let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)?);
        let end = |length: Duration| u64::try_from((now + length).as_nanos()).map(RecordingEnd::At);
        let end = limits.duration.and_then(|length| end(length).ok()).unwrap_or(RecordingEnd::Never);
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(self.control())?;
        std::io::Write::write_all(&mut file, &raw::control(limits.bytes, end))?;
        Ok(())
    }

    /// Recorder that a program must be started with.
    ///
    /// # Errors
    /// When the library is not installed; the error has a hint.
    pub fn recorder(&self, context: &Context) -> anyhow::Result<Recorder> {
        let library = context.lib_dir.join(LIBRARY);
        if !library.exists() {
            return Err(Hinted::error(
                format!("there is no {}", library.display()),
                "install IMAS anew, or build it with 'make'",
            ));
        }
        Ok(Recorder { library, control: self.control() })
    }

    /// Converts the raw files to the trace. The program must have ended.
    ///
    /// # Errors
    /// When a file cannot be read, or the trace not be written.
    pub fn write(&self, out: &Path, run: RecordedRun) -> anyhow::Result<TraceHeader> {
        let header = TraceHeader {
            machine: std::env::consts::ARCH.to_owned(),
            began_unix_s: self.began_unix_s,
            cpu_s: run.cpu_s,
            wall_s: run.wall_s,
            exit: run.exit,
            left_out: raw::refused_files(&read_control(&self.control())?),
            processes: vec![],
        };
        let named = || out.display().to_string();
        let mut whole = tempfile::NamedTempFile::new_in(self.folder()).with_context(named)?;
        let header = self.writer()?.write(header, BufWriter::new(&mut whole)).with_context(named)?;
        whole.persist(out).map_err(|error| error.error).with_context(named)?;
        Ok(header)
    }

    fn writer(&self) -> anyhow::Result<TraceWriter> {
        let mut writer = TraceWriter::default();
        for entry in std::fs::read_dir(self.folder())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "raw")
                && let Err(error) = writer.add(open(&path)?)
            {
                message::warning(&format!("a process is left out of the trace: {error}"));
            }
        }
        Ok(writer)
    }
}

/// Opens a file that the recorded program may have replaced: by a link, or by a pipe that nobody writes to.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

fn read_control(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![];
    open(path)?.take(raw::CONTROL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A process that used less of the run's CPU time than this says too little of the program.
const LEAST_SHARE: f64 = 0.5;

/// Why no process of a trace stands for the program.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum NoProcess {
    #[error("the trace reached its limit")]
    Limit,
    #[error("the recording ended before the program")]
    Time,
    #[error("the trace could not be written: the disk is full, or files may not grow so large")]
    File,
    /// Some processes left no raw file.
    #[error("the trace could not be written: its limit was reached, or the disk is full")]
    LeftOut,
    #[error("the program entered a sandbox that the recorder cannot write from")]
    Sandbox,
    /// The calls of the program do not reach the recorder.
    #[error("the program has an allocator of its own")]
    Unfit,
    #[error("no call of malloc was recorded: the program is static, or drops LD_PRELOAD")]
    Nothing,
    #[error(
        "the process with the most recorded calls ({calls}), with its repetitions, used {:.0} % of the CPU time; \
         the rest is in other processes, or in static ones, which cannot be recorded",
        share * 100.0
    )]
    Minor {
        calls: u64,
        /// [`cpu_share`].
        share: f64,
    },
    #[error(
        "its calls are spread over {processes} processes; those with the most made {:.0} % of them",
        share * 100.0
    )]
    Spread {
        processes: usize,
        /// Part of all calls that the busiest ones made, from 0 to 1.
        share: f64,
    },
}

impl NoProcess {
    /// The reason why the recording of a process says too little; None for one that was recorded to its end.
    #[must_use]
    pub fn of(stop: Stop) -> Option<Self> {
        match stop {
            Stop::None => None,
            Stop::Limit => Some(Self::Limit),
            Stop::Time => Some(Self::Time),
            Stop::File => Some(Self::File),
            Stop::Sandbox => Some(Self::Sandbox),
            Stop::Unfit => Some(Self::Unfit),
        }
    }

    /// The reason why a trace has no call.
    #[must_use]
    pub fn nothing_recorded(header: &TraceHeader) -> Self {
        let stopped = header.processes.iter().find_map(|process| Self::of(process.stop));
        let left_out = (header.left_out > 0).then_some(Self::LeftOut);
        stopped.or(left_out).unwrap_or(Self::Nothing)
    }
}

/// The process with the most calls.
#[must_use]
pub fn busiest(processes: &[TraceProcess]) -> Option<&TraceProcess> {
    processes.iter().max_by_key(|process| process.counts.calls)
}

/// The part of the run's CPU time that the process and its repetitions used, from 0 to 1. A script that starts a
/// program several times has several processes of the same work: those with as many calls, to a hundredth.
#[must_use]
pub fn cpu_share(process: &TraceProcess, header: &TraceHeader) -> f64 {
    let calls = process.counts.calls;
    let repeats = |other: &&TraceProcess| other.counts.calls.abs_diff(calls) <= calls / 100;
    // In a hostile header the sum of whole numbers would overflow.
    let cpu_ns: f64 = header.processes.iter().filter(repeats).map(|other| other.counts.cpu_ns as f64).sum();
    cpu_ns / 1e9 / header.cpu_s.max(f64::MIN_POSITIVE)
}

/// The process with the most calls.
///
/// # Errors
/// When its replay would say nothing of the program.
pub fn representative(header: &TraceHeader) -> Result<TraceProcess, NoProcess> {
    let process = busiest(&header.processes).filter(|process| process.counts.calls > 0);
    let Some(process) = process else {
        return Err(NoProcess::nothing_recorded(header));
    };
    if let Some(why) = NoProcess::of(process.stop) {
        return Err(why);
    }
    let share = cpu_share(process, header);
    if share < LEAST_SHARE {
        return Err(NoProcess::Minor { calls: process.counts.calls, share });
    }
    Ok(process.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(processes: &[(u64, u64, Stop)], left_out: u32) -> TraceHeader {
        let process = |&(calls, cpu_ns, stop): &(u64, u64, Stop)| {
            let mut process = TraceProcess { stop, ..TraceProcess::default() };
            (process.counts.calls, process.counts.cpu_ns) = (calls, cpu_ns);
            process
        };
        let processes = processes.iter().map(process).collect();
        TraceHeader { cpu_s: 1.0, left_out, processes, ..TraceHeader::default() }
    }

    fn chosen(processes: &[(u64, u64, Stop)], left_out: u32) -> Result<u64, NoProcess> {
        representative(&header(processes, left_out)).map(|process| process.counts.calls)
    }

    #[test]
    fn the_process_with_the_most_calls_stands_for_the_program() {
        let some = (10, 100_000_000, Stop::None);
        assert_eq!(chosen(&[some, (500, 600_000_000, Stop::None)], 0), Ok(500));
        let minor = Err(NoProcess::Minor { calls: 500, share: 0.4 });
        assert_eq!(chosen(&[some, (500, 400_000_000, Stop::None)], 0), minor);
    }

    #[test]
    fn a_program_that_is_started_several_times_is_one_program() {
        let sixth = |calls| (calls, 160_000_000, Stop::None);
        assert_eq!(chosen(&[1000, 1001, 999, 1000, 998, 995].map(sixth), 0), Ok(1001));
        assert!(chosen(&[1000, 800, 600, 400, 200, 100].map(sixth), 0).is_err());
        assert_eq!(chosen(&[(9, u64::MAX, Stop::None); 3], 0), Ok(9));
    }

    #[test]
    fn each_reason_against_a_recording_is_named() {
        assert_eq!(chosen(&[], 0), Err(NoProcess::Nothing));
        assert_eq!(chosen(&[(0, 0, Stop::Sandbox)], 0), Err(NoProcess::Sandbox));
        assert_eq!(chosen(&[(0, 0, Stop::None)], 3), Err(NoProcess::LeftOut));
        assert_eq!(chosen(&[(9, 900_000_000, Stop::Limit)], 0), Err(NoProcess::Limit));
    }
}
