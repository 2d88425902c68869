// SPDX-License-Identifier: Apache-2.0
//! A recording: the folder of its raw files, the settings of the recorder, and the trace that is made of them.

use std::fs::File;
use std::io::{BufWriter, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::trace::file::{TraceHeader, TraceWriter};
use crate::trace::raw::{self, RecordingEnd};
use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;
use imas_linux::clock::now_unix_s;
use imas_runs::command::Recorder;
use nix::time::{ClockId, clock_gettime};

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

/// What is known of the recorded run beside its calls.
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
    pub fn begin(beside: &Path, limits: RecordingLimits) -> Result<Self> {
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
    fn open_to_other_users(&self) -> Result<()> {
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

    fn make_control(&self, limits: RecordingLimits) -> Result<()> {
        let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)?);
        let end = |length: Duration| u64::try_from((now + length).as_nanos()).map(RecordingEnd::At);
        let end = limits.duration.and_then(|length| end(length).ok()).unwrap_or(RecordingEnd::Never);
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(self.control())?;
        std::io::Write::write_all(&mut file, &raw::control(limits.bytes, end))?;
        Ok(())
    }

    /// What a program must be started with.
    ///
    /// # Errors
    /// When the library is not installed; the error has a hint.
    pub fn recorder(&self, context: &Context) -> Result<Recorder> {
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
    pub fn write(&self, out: &Path, run: RecordedRun) -> Result<TraceHeader> {
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

    fn writer(&self) -> Result<TraceWriter> {
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

fn read_control(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    open(path)?.take(raw::CONTROL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
