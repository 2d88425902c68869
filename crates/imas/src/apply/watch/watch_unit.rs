// SPDX-License-Identifier: Apache-2.0
//! The unit in which a watcher runs. Its file is written for one watch and removed with it, so a watch
//! survives a reboot.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::apply::unit::systemctl;

const FOLDER: &str = "/etc/systemd/system";

/// Replaces `@`, which would make the unit an instance of a template.
fn name(unit: &str) -> String {
    format!("imas-watch-{}", unit.replace('@', "\\x40"))
}

fn file(unit: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(name(unit))
}

fn text(unit: &str, imas: &str) -> String {
    // systemd reads '%' as a specifier and a backslash as an escape. In a unit's name only the backslash
    // occurs.
    let quoted = |word: &str| word.replace('\\', "\\\\").replace('%', "%%");
    format!(
        "# Made by imas apply --watch; removed when the watch ends\n\
         [Unit]\nDescription=IMAS: watch {0} under another allocator\nStartLimitIntervalSec=0\n\
         [Service]\nExecStart=\"{1}\" watch-unit \"{0}\"\nEnvironment=IMAS_DISABLE=1\n\
         Restart=on-failure\nRestartSec=5\n\
         [Install]\nWantedBy=multi-user.target\n",
        quoted(unit),
        quoted(imas)
    )
}

/// Writes the unit's file and enables it, so that it starts now and at each boot.
pub(super) fn start(unit: &str) -> Result<()> {
    let imas = std::env::current_exe().context("the path of imas")?;
    imas_engine::drop_in::write(&file(unit), &text(unit, &imas.to_string_lossy()))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--quiet", "--", &name(unit)])?;
    systemctl(&["restart", "--", &name(unit)])?;
    Ok(())
}

/// Removes the unit's file, so that it is not started again.
pub(super) fn forget(unit: &str) {
    // Each step may have been done already.
    let _ = systemctl(&["disable", "--quiet", "--", &name(unit)]);
    let _ = std::fs::remove_file(file(unit));
    let _ = systemctl(&["daemon-reload"]);
}

/// Ends the watcher and removes its unit.
pub(super) fn stop(unit: &str) {
    let _ = systemctl(&["stop", "--", &name(unit)]); // it may have ended already
    forget(unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_watched_by_a_plain_unit() {
        assert_eq!(name("worker@1.service"), "imas-watch-worker\\x401.service");
        let text = text("worker@1.service", "/opt/100%/imas");
        assert!(text.contains("ExecStart=\"/opt/100%%/imas\" watch-unit \"worker@1.service\"\n"), "{text}");
    }
}
