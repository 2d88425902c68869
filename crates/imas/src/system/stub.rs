// SPDX-License-Identifier: Apache-2.0
//! Checks of a file before every program of the machine may load it. The file is not loaded for them.

use std::path::Path;

use imas_linux::trust::untrusted;

use super::machine::Machine;

/// Faults of the machine's own files: the libraries to be linked and the static tools.
pub(super) fn faults(machine: &Machine) -> anyhow::Result<Vec<String>> {
    let mut faults = vec![];
    for placement in machine.placements()? {
        match placement.stub.try_exists() {
            Ok(false) if !placement.loader.native => {} // its programs get one message a start; `verify` shows it
            _ => faults.extend(library_fault(&placement.stub)),
        }
    }
    for name in ["imas-ldpreload", "imas-rescue"] {
        faults.extend(tool_fault(&machine.tool(name)?));
    }
    Ok(faults)
}

fn library_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| imas_linux::elf::preload_fault(path).err());
    why.map(|why| format!("{}: {why}", path.display()))
}

fn tool_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| match imas_linux::elf::ElfImage::read(path) {
        Ok(elf) if elf.interpreter.is_some() => {
            Some("it is not static: it would not run when it is needed".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    });
    why.map(|why| format!("{}: {why}", path.display()))
}

/// Why others than root could change the file, or put another in its place.
fn unsafe_to_use(path: &Path) -> Option<String> {
    untrusted(path, 0).map(|why| format!("not safe to use: {why}"))
}
