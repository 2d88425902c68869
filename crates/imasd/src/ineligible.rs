// SPDX-License-Identifier: Apache-2.0
//! Programs that are ineligible, and why: kept, so that each is looked at once.

use std::collections::HashMap;
use std::path::Path;

use imas_engine::daemon_status::IneligibleProgram;
use imas_linux::index::Executable;
use imas_store::domain::Domain;

use crate::process_info::ProcessInfo;

/// Number of programs that are remembered.
const MOST: usize = 4096;
/// A longer path is looked at each time instead.
const LONGEST_PATH: usize = 512;
/// Number of programs that are written down for root.
const MOST_SHOWN: usize = 100;

/// A program as its user sees it. Reasons depend on the path (a bind mount in a user's own namespace shows
/// any file anywhere), so what one user's paths are worth must not decide about the same file at another's.
type Key = (Executable, String, Domain);

/// All ineligible programs.
#[derive(Debug, Default)]
pub(crate) struct Ineligible {
    reasons: HashMap<Key, String>,
}

impl Ineligible {
    pub(crate) fn contains(&self, process: &ProcessInfo, domain: Domain) -> bool {
        self.reasons.contains_key(&key(process, domain))
    }

    pub(crate) fn add(&mut self, process: &ProcessInfo, domain: Domain, reason: String) {
        if self.reasons.len() >= MOST {
            self.reasons.clear(); // they are found again as they come
        }
        let key = key(process, domain);
        tracing::debug!(PROGRAM = %imas_core::printable::name(&key.1), "ineligible: {reason}");
        if key.1.len() <= LONGEST_PATH {
            self.reasons.insert(key, reason);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.reasons.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.reasons.len()
    }

    /// Writes some of them down, for root alone.
    pub(crate) fn write(&self, state: &Path) -> std::io::Result<()> {
        let shown = self.reasons.iter().take(MOST_SHOWN).map(|((_, path, domain), reason)| {
            IneligibleProgram { path: path.clone(), domain: domain.word(), reason: reason.clone() }
        });
        IneligibleProgram::write_all(&shown.collect::<Vec<_>>(), state)
    }
}

fn key(process: &ProcessInfo, domain: Domain) -> Key {
    (process.executable, process.path.to_string_lossy().into_owned(), domain)
}
