// SPDX-License-Identifier: Apache-2.0
//! The suite: real programs with real input, and the record of their runs.
//!
//! - [`Suite`]: what `workloads/suite.toml` says
//! - [`Place`]: the folder that everything of a run stays in; [`Place::prepare`] makes inputs once
//! - [`packages`]: what has to be installed
//! - [`order`]: which run comes when
//! - [`record`]: the raw runs, one line each, appended and flushed, so that killing the run at any point loses nothing
//! - [`Summary`]: from the raw runs to what is said of them
//!
//! Nothing is measured here (`imas_linux::measure` does that) and nothing printed.

pub mod order;
pub mod packages;
pub mod record;

mod definition;
mod error;
mod line;
mod place;
mod shell;
mod summary;
mod tool;

pub use definition::{Input, Program, Server, Set, Suite};
pub use error::{Result, SuiteError};
pub use line::words;
pub use place::Place;
pub use shell::{Said, Shell};
pub use summary::{Overall, ProgramSummary, Summary, Trouble};
