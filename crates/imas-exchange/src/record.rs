// SPDX-License-Identifier: Apache-2.0
//! `agent.json`: what the agent of this host has done since it started, for metrics and for `imas fleet
//! status`.

use serde::{Deserialize, Serialize};

/// Counters since the agent started, and its connection.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct AgentRecord {
    /// When the agent started, seconds since 1970.
    pub started_unix_s: u64,
    /// Since when it is connected; absent: it is not.
    pub connected_since_unix_s: Option<u64>,
    /// The server it is connected with, or was last.
    pub server: String,
    /// The server's version.
    pub server_version: String,
    /// Connections that were made.
    pub connections: u64,
    /// Aggregates that were sent, repetitions included.
    pub published: u64,
    /// Aggregates that the stream has; they have left the outbox.
    pub acknowledged: u64,
    /// Acknowledged aggregates that the stream had before: an earlier acknowledgement was lost.
    pub duplicates: u64,
    /// Aggregates that were set aside, because they would be refused each time.
    pub refused: u64,
    /// Aggregates that wait in the outbox.
    pub backlog: u64,
    /// Statistics that were received and written into the inbox.
    pub received: u64,
    /// Statistics that were removed from the inbox: the fleet has forgotten them.
    pub forgotten: u64,
    /// Aggregates that this host folded, where it merges.
    pub folded: u64,
    /// Folds that another merger was faster with.
    pub conflicts: u64,
    /// Aggregates that were passed over: absurd, or sent by another host than they name.
    pub rejected: u64,
    /// Aggregates that were passed over because their host had sent more of that program than a day allows.
    pub excessive: u64,
    /// The last error, in words.
    pub last_error: Option<String>,
    /// When the last error was, Unix time in seconds.
    pub last_error_unix_s: Option<u64>,
}
