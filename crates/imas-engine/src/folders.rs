// SPDX-License-Identifier: Apache-2.0
//! The user's folders.

use std::path::PathBuf;

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
