// SPDX-License-Identifier: Apache-2.0
//! The standard input of the command: what ours is redirected from, read once and given to every run.

use std::io::{IsTerminal, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::NamedTempFile;

use imas_cli::message;

/// Input that every run reads.
#[derive(Debug, Default)]
pub(super) struct Input {
    path: Option<PathBuf>,
    /// Deleted when it is no longer needed.
    _buffer: Option<NamedTempFile>,
}

/// Time limit for the first byte of a pipe. Services may have a pipe as standard input that is never written
/// to.
const FIRST_BYTE_MS: u16 = 2000;

impl Input {
    /// The file that was named; else what standard input is redirected from, a file or a pipe.
    pub(super) fn of(named: Option<&Path>) -> Result<Self> {
        if let Some(path) = named {
            return Ok(Self { path: Some(path.to_owned()), _buffer: None });
        }
        if !is_redirected()? {
            return Ok(Self::default());
        }
        let mut buffer = NamedTempFile::new().context("a file for standard input")?;
        let bytes = std::io::copy(&mut std::io::stdin().lock(), &mut buffer).context("standard input")?;
        if bytes == 0 {
            return Ok(Self::default());
        }
        buffer.rewind()?;
        Ok(Self { path: Some(buffer.path().to_owned()), _buffer: Some(buffer) })
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Whether standard input is a file, or a pipe or socket that data come from.
fn is_redirected() -> Result<bool> {
    let stdin = std::io::stdin();
    // A closed one has no file.
    let Ok(about) = std::fs::metadata("/proc/self/fd/0") else { return Ok(false) };
    let kind = about.file_type();
    if stdin.is_terminal() || kind.is_char_device() {
        return Ok(false);
    }
    if kind.is_file() {
        return Ok(true);
    }
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let is_ready = poll(&mut fds, PollTimeout::from(FIRST_BYTE_MS))? > 0;
    if !is_ready {
        message::warning(
            "standard input is a pipe to which nothing is written: the command gets no input\nhint: name its input with --input FILE, or redirect: </dev/null",
        );
    }
    Ok(is_ready)
}
