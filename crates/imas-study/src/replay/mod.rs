// SPDX-License-Identifier: Apache-2.0
//! Predictions of recorded and replayed runs, judged by live runs.

mod line;

pub use line::{PredictionLine, Predictions, REPLAY, ReplayHeader};
