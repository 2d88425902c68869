// SPDX-License-Identifier: Apache-2.0
//! Library that serves malloc in a process of the server under `system`: settings of glibc cannot act on
//! another malloc.

use imas_core::server_run::{C_LIBRARY, STATIC};
use imas_linux::running;
use imas_linux::serving::chooser::{Choice, Chooser};

/// Name of what serves malloc in a process; None when it has ended or its files do not
/// answer, and where our hook is before it.
pub(crate) fn of(pid: u32) -> Option<String> {
    let running = running::one(pid)?;
    let choice = Choice::of(&running);
    if matches!(choice.by, Chooser::Guard | Chooser::Trial | Chooser::Unknown) {
        return None;
    }
    let name = |file: &std::path::Path| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let has_libc = running.files().c_library().is_some();
    let named = choice.file.as_deref().and_then(name);
    Some(named.unwrap_or_else(|| if has_libc { C_LIBRARY } else { STATIC }.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_served_by_the_c_library() {
        assert_eq!(of(std::process::id()).as_deref(), Some(C_LIBRARY));
        assert_eq!(of(u32::MAX), None);
    }
}
