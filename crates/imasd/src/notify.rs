// SPDX-License-Identifier: Apache-2.0
//! What systemd is told. Without it, nothing happens here.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    // Nobody listens outside systemd, and inside it a lost message shows as a missed deadline.
    let _ = sd_notify::notify(states);
}

/// The first index is published.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// SIGHUP came; [`ready`] ends it.
pub(crate) fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    tell(&states);
}

/// SIGTERM came.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// The main loop turns.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often [`alive`] is to be said: half of what the unit asks for; `None` when it does not.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}
