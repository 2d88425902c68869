// SPDX-License-Identifier: Apache-2.0
//! Replacing a file that others may be reading.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes `bytes` to a new file in the same folder and renames it to `path`: readers see the old file or the
/// new one. Everybody may read it.
///
/// # Errors
/// When the file cannot be written or renamed. The old one stays.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside); // left by a killed process of the same pid
    let written = write_new(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside); // the reason to report is the first error
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?; // whatever the umask
    file.write_all(bytes)
}
