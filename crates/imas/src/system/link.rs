// SPDX-License-Identifier: Apache-2.0
//! The links below the run folder, through which every program finds its library.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::machine::Machine;

/// Makes the run folder as it must be: root's, readable by all.
pub(super) fn make_run_dir(run_dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let make = || {
        std::fs::create_dir_all(run_dir)?;
        std::fs::set_permissions(run_dir, std::fs::Permissions::from_mode(0o755))
    };
    make().with_context(|| run_dir.display().to_string())
}

/// Makes or changes a link; at no instant is there none.
pub(super) fn place(link: &Path, target: &Path) -> Result<()> {
    let fresh = link.with_extension("new");
    let make = || {
        std::fs::create_dir_all(link.parent().unwrap_or_else(|| Path::new("/")))?;
        let _ = std::fs::remove_file(&fresh); // of a copy that was killed
        std::os::unix::fs::symlink(target, &fresh)?;
        std::fs::rename(&fresh, link)
    };
    make().with_context(|| format!("the link {}", link.display()))
}

/// Makes the links of the machine.
pub(super) fn place_all(machine: &Machine) -> Result<()> {
    make_run_dir(&machine.run_dir)?;
    for placement in machine.placements()?.iter().filter(|placement| placement.stub.is_file()) {
        place(&placement.link, &placement.stub)?;
    }
    Ok(())
}

/// Takes the links away, and what `place_all` made for them.
pub(super) fn remove_all(machine: &Machine) {
    for loader in imas_linux::loader::all() {
        let folder = machine.run_dir.join(&loader.lib);
        let _ = std::fs::remove_file(folder.join("libimas-preload.so")); // not there: as wished
        for empty in folder.ancestors().take_while(|folder| *folder != machine.run_dir) {
            let _ = std::fs::remove_dir(empty); // fails if there are other files in it, which must stay
        }
    }
}
