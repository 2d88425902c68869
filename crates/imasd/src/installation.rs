// SPDX-License-Identifier: Apache-2.0
//! What is installed: the table of candidates that root approved, and what the catalogue says of each.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use imas_core::Candidate;
use imas_engine::candidates::{self, Selection};
use imas_linux::catalogue::{self, Catalogue};
use imas_linux::catalogue_table::{self, CatalogueTable, Owners};
use imas_linux::environment::Libraries;
use imas_store::daemon::Disabled;

/// Table and catalogue as they were read together.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) table: CatalogueTable,
    catalogue: Catalogue,
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
        let catalogue = Catalogue::read(&catalogue_files(folder));
        for problem in catalogue.problems() {
            tracing::warn!(PROBLEM = %problem, "the catalogue has an entry that cannot be used");
        }
        Ok(Self { table, catalogue, changed })
    }

    /// Writes the table of a user's own tree, where the user is who approves.
    pub(crate) fn write_own(run_dir: &Path, lib_dir: &Path) -> Result<()> {
        let me = rustix::process::geteuid().as_raw();
        let libraries = Libraries::plain(lib_dir);
        let catalogue = Catalogue::read(&catalogue_files(lib_dir));
        let path = run_dir.join(catalogue_table::FILE_NAME);
        let owners = Owners { trusted: me, daemon: me };
        let written =
            catalogue_table::write_catalogue_table(&path, catalogue.candidates(), &libraries, owners)?;
        for refusal in written.refused {
            tracing::info!(CANDIDATE = refusal.candidate, "not offered: {}", refusal.why);
        }
        Ok(())
    }

    /// Whether the table on disk is another one by now.
    pub(crate) fn is_outdated(&self, run_dir: &Path) -> bool {
        changed(&run_dir.join(catalogue_table::FILE_NAME)) != self.changed
    }

    /// The candidates of a program, as the policy sees them. Those of an allocator that is disabled cannot be used.
    pub(crate) fn candidates(&self, selection: &Selection<'_>, disabled: &[Disabled]) -> Vec<Candidate> {
        let is_disabled = |candidate: &catalogue::Candidate| {
            let version = candidate.version.as_deref().unwrap_or_default();
            disabled.iter().any(|d| d.allocator == candidate.allocator && d.version == version)
        };
        selection.of(&self.catalogue, |candidate| {
            self.table.id_of(&candidate.name).is_some() && !is_disabled(candidate)
        })
    }

    /// The candidate of that name.
    pub(crate) fn find(&self, name: &str) -> Option<&catalogue::Candidate> {
        self.catalogue.find(name)
    }

    /// The version of an allocator; empty when none is known.
    pub(crate) fn version_of(&self, allocator: &str) -> String {
        let of = |candidate: &&catalogue::Candidate| candidate.allocator == allocator;
        let version = self.catalogue.candidates().iter().find(of).and_then(|c| c.version.clone());
        version.unwrap_or_default()
    }

    /// The version of the allocator that served a trial ([`candidates::version_served`]).
    pub(crate) fn version_served(&self, candidate: &str, served: &str) -> String {
        candidates::version_served(&self.catalogue, candidate, served)
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// The catalogue that was built, then what the machine's operator added.
fn catalogue_files(lib_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc/imas/catalogue.d").into_iter().flatten().flatten();
    let mut added: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    added.sort();
    [vec![lib_dir.join("catalogue.toml")], added].concat()
}
