// SPDX-License-Identifier: Apache-2.0
//! How the aggregates that hosts publish become the fleet's statistics
//! (docs/decisions/0032-a-fleet-learns-together.md). No network and no clock: the agent (`imas-fleet`) has both.
//! The messages are `imas-exchange`'s.

pub mod bus;
pub mod memory_bus;
pub mod merge;

pub use bus::{BusError, FleetBus, Revision, Stored, StreamEntry};
pub use memory_bus::MemoryBus;
pub use merge::{FleetMergeError, MergeCounts, merge, merge_counting};
pub use merge::{FoldCounts, fold};
