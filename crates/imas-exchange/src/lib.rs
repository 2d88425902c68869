// SPDX-License-Identifier: Apache-2.0
//! Exchange between a host and its fleet (docs/decisions/0032-a-fleet-learns-together.md): messages, and the
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
pub mod group;
pub mod key;
pub mod rate;
pub mod seats;
pub mod share;
pub mod statistics;

pub use aggregate::{Aggregate, BadAggregate, BadPayload, CandidateAggregate};
pub use exchange::AgentRecord;
pub use key::{Environment, ProgramKey, ThreadsClass};
pub use share::{Lack, TrialTurn, hosts_in_trial, lacks, trial_of};
pub use statistics::{BadStatistics, CandidateStatistics, FleetStatistics, prior};
