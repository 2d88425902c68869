// SPDX-License-Identifier: Apache-2.0
//! The installation: the table of candidates that root approved, and their catalogue entries.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use imas_engine::candidates::CandidateRules;
use imas_engine::folders;
use imas_engine::state::ProgramState;
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::catalogue_table::{self, CatalogueTable, Owners};
use imas_linux::environment::Libraries;
use imas_store::daemon::Disabled;
use imas_store::samples::StoredProgram;
use imas_store::{Store, StoreError};

/// Table and catalogue as they were read together.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) table: CatalogueTable,
    pub(crate) catalogue: Catalogue,
    changed: Option<SystemTime>,
}

impl Installation {
    /// Reads the approved table and, from the folder of its hook unless another is named, the catalogue.
    pub(crate) fn read(run_dir: &Path, lib_dir: Option<&Path>) -> Result<Self> {
        let path = run_dir.join(catalogue_table::FILE_NAME);
        let changed = changed(&path);
        let table = CatalogueTable::read(&path).context("the approved catalogue")?;
        let hook = table.libraries().hook;
        let folder = lib_dir.or_else(|| hook.parent()).unwrap_or_else(|| Path::new("/"));
        let catalogue = Catalogue::read(&folders::catalogues_of_machine(folder));
        for problem in catalogue.problems() {
            tracing::warn!(PROBLEM = %problem, "the catalogue has an entry that cannot be used");
        }
        Ok(Self { table, catalogue, changed })
    }

    /// Writes the table of a user's own tree, where the user is who approves.
    pub(crate) fn write_own(run_dir: &Path, lib_dir: &Path) -> Result<()> {
        let me = nix::unistd::geteuid().as_raw();
        let libraries = Libraries::plain(lib_dir);
        let catalogue = Catalogue::read(&folders::catalogues_of_machine(lib_dir));
        let path = run_dir.join(catalogue_table::FILE_NAME);
        let owners = Owners { trusted: me, daemon: me };
        let candidates: Vec<_> = catalogue.all().cloned().collect();
        let written = catalogue_table::write_catalogue_table(&path, &candidates, &libraries, owners)?;
        for refusal in written.refused {
            tracing::info!(CANDIDATE = refusal.candidate, "not offered: {}", refusal.why);
        }
        Ok(())
    }

    /// Whether the table on disk is another one by now.
    pub(crate) fn is_outdated(&self, run_dir: &Path) -> bool {
        changed(&run_dir.join(catalogue_table::FILE_NAME)) != self.changed
    }

    /// Reads the state of a program, with the candidates that it may get here.
    pub(crate) fn state_of(
        &self,
        store: &Store,
        program: (StoredProgram, &str),
        configured: Option<&[String]>,
        disabled: &[Disabled],
    ) -> Result<ProgramState, StoreError> {
        let is_usable = |candidate: &CatalogueCandidate| self.table.id_of(&candidate.name).is_some();
        let rules =
            CandidateRules { catalogue: &self.catalogue, configured, disabled, is_usable: &is_usable };
        ProgramState::read(store, program.0, program.1, &rules)
    }

    /// The candidate of that name.
    pub(crate) fn find(&self, name: &str) -> Option<&CatalogueCandidate> {
        self.catalogue.find(name)
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}
