// SPDX-License-Identifier: Apache-2.0
//! What imasd has published, and why it may have no effect.

use std::collections::BTreeMap;
use std::path::Path;

use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::{Index, offered};
use imas_linux::process;

/// Why no program goes by the index now, though one is there.
#[must_use]
pub fn ineffective(run_dir: &Path) -> Option<String> {
    if run_dir.join("disabled").exists() {
        return Some(format!("{0} exists; to go on: rm {0}", run_dir.join("disabled").display()));
    }
    if is_full(&run_dir.join("state/u")) {
        return Some(
            "the place for programs' pages, state/u, is full; 'du' there says whose they are".to_owned(),
        );
    }
    let index = Index::read(&run_dir.join("state/index")).ok()?;
    let facts = index.facts();
    if facts.disabled {
        return Some("the daemon has disabled its index".to_owned());
    }
    let boot_id = process::boot_id().ok()?;
    if facts.boot_id != boot_id {
        return Some(format!(
            "the index is of boot {}, and programs see boot {boot_id}; to mend it: imas system boot",
            facts.boot_id
        ));
    }
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok()?;
    let other = "the index is of another catalogue than the approved one; imasd mends it within seconds";
    (table.id() != facts.catalogue_id).then(|| other.to_owned())
}

fn is_full(folder: &Path) -> bool {
    let room = nix::sys::statvfs::statvfs(folder);
    room.is_ok_and(|room| room.blocks_available() == 0 || (room.files() > 0 && room.files_available() == 0))
}

/// Candidate in production and candidates on trial, by the daemon's number of the program.
#[must_use]
pub fn published(run_dir: &Path) -> BTreeMap<u64, (String, Option<String>)> {
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok();
    let index = Index::read(&run_dir.join("state/index")).ok();
    let (Some(table), Some(index)) = (table, index) else { return BTreeMap::new() };
    let names: BTreeMap<u16, String> = table.names().collect();
    let name = |id: u16| names.get(&id).cloned().unwrap_or_else(|| "system".to_owned());
    let of_entry = |entry: &imas_abi::IndexEntry| {
        let trials: Vec<_> = offered(entry).map(|trial| name(trial.candidate)).collect();
        let trial = (!trials.is_empty()).then(|| trials.join(", "));
        (entry.program_id, (name(entry.candidate), trial))
    };
    index.entries().map(of_entry).collect()
}
