// SPDX-License-Identifier: Apache-2.0
//! Commands that cannot be started at all: why, and the exit status.

use std::process::ExitCode;

use imas_cli::message;
use imas_linux::program::CommandError;

/// Exit status for a file that is there but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status for a command that is not found.
const NOT_FOUND: u8 = 127;

/// Exit status of a command that cannot be started, as env(1) has it. Why is reported.
pub fn exit_status(error: CommandError) -> ExitCode {
    let code = if matches!(error, CommandError::NotFound(_)) { NOT_FOUND } else { NOT_EXECUTABLE };
    message::error(&error.into());
    ExitCode::from(code)
}
