// SPDX-License-Identifier: Apache-2.0
//! Why a run of a server is not valid.

use serde::{Deserialize, Serialize};

/// The stage in which a run failed.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The run failed before the server was started.
    Prepare,
    /// The port or socket of the service was in use.
    Taken,
    /// The server was not ready in time, or ended before.
    Ready,
    /// The server ended under load.
    Died,
    /// The load failed.
    Load,
    /// The server ended in the pause.
    Idle,
    /// The server crashed when it was asked to end.
    Stop,
    /// The run took longer than its time limit.
    Timeout,
}

impl Stage {
    /// Whether the server failed. Under a candidate, that is a failure of the candidate.
    #[must_use]
    pub fn is_of_the_server(self) -> bool {
        !matches!(self, Self::Prepare | Self::Taken)
    }
}

/// The reason why a run is not valid.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The stage.
    pub stage: Stage,
    /// Description in a sentence.
    pub what: String,
    /// The signal that ended the server, unless it was sent by the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The last lines that the server printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
}

impl Failure {
    /// A failure that is not explained by a signal or by the server's output.
    #[must_use]
    pub fn new(stage: Stage, what: String) -> Self {
        Self { stage, what, signal: None, server: String::new() }
    }

    /// [`crate::run::RawRun::why`] of the run.
    #[must_use]
    pub fn why(&self) -> &'static str {
        match self.stage {
            _ if self.signal.is_some() => "crash",
            Stage::Prepare | Stage::Taken | Stage::Ready => "ready",
            Stage::Load => "load",
            Stage::Died | Stage::Idle | Stage::Stop => "exit",
            Stage::Timeout => "timeout",
        }
    }
}
