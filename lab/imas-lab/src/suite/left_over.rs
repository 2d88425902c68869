// SPDX-License-Identifier: Apache-2.0
//! What a session that was killed left running.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use imas_linux::process;
use imas_suite::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use imas_cli::message;

/// Ends it, because its CPU use would affect every figure. The place must be locked, so that no other session
/// has processes there.
pub(crate) fn end(place: &Place) {
    let found = at_home_in(&place.work());
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

/// Processes that work in a folder or below it and have it as HOME.
fn at_home_in(folder: &Path) -> Vec<u32> {
    let home = [OsStr::new("HOME="), folder.as_os_str()].into_iter().collect::<OsString>();
    let is_one = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
            && process::environment(*pid).is_ok_and(|variables| variables.contains(&home))
    };
    process::pids().unwrap_or_default().into_iter().filter(is_one).collect()
}
