// SPDX-License-Identifier: Apache-2.0
//! Messages to systemd. Without it, nothing happens here.

use std::time::Duration;

use sd_notify::NotifyState;

fn send(states: &[NotifyState<'_>]) {
    // Outside of systemd there is no receiver. Under systemd, a lost message shows as a missed deadline.
    let _ = sd_notify::notify(states);
}

/// The first index is published.
pub(crate) fn ready() {
    send(&[NotifyState::Ready]);
}

/// Says that SIGHUP came; [`ready`] ends it.
pub(crate) fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    send(&states);
}

/// Says that SIGTERM came.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The main loop turns.
pub(crate) fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Time between two messages of [`alive`]: half of what the unit asks for; `None` when it does not.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}
