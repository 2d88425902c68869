// SPDX-License-Identifier: Apache-2.0
//! Prediction from a recorded run of a service, replayed under a candidate: a line of JSON in a journal.

use serde::{Deserialize, Serialize};

/// The prediction for one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ServicePrediction {
    /// The service.
    pub service: String,
    /// The candidate.
    pub candidate: String,
    /// Time at which the prediction was made, Unix time in seconds.
    pub at_s: f64,
    /// The reason why there is no prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Resident anonymous memory under load, by work, bytes; in files of an older IMAS the change is a mean over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// CPU seconds of the whole load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Resident anonymous memory of the recorded run under load, by work, bytes.
    pub recorded_bytes: f64,
    /// CPU seconds of the whole load in the recorded run, with the recorder's own.
    pub recorded_cpu_s: f64,
    /// Processes of the service that were recorded.
    pub processes: u64,
    /// Processes that were replayed.
    pub replayed: u64,
    /// Part of all recorded calls that the replayed processes made, from 0 to 1.
    pub share: f64,
    /// Calls of the replayed processes.
    pub calls: u64,
    /// Elapsed seconds from the start of the recorded run to the last replay of this service.
    pub took_s: f64,
}
