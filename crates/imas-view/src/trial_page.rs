// SPDX-License-Identifier: Apache-2.0
//! The trial page of a running process: what the hook has counted so far.
//!
//! The page is found by the process's mappings. Its bytes are the process's, so nothing in them is believed
//! that the kernel does not confirm.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_linux::clock::now_unix_s;
use imas_linux::ingest::{ExpectedPage, ParsedPage};
use imas_linux::running::Running;
use imas_linux::{foreign_file, process};

/// The page that the process has mapped; None for one that is in no trial.
#[must_use]
pub fn mapped_page(running: &Running) -> Option<PathBuf> {
    let is_page = |path: &&Path| path.extension().is_some_and(|extension| extension == "page");
    running.mapped().find(is_page).map(Path::to_owned)
}

/// Reads the page of a process, if it really is that process's. A helper looks at what the process has mapped.
#[must_use]
pub fn read(path: &Path, pid: u32, start_ticks: u64) -> Option<ParsedPage> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let page = foreign_file::page(path, &ExpectedPage { uid, now_unix_s: now_unix_s() }).ok()?;
    (page.pid == pid && page.process_start_ticks == start_ticks).then_some(page)
}

/// Bytes in live blocks of a process in a trial, as its hook estimates them at this moment.
#[must_use]
pub fn live_bytes(running: &Running) -> Option<u64> {
    let start_ticks = process::start_ticks(running.pid).ok()?;
    let page = read(&mapped_page(running)?, running.pid, start_ticks)?;
    Some(page.live_bytes_now()).filter(|bytes| *bytes > 0)
}
