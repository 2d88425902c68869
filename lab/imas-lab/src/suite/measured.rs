// SPDX-License-Identifier: Apache-2.0
//! The programs of a session with the candidates that each gets: those for every program, and those that are settings of
//! its own runtime.

use imas_cli::message;
use imas_core::run::RunKind;
use imas_engine::compared::of_runtime;
use imas_engine::context::Context;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::runtime_start::Fitted;
use imas_suite::{Place, SuiteProgram};

use super::fit::{Measurable, NotRunHere};
use crate::with_list::names_for_runtimes;

/// A program that is measured.
pub(super) struct MeasuredProgram<'a> {
    pub(super) program: &'a SuiteProgram,
    /// Build id of its executable, hexadecimal; empty if it has none.
    pub(super) build_id: String,
    /// Nothing can be loaded into it.
    is_bare: bool,
    /// The candidates of the session as the program gets them; None for one that it does not get.
    fitted: Vec<Option<Fitted>>,
}

impl MeasuredProgram<'_> {
    /// The candidate of that index as the program gets it; `None` where it does not.
    pub(super) fn fitted(&self, candidate: usize) -> Option<&Fitted> {
        self.fitted.get(candidate)?.as_ref()
    }

    /// Whether the program has runs of that kind under the candidate of that index. Where nothing of ours is loaded,
    /// no call is counted.
    pub(super) fn has_runs(&self, candidate: usize, kind: RunKind) -> bool {
        let is_bare = |one: &Fitted| self.is_bare || one.runtime.as_ref().is_some_and(|of| of.is_bare);
        self.fitted(candidate).is_some_and(|one| kind == RunKind::Measured || !is_bare(one))
    }
}

/// The candidates of a session, those for every program first; the programs as they get them; and programs that get
/// none beside `system`.
pub(super) struct MeasuredPrograms<'a> {
    pub(super) candidates: Vec<&'a CatalogueCandidate>,
    pub(super) programs: Vec<MeasuredProgram<'a>>,
    pub(super) not_run: Vec<NotRunHere>,
}

impl<'a> MeasuredPrograms<'a> {
    pub(super) fn of(
        for_every: Vec<&'a CatalogueCandidate>,
        with: &[String],
        measurable: Vec<(&'a SuiteProgram, Box<Measurable>)>,
        place: &Place,
        context: &'a Context,
    ) -> Self {
        let candidates = with_runtimes(for_every, with, &measurable, context);
        let (mut programs, mut not_run) = (vec![], vec![]);
        for (program, measurable) in measurable {
            let measured = measured(program, *measurable, &candidates, place, context);
            let is_alone = measured.fitted.iter().flatten().count() < 2;
            if is_alone && candidates.len() > 1 {
                let why = "no candidate of the session is for it".to_owned();
                message::say(&format!("imas: {}: not run: {why}", program.name));
                not_run.push((program.name.clone(), why));
            } else {
                programs.push(measured);
            }
        }
        Self { candidates, programs, not_run }
    }
}

/// The candidates for every program, then the settings of the runtimes that the programs have.
fn with_runtimes<'a>(
    for_every: Vec<&'a CatalogueCandidate>,
    with: &[String],
    measurable: &[(&SuiteProgram, Box<Measurable>)],
    context: &'a Context,
) -> Vec<&'a CatalogueCandidate> {
    let names = names_for_runtimes(with);
    let facts: Vec<_> = measurable.iter().filter_map(|(_, one)| one.with_runtime()).collect();
    let wanted: Vec<&CatalogueCandidate> =
        facts.into_iter().flat_map(|facts| of_runtime(&names, context, facts)).collect();
    let store = context.open_store().ok(); // only a cache here
    let mut candidates = for_every;
    for candidate in context.catalogue.all().filter(|one| wanted.contains(one)) {
        match context.obstacle(candidate, store.as_ref()) {
            None => candidates.push(candidate),
            Some(why) => message::warning(&format!("{} is left out: {why}", candidate.name)),
        }
    }
    candidates
}

fn measured<'a>(
    program: &'a SuiteProgram,
    measurable: Measurable,
    candidates: &[&CatalogueCandidate],
    place: &Place,
    context: &Context,
) -> MeasuredProgram<'a> {
    let store = context.open_store().ok(); // only a cache here
    let environment = place.variables(Some(program), None);
    let own = measurable.runtime();
    let fitted = candidates.iter().map(|candidate| {
        let fitted = measurable.fitted(candidate, &environment, store.as_ref());
        let is_own = candidate.runtime.as_ref().is_some_and(|settings| Some(settings.runtime) == own);
        if let Some(why) = fitted.as_ref().err().filter(|_| is_own) {
            message::say(&format!("imas: {}: {} is left out: {why}", program.name, candidate.name));
        }
        fitted.ok()
    });
    MeasuredProgram {
        program,
        fitted: fitted.collect(),
        is_bare: measurable.executable.unfit.is_some(),
        build_id: measurable.executable.build_id,
    }
}
