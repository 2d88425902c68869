// SPDX-License-Identifier: Apache-2.0
//! Cases that need network and mounts of their own run in another process, in new namespaces.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::network::OUTSIDE;

/// Whether namespaces can be made here, and `ip` is there.
pub(crate) fn is_possible() -> bool {
    let tried = unshare().args(["sh", "-c", "ip link add imas0 type bridge && nsenter --version"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Result of a case in a process with namespaces of its own.
pub(crate) fn run(case: &str) -> Result<String> {
    let words: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    let own = format!("/proc/{}/ns/net", std::process::id());
    let mut command = unshare();
    command.arg(std::env::current_exe()?).args(words).arg(case).env(OUTSIDE, own);
    let output = command.output().context("unshare")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = format!("ok {case}: ");
    let found = printed.lines().find_map(|line| line.strip_prefix(&begin));
    match found.and_then(|found| found.rsplit_once(" (")) {
        Some((found, _)) if output.status.success() => Ok(found.to_owned()),
        _ => bail!("{printed}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private"]);
    command
}
