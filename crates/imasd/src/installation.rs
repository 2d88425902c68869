// SPDX-License-Identifier: Apache-2.0
//! What is installed: the table of candidates that root approved, and what the catalogue says of each.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use imas_core::Candidate;
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

    /// The candidates that a program is tested with, as the policy sees them; those that the catalogue's default set has no longer and
    /// of which something is known with it; and the one that operators pinned.
    pub(crate) fn candidates(
        &self,
        chosen: Option<&[String]>,
        pinned: Option<&str>,
        known: &BTreeSet<&str>,
        disabled: &[Disabled],
    ) -> Vec<Candidate> {
        let is_tested = |candidate: &catalogue::Candidate| match chosen {
            _ if candidate.is_system() => true,
            Some(names) => names.contains(&candidate.name),
            None => candidate.default,
        };
        // A set that the operator names is the last word: who is not in it is not used either.
        let is_kept = |name: &str| chosen.is_none() && known.contains(name);
        let is_known = |candidate: &&catalogue::Candidate| {
            let name = candidate.name.as_str();
            is_tested(candidate) || is_kept(name) || pinned == Some(name)
        };
        let ready =
            |candidate| Candidate { tested: is_tested(candidate), ..self.for_policy(candidate, disabled) };
        self.catalogue.candidates().iter().filter(is_known).map(ready).collect()
    }

    fn for_policy(&self, candidate: &catalogue::Candidate, disabled: &[Disabled]) -> Candidate {
        let version = candidate.version.clone().unwrap_or_default();
        let serves = match &candidate.library {
            _ if candidate.is_system() => vec![],
            // Settings of glibc: glibc itself has to serve.
            None => vec!["libc.so.6".to_owned()],
            Some(library) => {
                let file = library.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
                // One allocator may be built as several libraries, each of which gives its own name: libmimalloc2.so.
                let own = file.trim_start_matches("lib").trim_end_matches(".so");
                vec![format!("{own} {version}"), format!("{} {version}", candidate.allocator), file]
            }
        };
        let out_of_use = disabled.iter().any(|d| d.allocator == candidate.allocator && d.version == version);
        let available = self.table.id_of(&candidate.name).is_some() && !out_of_use;
        Candidate { name: candidate.name.clone(), version, serves, available, tested: true }
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

    /// The version that served a trial. Our allocators say name and version themselves; for the others the catalogue knows.
    pub(crate) fn version_served(&self, candidate: &str, served: &str) -> String {
        let candidate = self.catalogue.find(candidate);
        let said = candidate.and_then(|c| served.strip_prefix(c.allocator.as_str()));
        match said.and_then(|rest| rest.strip_prefix(' ')) {
            Some(version) => version.to_owned(),
            None => candidate.and_then(|c| c.version.clone()).unwrap_or_default(),
        }
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
