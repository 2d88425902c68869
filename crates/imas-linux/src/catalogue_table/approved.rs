// SPDX-License-Identifier: Apache-2.0
//! Libraries that only root, or the owner of a private tree, can change.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_abi::FileIdentity;

use crate::file_time::mtime_ns;
use crate::trust::{self, StickyFolder};

/// Follows links, then checks the owner and mode of the library and of all folders above it.
pub(super) fn approve(
    library: &Path,
    trusted: u32,
    sticky: StickyFolder,
) -> Result<(PathBuf, FileIdentity), String> {
    if !library.is_absolute() {
        return Err(format!("{}: not an absolute path", library.display()));
    }
    let resolved =
        std::fs::canonicalize(library).map_err(|error| format!("{}: {error}", library.display()))?;
    if resolved.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$' | b'\n' | b'\t')) {
        return Err(format!(
            "{}: a path with a space, a colon or a dollar sign cannot be preloaded",
            resolved.display()
        ));
    }
    let about =
        std::fs::symlink_metadata(&resolved).map_err(|error| format!("{}: {error}", resolved.display()))?;
    if !about.is_file() {
        return Err(format!("{}: not a regular file", resolved.display()));
    }
    if let Some(why) = resolved.ancestors().find_map(|path| trust::one(path, trusted, sticky)) {
        return Err(why.to_string());
    }
    let identity = identity(&about);
    Ok((resolved, identity))
}

pub(super) fn identity(about: &Metadata) -> FileIdentity {
    FileIdentity { dev: about.dev(), ino: about.ino(), bytes: about.len(), mtime_ns: mtime_ns(about) }
}
