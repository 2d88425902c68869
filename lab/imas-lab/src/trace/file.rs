// SPDX-License-Identifier: Apache-2.0
//! A trace that a user names.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Error, Result};
use imas_cli::message::{self, Hinted};
use imas_replay::trace::file::{Trace, TraceError};

/// The trace of the file, where it was recorded on this kind of machine.
pub(crate) fn open(path: &Path) -> Result<Trace<BufReader<File>>> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named).map_err(|error| hinted(&error))?;
    let trace = Trace::open(BufReader::new(file)).with_context(named).map_err(|error| hinted(&error))?;
    if trace.header.machine != std::env::consts::ARCH {
        return Err(Hinted::error(
            format!("{}: recorded on another kind of machine ({})", named(), trace.header.machine),
            "replay it on such a machine, or record a run on this one",
        ));
    }
    Ok(trace)
}

/// The error with a hint, where the trace is at fault. Any other error stays as it is.
pub(crate) fn advised(error: Error) -> Error {
    let is_at_fault = error.chain().any(|cause| cause.is::<TraceError>());
    if is_at_fault { hinted(&error) } else { error }
}

fn hinted(error: &Error) -> Error {
    Hinted::error(message::text(error), "a trace is made by: imas-lab record -o FILE -- COMMAND")
}
