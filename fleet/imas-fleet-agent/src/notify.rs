// SPDX-License-Identifier: Apache-2.0
//! Messages to systemd. Without it, nothing happens here.

use imas_core::printable;
use sd_notify::NotifyState;

/// The agent works, whether or not the fleet can be reached.
pub(crate) fn ready() {
    send(NotifyState::Ready);
}

/// SIGTERM came.
pub(crate) fn stopping() {
    send(NotifyState::Stopping);
}

/// The loop turns.
pub(crate) fn alive() {
    send(NotifyState::Watchdog);
}

/// Text that `systemctl status` shows. A server's words in it must not begin a line, which would be another message
/// to systemd.
pub(crate) fn status(text: &str) {
    send(NotifyState::Status(&printable::name(text)));
}

fn send(state: NotifyState<'_>) {
    // Outside of systemd there is no receiver. Under systemd, a lost message shows as a missed deadline.
    let _ = sd_notify::notify(&[state]);
}
