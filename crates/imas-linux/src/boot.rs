// SPDX-License-Identifier: Apache-2.0
//! The boot id, as programs see it.
//!
//! Programs compare the index's boot id with the one in their own /proc. A sandboxed daemon may see another
//! one: containers get a boot id of their own by a mount over the kernel's file, and systemd's
//! `ProtectKernelTunables` hides that mount from a unit. So root, which is in no sandbox, writes the id below
//! the run folder, at each boot and when the machine is enabled.

use std::io;
use std::path::Path;

use procfs::ProcResult;

use crate::{plain_file, process};

/// Name below the run folder, which is root's and does not outlive a boot.
pub const FILE_NAME: &str = "boot-id";

/// Characters of a boot id: a UUID.
const LENGTH: usize = 36;

/// Writes down this process's view of the boot id, replacing the file by rename.
///
/// # Errors
/// When /proc cannot be read or the folder not written.
pub fn write(run_dir: &Path) -> io::Result<()> {
    let id = process::boot_id().map_err(io::Error::other)?;
    let fresh = run_dir.join("boot-id.new");
    std::fs::write(&fresh, format!("{id}\n"))?;
    std::fs::rename(fresh, run_dir.join(FILE_NAME))
}

/// The boot id that programs see: as root wrote it down, else as this process sees it.
///
/// # Errors
/// When nothing sound was written down and /proc cannot be read.
pub fn of_programs(run_dir: &Path) -> ProcResult<String> {
    let written = plain_file::read(&run_dir.join(FILE_NAME), 2 * LENGTH).unwrap_or_default();
    let id = std::str::from_utf8(&written).unwrap_or_default().trim();
    let sound = id.len() == LENGTH && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    if sound { Ok(id.to_owned()) } else { process::boot_id() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_written_by_root_counts_if_it_is_valid() {
        let run = tempfile::tempdir().unwrap();
        let own = process::boot_id().unwrap();
        assert_eq!(of_programs(run.path()).unwrap(), own, "nothing is written down");
        write(run.path()).unwrap();
        assert_eq!(of_programs(run.path()).unwrap(), own);
        let other = "0f3c6a3e-52b1-4a52-9f0e-0123456789ab";
        std::fs::write(run.path().join(FILE_NAME), format!("{other}\n")).unwrap();
        assert_eq!(of_programs(run.path()).unwrap(), other);
        for bad in ["", "\n", "../../etc", &"x".repeat(LENGTH)] {
            std::fs::write(run.path().join(FILE_NAME), bad).unwrap();
            assert_eq!(of_programs(run.path()).unwrap(), own, "{bad:?}");
        }
    }
}
