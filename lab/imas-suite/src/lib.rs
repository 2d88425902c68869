// SPDX-License-Identifier: Apache-2.0
//! The suite: real programs with real input.
//!
//! - [`Suite`]: the programs of `workloads/suite.toml`
//! - [`Place`]: the folder with all files of a run; [`Place::prepare`] makes inputs once
//! - [`packages`]: what has to be installed
//! - [`SuiteSummary`]: from the raw runs to figures, intervals and verdicts
//!
//! Nothing is measured here (`imas_runs` does that) and nothing printed.

pub mod packages;

mod definition;
mod error;
mod line;
mod place;
mod shell;
mod summary;

pub use definition::{Input, Server, Set, Suite, SuiteProgram};
pub use error::{SuiteError, SuiteResult};
pub use line::words;
pub use place::Place;
pub use shell::{Shell, ShellOutput};
pub use summary::{Overall, ProgramSummary, SuiteSummary, Trouble};
