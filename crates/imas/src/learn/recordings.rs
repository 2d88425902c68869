// SPDX-License-Identifier: Apache-2.0
//! Starts of `imas run` that are recorded. No process of ours waits for their end: the raw files stay in a
//! folder beside the store until they are replayed.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_linux::clock::now_unix_s;
use imas_linux::environment::Variables;
use imas_linux::process;
use imas_replay::recording::{RecordedRun, Recording, RecordingLimits};
use imas_store::recordings::{AskedRecording, BegunRecording, ProgramRecording};
use imas_store::{RowId, Store};

use crate::measure::record;
use imas_engine::context::Context;

const FOLDER: &str = "recordings";

/// The environment of a start that is recorded, if that is asked for and no other start has taken it.
pub(crate) fn begin(
    (context, store): (&Context, &Store),
    program: RowId,
    build_id: &str,
    inherited: &Variables,
) -> Result<Option<Variables>> {
    let Some(known) = store.recording(program)?.filter(ProgramRecording::is_asked) else {
        return Ok(None);
    };
    let AskedRecording { limit_bytes, window_s, .. } = known.asked;
    let duration = window_s.and_then(|window_s| Duration::try_from_secs_f64(window_s).ok());
    let recording = Recording::begin(&folder(context)?, RecordingLimits { bytes: limit_bytes, duration })?;
    let variables = record::variables(&recording.recorder(context)?, inherited, context)?;
    let pid = std::process::id(); // that of the program, after the exec
    let begun = BegunRecording {
        at_s: now_unix_s(),
        folder: recording.folder().to_string_lossy().into_owned(),
        build_id: build_id.to_owned(),
        pid,
        start_ticks: process::start_ticks(pid)?,
        boot_id: process::boot_id()?,
    };
    if !store.begin_recording(program, &begun)? {
        return Ok(None);
    }
    let _kept = recording.keep();
    Ok(Some(variables))
}

/// The folder for all recordings, made if it is missing.
fn folder(context: &Context) -> Result<PathBuf> {
    let folder = context.store_path.with_file_name(FOLDER);
    let named = || folder.display().to_string();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(named)?;
    Ok(folder)
}

/// Whether the recording still grows: a process of it runs, and its time is not over. The first process may have ended
/// long before the others, as that of a daemon does.
pub(super) fn is_running(recording: &ProgramRecording, begun: &BegunRecording) -> bool {
    let is_over = recording.asked.window_s.is_some_and(|window_s| now_unix_s() - begun.at_s > window_s);
    let is_of_this_boot = process::boot_id().is_ok_and(|boot_id| boot_id == begun.boot_id);
    let is_alive =
        || process::is_running(begun.pid, begun.start_ticks) || process::is_in_use(Path::new(&begun.folder));
    !is_over && is_of_this_boot && is_alive()
}

/// Makes the trace of a recording that has ended.
pub(super) fn write_trace(begun: &BegunRecording, trace: &Path) -> Result<()> {
    let unknown = RecordedRun { cpu_s: 0.0, wall_s: 0.0, exit: 0 };
    Recording::reopen(PathBuf::from(&begun.folder), begun.at_s).write(trace, unknown)?;
    Ok(())
}

/// Ends the recording of the program and deletes its files. Returns whether there was one.
pub(super) fn cancel(store: &Store, program: RowId) -> Result<bool> {
    if let Some(begun) = store.recording(program)?.and_then(|known| known.begun) {
        remove(Path::new(&begun.folder))?;
    }
    Ok(store.end_recording(program)?)
}

pub(super) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}
