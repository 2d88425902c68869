// SPDX-License-Identifier: Apache-2.0
//! What hosts of a fleet tell each other (docs/decisions/0032-a-fleet-learns-together.md). No network and no clock: the
//! agent (`imas-fleet`) has both.
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
pub mod key;
pub mod record;
pub mod statistics;

pub use aggregate::{Aggregate, CandidateAggregate};
pub use bus::{BusError, FleetBus, Revision, Stored};
pub use key::{Environment, ProgramKey};
pub use record::AgentRecord;
pub use statistics::FleetStatistics;
