// SPDX-License-Identifier: Apache-2.0
//! What a session that was killed left running.

use imas_linux::process;
use imas_suite::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use imas_report::message;

/// Ends it, for it would take its share of every figure. Only while the place is locked: nobody else's runs are there.
pub(super) fn end(place: &Place) {
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
