// SPDX-License-Identifier: Apache-2.0
//! The agent between one host and its fleet (`imas fleet agent`), and what an operator does with a fleet.
//!
//! - [`agent`]: the loop; [`outbox`], [`inbox`], [`merger`]: its work; [`journal`]: what it has done
//! - [`doctor`], [`commands`]: the operator's questions; [`setup`]: stream and bucket; [`server_files`] and
//!   [`certificates`]: what servers and hosts need
//! - [`jetstream`]: the fleet's bus over NATS JetStream; [`connection`], [`version`], [`names`],
//!   [`settings`], [`credentials`], [`rights`]
//!
//! ```text
//! settings, names, version, credentials -> connection -> jetstream, setup -> merger -> agent, commands
//!  certificates, rights -> server_files             journal ---^---> outbox, inbox --^
//! ```

pub mod agent;
pub mod certificates;
pub mod commands;
pub mod connection;
pub mod credentials;
pub mod doctor;
mod floods;
pub mod inbox;
pub mod jetstream;
pub mod journal;
mod listing;
pub mod merger;
pub mod names;
mod notify;
pub mod outbox;
pub mod rights;
pub mod server_files;
pub mod settings;
pub mod setup;
pub mod version;
mod waiting;
mod watch;
