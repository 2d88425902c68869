// SPDX-License-Identifier: Apache-2.0
//! Where files are: the user's folders, the store, the catalogue. Under `sudo -E` and the like a folder is another user's,
//! and is not gone by.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
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

// Where a user's store is, and by which path it is known.

/// The default store, below the folder for data.
const FILE: &str = "imas/imas.db";

/// The store that the user named, else the default one of this environment.
///
/// # Errors
/// When there is no home folder, or a relative path cannot be completed.
pub fn store_path(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return std::path::absolute(path).context("the store's path");
    }
    let folder = xdg("XDG_DATA_HOME", ".local/share")
        .ok_or_else(|| Hinted::error("no home directory for the store", "name a file with --store FILE"))?;
    Ok(folder.join(FILE))
}

/// The files of a store: itself, and those beside it that `SQLite` reads.
#[must_use]
pub fn store_files(store: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|end| {
        let mut file = store.as_os_str().to_owned();
        file.push(end);
        file.into()
    })
}

/// The path by which a store is known: its folder is no link, for one store may be named in several ways.
#[must_use]
pub fn real_store(store: &Path) -> PathBuf {
    let real = || Some(std::fs::canonicalize(store.parent()?).ok()?.join(store.file_name()?));
    real().unwrap_or_else(|| store.to_owned())
}

// The files of the catalogue, in the order of reading.

/// Where the machine's operator adds candidates.
const ADDED: &str = "/etc/imas/catalogue.d";

/// The files that root answers for: the catalogue that was built, then what the machine's operator added.
#[must_use]
pub fn catalogues_of_machine(lib_dir: &Path) -> Vec<PathBuf> {
    let mut files = vec![lib_dir.join("catalogue.toml")];
    files.extend(added(Path::new(ADDED)));
    files
}

/// The catalogue files of a user: the files of [`catalogues_of_machine`], then what the user added.
#[must_use]
pub fn catalogues_of_user(lib_dir: &Path) -> Vec<PathBuf> {
    let folder = catalogue_folder_of_user();
    let added = folder.iter().flat_map(|folder| added(folder));
    catalogues_of_machine(lib_dir).into_iter().chain(added).collect()
}

/// The files that the operator or the user added, and the folders of these.
#[must_use]
pub fn added_catalogues() -> Vec<PathBuf> {
    let folders = catalogue_folders();
    let files: Vec<_> = folders.iter().flat_map(|folder| added(folder)).collect();
    folders.into_iter().chain(files).collect()
}

/// Where the user adds candidates. None without a home folder.
#[must_use]
pub fn catalogue_folder_of_user() -> Option<PathBuf> {
    xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("imas/catalogue.d"))
}

/// The folders in which files of the catalogue may be added.
#[must_use]
pub fn catalogue_folders() -> Vec<PathBuf> {
    std::iter::once(PathBuf::from(ADDED)).chain(catalogue_folder_of_user()).collect()
}

fn added(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut added: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    added.sort();
    added
}
