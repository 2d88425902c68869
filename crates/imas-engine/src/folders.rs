// SPDX-License-Identifier: Apache-2.0
//! The user's folders, and whether this user may go by what is in them: under `sudo -E` and the like they are another
//! user's.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::trust::{self, Untrusted};

/// The folder that a variable names; None when it is unset or relative.
#[must_use]
pub fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// `$VARIABLE`, else the folder below the home directory; `None` without a home.
#[must_use]
pub fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable)
        .or_else(|| std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(below_home)))
}

/// Refuses a file of settings, of the catalogue, a library or a store that another user could change. What is not there
/// is not refused.
///
/// # Errors
/// When owner or writer of the file, or of a folder on the way to it, is neither root nor this user.
pub fn check(file: &Path) -> Result<()> {
    trust::foreign(file).map_or(Ok(()), |why| Err(refused(file, &why)))
}

/// Refuses a place where this process may make a file, as [`check`] does, where nothing is there yet as well.
///
/// # Errors
/// The errors of [`check`].
pub fn check_place(file: &Path) -> Result<()> {
    trust::foreign_place(file).map_or(Ok(()), |why| Err(refused(file, &why)))
}

fn refused(file: &Path, why: &Untrusted) -> anyhow::Error {
    let hint = match why {
        Untrusted::Writable { path, .. } => {
            format!(
                "take the right to write from others: chmod go-w {}",
                shell_words::quote(&path.to_string_lossy())
            )
        }
        _ => "use your own home and variables ('sudo -H', not 'sudo -E'), or run it as that user; \
              a store of another user is used where --store FILE names it"
            .to_owned(),
    };
    Hinted::error(format!("{}: not used, because another user could change it: {why}", file.display()), hint)
}
