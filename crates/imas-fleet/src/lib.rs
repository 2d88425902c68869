// SPDX-License-Identifier: Apache-2.0
//! What hosts of a fleet exchange (docs/decisions/0032-a-fleet-learns-together.md). No network and no clock:
//! the agent (`imas-fleet`) has both.
//!
//! ```text
//! imasd --aggregates--> exchange folder --agent--> stream --fold (any merger)--> statistics
//!   ^                                                                                |
//!   +------- priors ------ exchange folder <--agent------------ subscription --------+
//! ```
//! Every byte that comes from another host is hostile.

pub mod aggregate;
pub mod bus;
pub mod exchange;
pub mod fold;
mod folder;
pub mod group;
pub mod key;
pub mod lacks;
pub mod memory_bus;
pub mod merge;
pub mod payload;
pub mod prior;
pub mod quota;
pub mod rate;
pub mod record;
pub mod seats;
pub mod share;
pub mod simulation;
pub mod sketch;
pub mod statistics;
pub mod strongest;

pub use aggregate::{Aggregate, BadAggregate, CandidateAggregate};
pub use bus::{BusError, FleetBus, Revision, Stored, StreamEntry};
pub use fold::{FoldCounts, fold};
pub use key::{Environment, ProgramKey, ThreadsClass};
pub use lacks::lacks;
pub use memory_bus::MemoryBus;
pub use merge::{FleetMergeError, MergeCounts, merge, merge_counting};
pub use payload::BadPayload;
pub use prior::prior;
pub use record::AgentRecord;
pub use share::{Lack, TrialTurn, hosts_in_trial, trial_of};
pub use statistics::{BadStatistics, CandidateStatistics, FleetStatistics};
