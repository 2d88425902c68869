// SPDX-License-Identifier: Apache-2.0
//! A laboratory for policies: stored or synthetic runs are replayed through a policy, and its choice is
//! judged on runs that it did not see.

pub mod assess;
pub mod contender;
pub mod deconvolution;
pub mod fleet;
pub mod floor;
pub mod program;
pub mod store;
pub mod synthetic;

pub use assess::{Plan, PolicyResult, ProgramResult, assess};
pub use assess::{Turn, shuffled, turns};
pub use contender::{Contender, ContenderOutcome, in_all};
pub use floor::floor;
pub use program::{ExcludedProgram, SimulatedProgram, programs};
pub use program::{best, cost};
pub use store::from_store;
pub use synthetic::World;
