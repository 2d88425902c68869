// SPDX-License-Identifier: Apache-2.0
//! The state that pages and metrics show: of the store, its programs, imasd and the machine at one moment.

use std::sync::Arc;

use imas_core::decision::Conditions;
use imas_engine::daemon_status::DaemonStatus;
use imas_engine::program_view::ProgramView;
use imas_store::RowId;
use imas_store::daemon::Disabled;
use serde::Serialize;

use crate::line::ProgramLine;

/// The whole state. It is never changed: the next look makes another one.
#[derive(Debug)]
pub(crate) struct ServedState {
    /// Number of the state. It grows when anything that is shown has changed.
    pub(crate) generation: u64,
    /// When this state was made, Unix time in seconds.
    pub(crate) made_unix_s: f64,
    /// Programs in the order in which they became known.
    pub(crate) programs: Vec<Arc<ServedProgram>>,
    pub(crate) store: StoreFacts,
    pub(crate) daemon: DaemonFacts,
    pub(crate) conditions: Conditions,
}

/// A program.
#[derive(Debug)]
pub(crate) struct ServedProgram {
    pub(crate) line: ProgramLine,
    /// What is known of the program, without the histograms of its trials.
    pub(crate) state: ProgramView,
}

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct StoreFacts {
    pub(crate) path: String,
    /// Size of the store's files in bytes.
    pub(crate) bytes: u64,
    /// Why the store cannot be read.
    pub(crate) obstacle: Option<String>,
    /// Allocators that are given to nobody.
    pub(crate) disabled: Vec<Disabled>,
    /// Trials on offer, processes whose pages are not processed, pages that wait to be collected.
    pub(crate) queue: [usize; 3],
}

/// imasd.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct DaemonFacts {
    /// Status of imasd; None if imasd does not run.
    pub(crate) status: Option<DaemonStatus>,
    /// Why no program goes by what imasd has published.
    pub(crate) ineffective: Option<String>,
    /// CPU seconds that imasd has used.
    pub(crate) cpu_s: Option<f64>,
    /// Resident memory of imasd in bytes.
    pub(crate) resident_bytes: Option<u64>,
}

impl ServedState {
    /// The program of that number.
    pub(crate) fn program(&self, id: RowId) -> Option<&Arc<ServedProgram>> {
        self.programs.iter().find(|program| program.line.id == id)
    }

    /// Programs to which the policy has given another allocator than `system`.
    pub(crate) fn served(&self) -> impl Iterator<Item = &ProgramLine> {
        self.lines().filter(|line| line.candidate != imas_core::SYSTEM)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &ProgramLine> {
        self.programs.iter().map(|program| &program.line)
    }
}
