// SPDX-License-Identifier: Apache-2.0
//! Settled starts: what was decided for a program's next starts, in one small file, so that such a start reads that
//! file alone and opens no store (docs/decisions/0036).
//!
//! A start is settled when it is asked for without options, the file is this user's and unchanged, its basis holds, and
//! no page waits for a harvest. Every other start goes the long way and writes the file anew.

pub(crate) mod basis;
mod settled_file;
mod settled_start;

use std::ffi::OsStr;

use imas_core::ProfileView;
use imas_core::adaptive::{Objective, weight};
use imas_core::decision::Conditions;
use imas_engine::inspect::ExecutableFacts;
use imas_engine::pending;
use imas_engine::start_plan::StartPlan;
use imas_engine::store_place;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::page;
use imas_linux::program::Program;

use crate::command_line::cli::{Places, RunArgs};
use basis::{Asked, Basis, Pressure};
use imas_engine::context::Context;
pub(crate) use settled_start::SettledStart;

/// Variables that load something of the user's into the program. Such a start is looked at anew each time.
const LOADING: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"];

/// The settled start of the program, where one holds now.
pub(crate) fn find(
    args: &RunArgs,
    places: &Places,
    program: &Program,
    environment: &Variables,
) -> Option<SettledStart> {
    if !args.is_plain || loads_something(environment) {
        return None;
    }
    let store = store_place::real(&store_place::path(places.store.as_deref()).ok()?);
    let pages = page::place_of_store(&store);
    page::check_private(&page::place()).and_then(|()| page::check_private(&pages)).ok()?;
    let settled = settled_file::read(&pages, program)?;
    let holds = settled.is_of(program) && settled.basis.holds(&Asked::of(args, places));
    (holds && !pending::is_harvest_due(&[pages])).then_some(settled)
}

fn loads_something(environment: &Variables) -> bool {
    LOADING.iter().any(|name| environment.get(OsStr::new(name)).is_some_and(|value| !value.is_empty()))
}

/// A decision that may be kept: what it is, and for whom.
pub(crate) struct Kept<'a> {
    pub(crate) program: &'a Program,
    pub(crate) executable: &'a ExecutableFacts,
    pub(crate) candidate: &'a CatalogueCandidate,
    pub(crate) pressure: Pressure,
}

/// Keeps the decision for the next starts. `basis` was read before the decision was made: what changed meanwhile makes
/// the file stale. A failure costs the next start its speed, nothing else.
pub(crate) fn keep(context: &Context, basis: Option<Basis>, kept: &Kept<'_>) {
    // Settings of a runtime depend on the command line and the environment too.
    let Some(basis) = basis.filter(|_| kept.candidate.runtime.is_none()) else { return };
    let libraries = &context.libraries;
    let give_back = kept.candidate.give_back.then_some(&libraries.give_back);
    let used =
        [Some(&libraries.guard), give_back, kept.candidate.library.as_ref(), kept.candidate.needs.as_ref()];
    let basis = basis.under(kept.pressure).with(used.into_iter().flatten());
    let settled = SettledStart::new(kept, libraries, basis);
    let _ = context.page_folder().map(|pages| settled_file::write(&pages, &settled)); // the next start goes the long way
}

/// The machine's pressure on which the decision depends; None where the decision is not settled.
pub(crate) fn pressure(profile: &ProfileView, plan: &StartPlan, conditions: &Conditions) -> Option<Pressure> {
    let by_hand = profile.pinned.is_some() || profile.excluded || profile.ineligible.is_some();
    match &profile.adaptive {
        _ if plan.trial().is_some() => None,
        _ if by_hand => Some(Pressure::Any),
        Some(known) if known.settings.objective != Objective::Auto => Some(Pressure::Any),
        Some(known) => Some(Pressure::Weight(weight(conditions, known.settings.objective).w)),
        None => None, // `paper` goes by load and free memory as they are
    }
}
