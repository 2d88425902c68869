// SPDX-License-Identifier: Apache-2.0
//! Whether a file may be loaded into other people's processes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file may not be loaded into other people's processes: another user could change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum Untrusted {
    #[error("{}: a relative path", .0.display())]
    Relative(PathBuf),
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{}: belongs to user {owner}, not to user {wanted}", path.display())]
    Owner { path: PathBuf, owner: u32, wanted: u32 },
    #[error("{}: may be written by others than its owner (mode {mode:03o})", path.display())]
    Writable { path: PathBuf, mode: u32 },
}

/// Judgement of a folder that all may write to, but where only owners may delete (`/tmp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StickyFolder {
    /// Writable: once the file is gone, anyone may create one of its name. For a file that is found by its
    /// path alone later on.
    Writable,
    /// Safe: other users cannot replace a file that is there. Only for a file whose identity is written down
    /// and compared whenever it is used.
    Safe,
}

/// Why `file`, its target where it is a link, or a folder above either could be changed by anyone but `owner`
/// and root; `None` when no other user can. Needed of every library that is loaded system-wide by its path.
#[must_use]
pub fn untrusted(file: &Path, owner: u32) -> Option<Untrusted> {
    if file.is_relative() {
        return Some(Untrusted::Relative(file.to_owned()));
    }
    let real = match std::fs::canonicalize(file) {
        Ok(real) => real,
        Err(error) => return Some(Untrusted::Unreadable { path: file.to_owned(), why: error.to_string() }),
    };
    let above_link = file.parent().into_iter().flat_map(Path::ancestors);
    real.ancestors().chain(above_link).find_map(|path| one(path, owner, StickyFolder::Writable))
}

/// Why this one file or folder could be changed by anyone but `wanted` and root; `None` when no other user
/// can. `path` is no link, or its target counts.
pub(crate) fn one(path: &Path, wanted: u32, sticky: StickyFolder) -> Option<Untrusted> {
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) => return Some(Untrusted::Unreadable { path: path.to_owned(), why: error.to_string() }),
    };
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    if owner != wanted && owner != 0 {
        return Some(Untrusted::Owner { path: path.to_owned(), owner, wanted });
    }
    let is_safe = sticky == StickyFolder::Safe && about.is_dir() && mode & 0o1000 != 0;
    (mode & 0o022 != 0 && !is_safe).then(|| Untrusted::Writable { path: path.to_owned(), mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        assert!(matches!(untrusted(Path::new("libx.so"), 0), Some(Untrusted::Relative(_))));
        assert!(matches!(untrusted(Path::new("/no/such.so"), 0), Some(Untrusted::Unreadable { .. })));
        // Root alone may change it, on any machine that runs these tests.
        assert_eq!(untrusted(Path::new("/usr/bin/env"), 0), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libx.so");
        std::fs::write(&file, "x").unwrap();
        let me = std::fs::metadata(&file).unwrap().uid();
        set(&file, 0o646);
        let found = untrusted(&file, me).unwrap();
        assert_eq!(found, Untrusted::Writable { path: std::fs::canonicalize(&file).unwrap(), mode: 0o646 });
        assert!(found.to_string().contains("646"), "{found}");
        set(&file, 0o644);
        set(folder.path(), 0o777);
        assert!(matches!(untrusted(&file, me), Some(Untrusted::Writable { mode: 0o777, .. })));
        assert_eq!(one(&file, me, StickyFolder::Writable), None);
        if me == 0 {
            std::os::unix::fs::chown(&file, Some(1), None).unwrap(); // root's own files are trusted by all
        }
        assert!(matches!(one(&file, me + 2, StickyFolder::Safe), Some(Untrusted::Owner { .. })));
    }

    #[test]
    fn a_sticky_folder_is_trusted_only_if_the_caller_allows_it() {
        let folder = tempfile::tempdir().unwrap();
        let me = std::fs::metadata(folder.path()).unwrap().uid();
        let is_trusted = |path: &Path, sticky| one(path, me, sticky).is_none();
        set(folder.path(), 0o1777);
        assert!(is_trusted(folder.path(), StickyFolder::Safe));
        assert!(!is_trusted(folder.path(), StickyFolder::Writable));
        set(folder.path(), 0o777);
        assert!(!is_trusted(folder.path(), StickyFolder::Safe), "others may replace what is in it");
        let file = folder.path().join("libx.so");
        std::fs::write(&file, "x").unwrap();
        set(&file, 0o1666);
        assert!(!is_trusted(&file, StickyFolder::Safe), "the bit says nothing of a file");
    }
}
