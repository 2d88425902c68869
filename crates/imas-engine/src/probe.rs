// SPDX-License-Identifier: Apache-2.0
//! The other side of [`imas_linux::process::probe`], which starts this binary again under a library.

use std::process::ExitCode;

/// How this process ends if it was started as a probe, or as a helper that reads what the kernel shows of others'
/// processes ([`imas_linux::foreign_process`]). A binary that reads a [`crate::context::Context`] asks
/// this before anything else: a probe must not depend on arguments, files or the store.
#[must_use]
pub fn answer() -> Option<ExitCode> {
    if imas_linux::helper::help_if_asked() {
        return Some(ExitCode::SUCCESS);
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != imas_linux::process::PROBE_ARGUMENT {
        return None;
    }
    let mapped = arguments.next().is_some_and(|library| imas_linux::process::probe_answer(library.as_ref()));
    Some(if mapped { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
