// SPDX-License-Identifier: Apache-2.0
//! The files of the catalogue, in the order of reading.

use std::path::{Path, PathBuf};

use crate::folders::xdg;

/// Where the machine's operator adds candidates.
const ADDED: &str = "/etc/imas/catalogue.d";

/// The files that root answers for: the catalogue that was built, then what the machine's operator added.
#[must_use]
pub fn of_machine(lib_dir: &Path) -> Vec<PathBuf> {
    let mut files = vec![lib_dir.join("catalogue.toml")];
    files.extend(added(Path::new(ADDED)));
    files
}

/// The catalogue files of a user: those of [`of_machine`], then what the user added.
#[must_use]
pub fn of_user(lib_dir: &Path) -> Vec<PathBuf> {
    let folder = folder_of_user();
    let added = folder.iter().flat_map(|folder| added(folder));
    of_machine(lib_dir).into_iter().chain(added).collect()
}

/// The files that the operator or the user added, and the folders of these.
#[must_use]
pub fn added_files() -> Vec<PathBuf> {
    let folders = folders();
    let files: Vec<_> = folders.iter().flat_map(|folder| added(folder)).collect();
    folders.into_iter().chain(files).collect()
}

/// Where the user adds candidates. None without a home folder.
#[must_use]
pub fn folder_of_user() -> Option<PathBuf> {
    xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("imas/catalogue.d"))
}

/// The folders in which files of the catalogue may be added.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    std::iter::once(PathBuf::from(ADDED)).chain(folder_of_user()).collect()
}

fn added(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut added: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    added.sort();
    added
}
