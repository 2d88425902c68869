// SPDX-License-Identifier: Apache-2.0
//! Programs that are left alone, and why: remembered, so that each is looked at once.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use imas_linux::index::Executable;
use imas_store::domain::Domain;
use serde::Serialize;

use crate::sight::Sight;

/// So many are remembered.
const MOST: usize = 4096;
/// A longer path is looked at each time instead.
const LONGEST_PATH: usize = 512;
/// So many are written down for root.
const MOST_SHOWN: usize = 100;
/// The file for root, in the state folder.
const FILE_NAME: &str = "ineligible.json";

/// A program as its user sees it. Reasons depend on the path (a bind mount in a user's own namespace shows any file anywhere), so what
/// one user's paths are worth must not decide about the same file at another's.
type Key = (Executable, String, Domain);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Ineligible {
    reasons: HashMap<Key, String>,
}

/// One of them, for root.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    path: &'a str,
    domain: Domain,
    reason: &'a str,
}

impl Ineligible {
    pub(crate) fn contains(&self, sight: &Sight, domain: Domain) -> bool {
        self.reasons.contains_key(&key(sight, domain))
    }

    pub(crate) fn add(&mut self, sight: &Sight, domain: Domain, reason: String) {
        if self.reasons.len() >= MOST {
            self.reasons.clear(); // they are found again as they come
        }
        let key = key(sight, domain);
        tracing::debug!(PROGRAM = %imas_core::printable::name(&key.1), "left alone: {reason}");
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

    /// Writes some of them down, for root alone: what a user runs is nobody else's business.
    pub(crate) fn write(&self, state: &Path) -> std::io::Result<()> {
        let shown = self.reasons.iter().take(MOST_SHOWN);
        let shown: Vec<_> =
            shown.map(|((_, path, domain), reason)| Shown { path, domain: *domain, reason }).collect();
        let beside = state.join(format!("{FILE_NAME}.new"));
        let _ = std::fs::remove_file(&beside); // left by a death; it would keep its mode
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(&shown)?)?;
        std::fs::rename(&beside, state.join(FILE_NAME))
    }
}

fn key(sight: &Sight, domain: Domain) -> Key {
    (sight.executable, sight.path.to_string_lossy().into_owned(), domain)
}
