// SPDX-License-Identifier: Apache-2.0
//! Where a user's store is, and by which path it is known.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;

use crate::folders::xdg;

/// The default store, below the folder for data.
const FILE: &str = "imas/imas.db";

/// The store that the user named, else the default one of this environment.
///
/// # Errors
/// When there is no home folder, or a relative path cannot be completed.
pub fn path(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return std::path::absolute(path).context("the store's path");
    }
    let folder = xdg("XDG_DATA_HOME", ".local/share")
        .ok_or_else(|| Hinted::error("no home directory for the store", "name a file with --store FILE"))?;
    Ok(folder.join(FILE))
}

/// The files of a store: itself, and those beside it that `SQLite` reads.
#[must_use]
pub fn files(store: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|end| {
        let mut file = store.as_os_str().to_owned();
        file.push(end);
        file.into()
    })
}

/// The path by which a store is known: its folder is no link, for one store may be named in several ways.
#[must_use]
pub fn real(store: &Path) -> PathBuf {
    let real = || Some(std::fs::canonicalize(store.parent()?).ok()?.join(store.file_name()?));
    real().unwrap_or_else(|| store.to_owned())
}
