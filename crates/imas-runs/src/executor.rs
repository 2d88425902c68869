// SPDX-License-Identifier: Apache-2.0
//! Makers of runs: a command, a server under its load, a part of a study, a recording that is replayed.

use std::time::Duration;

use anyhow::Result;
use imas_core::run::RawRun;
use imas_linux::measure::RunOutcome;
use imas_linux::standstill::Most;

use crate::counted::CountedRun;
use crate::schedule::Step;

/// Limits of a run, and what the runner prepares for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// The run is ended after this time.
    pub timeout: Duration,
    /// The run is ended when it has used no CPU time for this long; None: never for this reason.
    pub still: Option<Duration>,
    /// The run is ended when it has taken more than this; None: it may take any amount.
    pub most: Option<Most>,
    /// Bytes of free memory that are touched before the run.
    pub prefault_bytes: u64,
}

/// A run that was made.
#[derive(Debug, Default)]
pub struct Execution {
    /// Figures of the run: the fields that every run has, and others by name. The runner fills in program,
    /// candidate and round.
    pub record: RawRun,
    /// How the process ended; of an executor without one, as it stands by default.
    pub outcome: RunOutcome,
    /// Results of a counted run.
    pub counted: Option<CountedRun>,
    /// Further notes, as sentences.
    pub notes: Vec<String>,
}

/// Makes runs, one at a time.
pub trait Executor {
    /// Makes the run that the step names. A program that fails is no error: its record has the failure.
    ///
    /// # Errors
    /// When the run could not be made.
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution>;
}
