// SPDX-License-Identifier: Apache-2.0
//! Allocators that no program is offered: those that harmed several programs within a day ([`crate::harm`]).

use std::collections::BTreeMap;

use imas_engine::candidates::version_for_policy;
use imas_engine::decide::quarantines_since;
use imas_linux::clock::now_unix_s;
use imas_store::daemon::Disabled;
use imas_store::{Store, StoreError};

use super::Learner;
use crate::harm::{PERSONS, VICTIMS, VICTIMS_WITHIN_S, Victims};
use crate::installation::Installation;

/// Disabled allocators as the store has them.
#[derive(Debug, Default)]
pub(super) struct DisabledAllocators {
    list: Vec<Disabled>,
    /// Time up to which what an allocator did is cleared, Unix time.
    cleared: BTreeMap<String, f64>,
}

impl DisabledAllocators {
    pub(super) fn read(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { list: store.disabled()?, cleared: store.cleared()? })
    }

    pub(super) fn list(&self) -> &[Disabled] {
        &self.list
    }

    fn contains(&self, allocator: &str, version: &str) -> bool {
        let is_it = |one: &&Disabled| one.version == version || one.version.is_empty();
        self.list.iter().any(|one| one.allocator == allocator && is_it(&one))
    }

    fn cleared_s(&self, allocator: &str) -> f64 {
        self.cleared.get(allocator).copied().unwrap_or(0.0)
    }
}

impl Learner {
    /// Disables allocators that harmed several programs within a day.
    pub(super) fn disable_culprits(&mut self) {
        let Some(installation) = &self.installation else { return };
        let found = self.culprits(installation);
        if found.is_empty() {
            return;
        }
        for disabled in found {
            tracing::error!(
                ALLOCATOR = disabled.allocator,
                "disabled everywhere: {}; undo: sudo imas unblock {}",
                disabled.why,
                disabled.allocator
            );
            let stored = self.parts.store.get().disable(&disabled);
            self.stored(stored);
            self.disabled.list.push(disabled);
        }
        for id in self.programs.ids() {
            self.judge(id);
        }
    }

    fn culprits(&self, installation: &Installation) -> Vec<Disabled> {
        let mut found = vec![];
        for (version, victims) in self.victims(installation) {
            let of = |(allocator, programs): (&str, Vec<&str>)| {
                let why = format!(
                    "within a day it harmed {VICTIMS} programs of the system or those of {PERSONS} users, or more: {}",
                    programs.join(", ")
                );
                let (allocator, version) = (allocator.to_owned(), version.clone());
                Disabled { allocator, version, at_s: now_unix_s(), why }
            };
            found.extend(victims.culprits().map(of));
        }
        found.retain(|one| !self.disabled.contains(&one.allocator, &one.version));
        found
    }

    /// Programs that were harmed lately, by the version of the allocator: one may be there in several.
    fn victims(&self, installation: &Installation) -> BTreeMap<String, Victims> {
        let mut victims: BTreeMap<String, Victims> = BTreeMap::new();
        let day_ago_s = now_unix_s() - VICTIMS_WITHIN_S;
        for known in self.programs.all() {
            let Some(profile) = &known.profile else { continue };
            for quarantine in quarantines_since(profile, day_ago_s) {
                let Some(candidate) = installation.find(&quarantine.candidate) else { continue };
                if quarantine.since_unix_s > self.disabled.cleared_s(&candidate.allocator) {
                    let program = &known.program;
                    let owner = self.parts.users.owner_of_domain(program.domain);
                    let version = version_for_policy(candidate);
                    let of_version = victims.entry(version).or_default();
                    of_version.add(&candidate.allocator, program.id, owner, &program.to_string());
                }
            }
        }
        victims
    }
}
