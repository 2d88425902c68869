// SPDX-License-Identifier: Apache-2.0
//! What must be true of a file before every program of the machine may load it, seen without loading it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::machine::Machine;

/// What speaks against the machine's own files: the libraries to be linked and the static tools. Empty: nothing.
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
    let why = untrusted(path).or_else(|| imas_linux::elf::preload_fault(path).err());
    why.map(|why| format!("{}: {why}", path.display()))
}

fn tool_fault(path: &Path) -> Option<String> {
    let why = untrusted(path).or_else(|| match imas_linux::elf::Executable::read(path) {
        Ok(elf) if elf.interpreter.is_some() => {
            Some("it is not static: it would not run when it is needed".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    });
    why.map(|why| format!("{}: {why}", path.display()))
}

/// Why others than root could change the file, or put another in its place. Links are followed first: what they point to counts.
fn untrusted(path: &Path) -> Option<String> {
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) => return Some(error.to_string()),
    };
    real.ancestors().find_map(|part| {
        let facts = std::fs::symlink_metadata(part).ok()?;
        let what = if part == real { "it".to_owned() } else { format!("its folder {}", part.display()) };
        match facts {
            _ if facts.uid() != 0 => Some(format!("{what} is not root's")),
            _ if facts.mode() & 0o022 != 0 => Some(format!("{what} can be written to by others than root")),
            _ => None,
        }
    })
}
