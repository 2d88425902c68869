// SPDX-License-Identifier: Apache-2.0
//! The section `[fleet]` of the configuration.

use std::path::PathBuf;

use imas_engine::fleet_turn::TURN_S;
use serde::Deserialize;

/// Keys of the agent's settings, which people look for here.
const KEYS_OF_AGENT: [&str; 11] = [
    "servers",
    "tenant",
    "host",
    "ca",
    "certificate",
    "key",
    "credentials",
    "domain",
    "merge",
    "replicas",
    "refresh_minutes",
];

/// How imasd takes part in a fleet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct FleetSettings {
    /// Whether the host takes part in a fleet.
    pub(crate) enabled: bool,
    /// The folder through which it exchanges files with the agent.
    pub(crate) exchange: PathBuf,
    /// Greatest share of the hosts that may be in a trial of one program at a time.
    pub(crate) share: f64,
    /// Length of a turn in seconds: in each, a host tries at most one candidate of a program.
    pub(crate) turn_s: f64,
    /// Keys that the section does not have.
    #[serde(flatten)]
    pub(crate) unknown: toml::Table,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            exchange: PathBuf::from("/var/lib/imas/fleet"),
            share: 0.05,
            turn_s: TURN_S,
            unknown: toml::Table::new(),
        }
    }
}

impl FleetSettings {
    /// Checks the section. The error is what is wrong with it, with the name of the key.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(key) = self.unknown.keys().find(|key| KEYS_OF_AGENT.contains(&key.as_str())) {
            return Err(format!(
                "[fleet] {key}: this belongs into /etc/imas/fleet.toml, without a section: imas-fleet reads it there, \
                 imasd itself has no network"
            ));
        }
        if let Some(key) = self.unknown.keys().next() {
            return Err(format!("[fleet] unknown key `{key}`"));
        }
        if !self.exchange.is_absolute() {
            let exchange = self.exchange.display();
            return Err(format!("[fleet] exchange = \"{exchange}\": a whole path, beginning with /"));
        }
        if !(0.0..=1.0).contains(&self.share) {
            return Err(format!("[fleet] share = {}: not a number from 0 to 1", self.share));
        }
        if !(1.0..=86_400.0).contains(&self.turn_s) {
            return Err(format!("[fleet] turn_s = {}: not a number from 1 to 86400", self.turn_s));
        }
        Ok(())
    }
}
