// SPDX-License-Identifier: Apache-2.0
//! Measures servers under load.
//!
//! - [`Service`]: how a server is started, tested for readiness, loaded and stopped; from options or a TOML
//!   file
//! - [`ServiceExecutor`]: makes one run of one candidate per call, and returns a
//!   [`imas_core::run::RawRun`] with the figures of a server; [`crate::runner::Runner`] calls it
//! - [`adapter`]: rules for the output of known load generators; data, in `adapters.toml`
//!
//! `imas_core::server_bench` compares the runs.
//!
//! Only the server runs under the candidate. The load and the lines that prepare the run have the unchanged
//! environment.

pub mod adapter;

/// Runs under `system` in each round. Every candidate is compared with their mean, so its noise is in all comparisons.
pub const SYSTEM_RUNS: u32 = 3;

mod definition;
mod executor;
mod life;
mod line;
mod ready;
mod recorder;
mod request_log;
mod server;
mod tree;

pub use definition::{
    DayKind, DayPart, MemoryBound, Service, ServiceError, ServiceFileError, ServiceLimits, StopSignal,
};
pub use executor::{MemoryLimits, ServiceExecutor, execution};
pub use line::free_port;
