// SPDX-License-Identifier: Apache-2.0
//! What was worked out of programs, kept until something about a program is stored.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_engine::context::Context;
use imas_engine::flags::RulesArgs;
use imas_linux::catalogue::CatalogueCandidate;
use imas_store::revision::ProgramRevision;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};

use crate::program_view::{ProgramView, state_where};

/// A program is worked out anew after this time although nothing was stored: trials grow old, and the machine's
/// pressure changes what is decided.
pub const LASTS: Duration = Duration::from_secs(300);

/// Values that were worked out, one for each program.
#[derive(Debug)]
pub struct ProgramCache<T>(HashMap<RowId, Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    revision: ProgramRevision,
    /// When the value was worked out; None where it is to be worked out anew.
    made: Option<Instant>,
    value: T,
}

impl<T> Default for ProgramCache<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> ProgramCache<T> {
    /// The value of the program, whether it is up to date or not.
    #[must_use]
    pub fn get(&self, program: RowId) -> Option<&T> {
        self.0.get(&program).map(|kept| &kept.value)
    }

    /// Whether the program has to be worked out.
    #[must_use]
    pub fn is_stale(&self, store: &Store, program: RowId) -> bool {
        self.0.get(&program).is_none_or(|kept| {
            kept.made.is_none_or(|made| made.elapsed() > LASTS)
                || store.revision(program).map_or(true, |now| now != kept.revision)
        })
    }

    /// Works the program out: `make` turns its state into the value, given what was kept before.
    ///
    /// # Errors
    /// When the store or /proc cannot be read.
    pub fn work_out(
        &mut self,
        (context, store): (&Context, &Store),
        program: &StoredProgram,
        is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
        make: impl FnOnce(ProgramView, Option<&T>) -> Result<T>,
    ) -> Result<()> {
        // Before the state is read: what is stored meanwhile is seen at the next look.
        let revision = store.revision(program.id)?;
        let state = state_where((context, store), program.clone(), &RulesArgs::of_environment(), is_usable)?;
        let value = make(state, self.get(program.id))?;
        self.0.insert(program.id, Kept { revision, made: Some(Instant::now()), value });
        Ok(())
    }

    /// Has every program worked out anew. Until then its value stays.
    pub fn expire(&mut self) {
        self.0.values_mut().for_each(|kept| kept.made = None);
    }

    /// Keeps what is known of these programs alone.
    pub fn keep(&mut self, is_kept: impl Fn(RowId) -> bool) {
        self.0.retain(|program, _| is_kept(*program));
    }
}
