// SPDX-License-Identifier: Apache-2.0
//! What `imas apply` and `imas unapply` did to each service, or would do: shown as a difference, or as one
//! JSON document.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_engine::drop_in;
use serde::Serialize;
use serde_json::json;

use imas_cli::{message, output};

/// What becomes of a drop-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DropInChange {
    /// The drop-in is as wished, or left alone.
    None,
    /// A drop-in is added: there was none of ours.
    Add,
    /// Ours is written anew.
    Replace,
    /// Ours is taken away.
    Remove,
}

/// Change of the drop-in of one service.
#[derive(Debug, Serialize)]
pub(crate) struct Applied {
    pub(crate) unit: String,
    /// Candidate of the drop-in that is written or taken away.
    pub(crate) candidate: Option<String>,
    drop_in: PathBuf,
    change: DropInChange,
    /// Change of the drop-in as `diff -u` prints it; empty where nothing changes.
    diff: String,
    /// The file is as `change` says; false: it would be.
    pub(crate) written: bool,
    /// The service is watched for this time.
    pub(crate) watch_s: Option<f64>,
    pub(crate) restarted: bool,
    /// Reason why the drop-in was left alone, or what failed.
    pub(crate) problem: Option<String>,
}

impl Applied {
    /// A service whose drop-in stands there, with nothing done yet.
    pub(crate) fn new(unit: &str, candidate: Option<&str>, drop_in: &Path) -> Self {
        Self {
            unit: unit.to_owned(),
            candidate: candidate.map(str::to_owned),
            drop_in: drop_in.to_owned(),
            change: DropInChange::None,
            diff: String::new(),
            written: false,
            watch_s: None,
            restarted: false,
            problem: None,
        }
    }

    /// The text of the drop-in before and afterwards; empty: there is none.
    pub(crate) fn compare(&mut self, old: &str, new: &str) {
        self.change = match (old.is_empty(), new.is_empty()) {
            (_, true) => DropInChange::Remove,
            (true, false) => DropInChange::Add,
            (false, false) => DropInChange::Replace,
        };
        self.diff = drop_in::unified(&self.drop_in.display().to_string(), old, new);
    }

    /// Prints the difference before anything is done, unless JSON is wanted. A reader that goes away, as in
    /// `| head -1`, keeps nothing from being done.
    pub(crate) fn show(&self, is_json: bool) -> Result<()> {
        let shown = if is_json { Ok(()) } else { output::text(&self.diff) };
        shown.or_else(|error| if message::is_broken_pipe(&error) { Ok(()) } else { Err(error) })
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.change == DropInChange::Remove
    }
}

/// Prints the document.
pub(crate) fn print(services: &[Applied]) -> Result<()> {
    output::json(&json!({ "schema": 1, "services": services }))
}
