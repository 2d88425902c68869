// SPDX-License-Identifier: Apache-2.0
//! When everything stands aside: five failing starts within a minute, until root says otherwise.

use crate::daemon::Daemon;
use crate::harm::Failures;

/// Tells root's helper, by its being there, to take the entry out of /etc/ld.so.preload.
pub(crate) const EMERGENCY: &str = "emergency";

impl Daemon {
    /// Everybody stands aside from now on, and root's helper takes the entry out of /etc/ld.so.preload.
    pub(crate) fn stop_everything(&mut self, why: &str) {
        if self.emergency.is_some() {
            return;
        }
        tracing::error!(
            "emergency: {why}; every program starts untouched from now on; undo: imas system enable"
        );
        self.emergency = Some(why.to_owned());
        self.publish();
        self.tell_emergency();
    }

    /// Writes it down for root's helper; what fails is tried again.
    fn tell_emergency(&mut self) {
        let Some(why) = &self.emergency else { return };
        let written = std::fs::write(self.state.join(EMERGENCY), format!("{why}\n"));
        if let Err(error) = &written {
            tracing::error!("the emergency could not be written down, which is tried again: {error}");
        }
        self.emergency_told = written.is_ok();
    }

    /// The emergency is over when root has taken the file away.
    pub(crate) fn look_at_emergency(&mut self) {
        if self.emergency.is_some() && !self.emergency_told {
            return self.tell_emergency();
        }
        if self.emergency.is_some() && !self.state.join(EMERGENCY).exists() {
            tracing::info!("the emergency is over: its file was removed");
            self.emergency = None;
            self.failures = Failures::default();
            self.dirty = true;
        }
    }
}
