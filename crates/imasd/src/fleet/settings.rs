// SPDX-License-Identifier: Apache-2.0
//! The section `[fleet]` of the configuration.

use std::path::PathBuf;

use imas_engine::fleet_turn::TURN_S;
use serde::Deserialize;

/// How imasd takes part in a fleet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FleetSettings {
    /// Whether it does.
    pub(crate) enabled: bool,
    /// The folder through which it exchanges files with the agent.
    pub(crate) exchange: PathBuf,
    /// Greatest share of the hosts that may be in a trial of one program at a time.
    pub(crate) share: f64,
    /// Length of a turn in seconds: in each, a host tries at most one candidate of a program.
    pub(crate) turn_s: f64,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { enabled: false, exchange: PathBuf::from("/var/lib/imas/fleet"), share: 0.05, turn_s: TURN_S }
    }
}

impl FleetSettings {
    /// What is wrong with it, with the name of the key.
    pub(crate) fn check(&self) -> Result<(), String> {
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
