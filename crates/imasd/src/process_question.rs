// SPDX-License-Identifier: Apache-2.0
//! The look at a process, made by a helper ([`imas_linux::foreign_process`]): the working directory and the files
//! that a process names may lie on a file system that never answers.

use std::io::{Error, ErrorKind, Result};

use crate::process_info::{self, Identity, ProcessInfo};

/// Looks at a process. `None` when it is gone, is another by now, or may not be looked at.
pub(crate) fn look(identity: Identity) -> Option<ProcessInfo> {
    let answer = imas_linux::foreign_process::ask(identity.pid, answer).ok()?;
    serde_json::from_slice(&answer).ok().filter(|seen: &ProcessInfo| seen.identity == identity)
}

/// The helper's side of [`look`].
pub(crate) fn answer(pid: u32) -> Result<Vec<u8>> {
    let life = process_info::life(pid).ok_or(ErrorKind::NotFound)?;
    let seen = process_info::look(life.identity).ok_or_else(gone)?;
    Ok(serde_json::to_vec(&seen)?)
}

/// An error with a number, by which it comes through the socket.
fn gone() -> Error {
    rustix::io::Errno::SRCH.into()
}
