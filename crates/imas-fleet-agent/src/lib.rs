// SPDX-License-Identifier: Apache-2.0
//! The agent between one host and its fleet (`imas fleet agent`), and what an operator does with a fleet.
//!
//! - [`agent`]: the loop; [`outbox`], [`inbox`], [`merger`]: its work; [`journal`]: what it has done
//! - [`jetstream`]: the fleet's bus over NATS JetStream; [`connection`], [`version`], [`names`], [`settings`]
//!
//! ```text
//! settings, names, version -> connection -> jetstream -> folding -> merger -> agent
//!                                   journal ----^---> outbox, inbox ------------^
//! ```

pub mod agent;
pub mod connection;
pub mod folding;
pub mod inbox;
pub mod jetstream;
pub mod journal;
pub mod merger;
pub mod names;
mod notify;
pub mod outbox;
pub mod settings;
pub mod version;
