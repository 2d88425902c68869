// SPDX-License-Identifier: Apache-2.0
//! How a process ended, in words.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use imas_linux::process::signal_name;

/// "exit 1", or the name of the signal.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => signal_name(signal.unwrap_or(0)),
    }
}
