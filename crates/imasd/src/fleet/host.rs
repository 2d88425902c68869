// SPDX-License-Identifier: Apache-2.0
//! The name of this host in a fleet: random, made once, kept beside the store.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use imas_exchange::ProgramKey;

/// Name of the file, in the folder of the store.
const FILE: &str = "fleet-host";

/// A random name of 26 characters.
pub(crate) fn random_name() -> String {
    ProgramKey::new("random", &[&format!("{:032x}", rand::random::<u128>())]).into()
}

/// The host's name, made now if there is none.
pub(crate) fn name(store: &Path) -> Result<String> {
    let file = store.with_file_name(FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => checked(&file, text.trim_end()),
        Err(error) if error.kind() == ErrorKind::NotFound => make(&file),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

fn checked(file: &Path, name: &str) -> Result<String> {
    match ProgramKey::try_from(name.to_owned()) {
        Ok(name) => Ok(name.into()),
        Err(_) => bail!("{}: not the name of a host; remove the file and a new one is made", file.display()),
    }
}

/// Kept on disk before it is used: two names would be two hosts.
fn make(file: &Path) -> Result<String> {
    let name = random_name();
    let unfinished = PathBuf::from(format!("{}.new", file.display()));
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o644).open(&unfinished)?;
        new.write_all(format!("{name}\n").as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&unfinished, file)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().with_context(|| file.display().to_string())?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("imas.db");
        let first = name(&store).unwrap();
        assert_eq!((first.len(), name(&store).unwrap()), (26, first.clone()));
        std::fs::write(folder.path().join(FILE), "../x").unwrap();
        assert!(name(&store).unwrap_err().to_string().contains("fleet-host: not the name"));
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        assert_ne!(name(&store).unwrap(), first);
    }
}
