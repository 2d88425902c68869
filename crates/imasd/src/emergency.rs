// SPDX-License-Identifier: Apache-2.0
//! The emergency: after five failing starts within a minute every program starts untouched, until root ends
//! it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use imas_linux::plain_file;

use crate::harm::Failures;
use crate::owners::Owner;

/// The file that asks root's helper to take the entry out of /etc/ld.so.preload. Root ends the emergency by
/// removing it.
const FILE_NAME: &str = "emergency";
/// Most bytes of the file that are read.
const MOST_BYTES: usize = 64 << 10;

/// The emergency, if there is one.
#[derive(Debug)]
pub(crate) struct Emergency {
    file: PathBuf,
    reason: Option<String>,
    /// The file was written, so that its absence means that root has ended the emergency.
    is_written: bool,
    failures: Failures,
}

impl Emergency {
    /// The emergency that an earlier process has left in the state folder, if any.
    pub(crate) fn read(state: &Path) -> Self {
        let file = state.join(FILE_NAME);
        let read = plain_file::read(&file, MOST_BYTES).ok();
        let reason = read.map(|text| String::from_utf8_lossy(&text).into_owned());
        if let Some(why) = &reason {
            tracing::error!(
                "every program starts untouched since an emergency: {why}; undo: imas system enable"
            );
        }
        Self { file, is_written: reason.is_some(), reason, failures: Failures::default() }
    }

    /// Reason why every program starts untouched, if so.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// A start under another allocator failed; whether an emergency begins with it. The caller publishes that
    /// first, then calls [`Self::write`].
    pub(crate) fn add_failure(&mut self, owner: Owner) -> bool {
        if !self.failures.add(owner, Instant::now()) || self.reason.is_some() {
            return false;
        }
        let why = "five starts under other allocators failed within a minute";
        tracing::error!(
            "emergency: {why}; every program starts untouched from now on; undo: imas system enable"
        );
        self.reason = Some(why.to_owned());
        true
    }

    /// Writes the file for root's helper; what fails is tried again at the next [`Self::look`].
    pub(crate) fn write(&mut self) {
        let Some(why) = &self.reason else { return };
        let written = std::fs::write(&self.file, format!("{why}\n"));
        if let Err(error) = &written {
            tracing::error!("the emergency could not be written down, which is tried again: {error}");
        }
        self.is_written = written.is_ok();
    }

    /// Whether root has ended the emergency since the last look.
    pub(crate) fn look(&mut self) -> bool {
        if self.reason.is_none() {
            return false;
        }
        if !self.is_written {
            self.write();
            return false;
        }
        let has_ended = !self.file.exists();
        if has_ended {
            tracing::info!("the emergency is over: its file was removed");
            (self.reason, self.failures) = (None, Failures::default());
        }
        has_ended
    }
}
