// SPDX-License-Identifier: Apache-2.0
//! State and profile of a program under the installation's settings.

use crate::candidates::CandidateRules;
use crate::context::Context;
use crate::flags::RulesArgs;
use crate::inspect::known_facts;
use crate::outside;
use crate::state::ProgramState;
use anyhow::Result;
use imas_core::ProfileView;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::clock::now_unix_s;
use imas_store::Store;
use imas_store::samples::StoredProgram;

/// The program's state, with the candidates that this context allows. `build_id` is that of the executable as
/// it is now.
///
/// # Errors
/// When the store cannot be read.
pub fn state(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    build_id: &str,
) -> Result<ProgramState> {
    let is_usable = |candidate: &CatalogueCandidate| context.obstacle(candidate, Some(store)).is_none();
    state_where(context, store, program, build_id, &is_usable)
}

/// The program's state as [`state`] reads it, with the candidates that `is_usable` allows.
///
/// # Errors
/// When the store cannot be read.
pub fn state_where(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    build_id: &str,
    is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
) -> Result<ProgramState> {
    let facts = known_facts(store, program.domain, program.path.as_ref());
    let without_hook = facts.filter(|facts| facts.unfit.is_some());
    let is_usable = |candidate: &CatalogueCandidate| {
        without_hook.as_ref().is_none_or(|facts| outside::takes(context, facts, candidate))
            && is_usable(candidate)
    };
    let rules = CandidateRules {
        catalogue: &context.catalogue,
        configured: context.config.candidates.as_deref(),
        disabled: &store.disabled()?,
        is_usable: &is_usable,
    };
    Ok(ProgramState::read(store, program, build_id, &rules)?)
}

/// The profile of that state at this moment, under the configured rules.
#[must_use]
pub fn profile(state: &ProgramState, context: &Context, rules: &RulesArgs) -> ProfileView {
    let policy = context.config.policy(rules, &state.program.path, &state.program.detail);
    state.profile(&policy, context.limits, now_unix_s())
}
