// SPDX-License-Identifier: Apache-2.0
//! What a session that was killed left running.

use imas_linux::process;
use imas_suite::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use imas_cli::message;

/// Ends it, because its CPU use would affect every figure. The place must be locked, so that no other session
/// has processes there.
pub(crate) fn end(place: &Place) {
    let found = process::at_home_in(&place.work());
    for pid in found.iter().filter_map(|&pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended this instant
    }
    if !found.is_empty() {
        message::say(&format!(
            "imas: note: {} processes of a session that was killed were still running and have been ended",
            found.len()
        ));
    }
}
