// SPDX-License-Identifier: Apache-2.0
//! What a host and its fleet hand each other (docs/decisions/0032-a-fleet-learns-together.md): messages, and the
//! folder in which imasd and the fleet's agent leave them for each other. No network and no clock.
//!
//! ```text
//! imasd --aggregates--> exchange folder --agent--> stream --fold (any merger)--> statistics
//!   ^                                                                                |
//!   +------- priors ------ exchange folder <--agent------------ subscription --------+
//! ```
//! `fleet/` has everything between the two folders. Every byte that comes from another host is hostile.

pub mod aggregate;
pub mod exchange;
mod folder;
pub mod group;
pub mod key;
pub mod lacks;
pub mod payload;
pub mod prior;
pub mod rate;
pub mod record;
pub mod seats;
pub mod share;
pub mod sketch;
pub mod statistics;
pub mod strongest;

pub use aggregate::{Aggregate, BadAggregate, CandidateAggregate};
pub use key::{Environment, ProgramKey, ThreadsClass};
pub use lacks::lacks;
pub use payload::BadPayload;
pub use prior::prior;
pub use record::AgentRecord;
pub use share::{Lack, TrialTurn, hosts_in_trial, trial_of};
pub use statistics::{BadStatistics, CandidateStatistics, FleetStatistics};
