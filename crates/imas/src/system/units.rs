// SPDX-License-Identifier: Apache-2.0
//! The units of systemd, where it runs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Puts the library in place at each boot.
pub(super) const BOOT: &str = "imas-boot.service";
/// Takes it out when the daemon asks for it.
pub(super) const EMERGENCY: &str = "imas-emergency.path";
/// Unit that `EMERGENCY` starts; it stays active, and would not be started again, until it is stopped.
pub(super) const EMERGENCY_DONE: &str = "imas-emergency.service";
/// Learns and decides.
pub(super) const DAEMON: &str = "imasd.service";

/// Whether systemd is this machine's init.
pub(super) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// `systemctl` with these words.
///
/// # Errors
/// The message of systemctl.
pub(super) fn systemctl(words: &[&str]) -> Result<(), String> {
    run("systemctl", words)
}

/// The daemon's folders below the run folder, as after a boot.
///
/// # Errors
/// The message of `systemd-tmpfiles`.
pub(super) fn make_folders() -> Result<(), String> {
    run("systemd-tmpfiles", &["--create", "imas.conf"])
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let printed = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {}: {}", words.join(" "), printed.trim()))
        }
    }
}

/// Whether the unit runs, or has run as it should.
pub(super) fn is_active(unit: &str) -> bool {
    systemctl(&["is-active", "--quiet", unit]).is_ok()
}
