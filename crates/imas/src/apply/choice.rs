// SPDX-License-Identifier: Apache-2.0
//! The candidate for something that lasts: a service, a container. Chosen from what is settled, never from
//! half a measurement.

use std::path::Path;

use anyhow::Result;
use imas_engine::inline_candidate::{has_settings, inline_candidate};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Injection, Libraries, Mode, Reach, UnusablePath, Variables};

use imas_cli::message::Hinted;
use imas_engine::context::Context;
use imas_engine::under_way::UnderWay;
use imas_view::program_view::ProgramView;
use imas_view::settled::settled;

/// The candidate that was learned for the program. If none is settled, the error has the reason.
pub(crate) fn settled_or_why(state: &ProgramView) -> Result<&str> {
    settled(state).ok_or_else(|| {
        let program = &state.known.program;
        let decided = state.decision.reason.sentence();
        let under_way = state.under_way.as_ref().map(UnderWay::words);
        let reason = under_way.as_deref().unwrap_or_else(|| decided.trim_end_matches('.'));
        Hinted::error(
            format!("{program}: nothing is settled yet: {reason}"),
            format!("let it run under 'imas run -- ...' until 'imas show {}' has picks, or name one with --candidate", program.id),
        )
    })
}

/// The candidate of that name, from the catalogue or with settings (`jemalloc?narenas:1`), if it can be used
/// here and changes anything.
pub(crate) fn usable(context: &Context, name: &str) -> Result<CatalogueCandidate> {
    let candidate = match has_settings(name) {
        true => inline_candidate(name, context)?,
        false => context.candidate(name)?.clone(),
    };
    if let Some(obstacle) = context.obstacle(&candidate, None) {
        return Err(Hinted::error(
            format!("{name} cannot be used here: {obstacle}"),
            "'imas list' shows those that can",
        ));
    }
    if candidate.runtime.is_some() {
        return Err(Hinted::error(
            format!("{name} is settings of a language runtime, and is not written down for later starts yet"),
            "start the program under it with 'imas run --candidate', or pin it with 'imas pin'",
        ));
    }
    if candidate.is_system() {
        return Err(Hinted::error(
            "system is the program as it is: there is nothing to set",
            "'imas unapply UNIT' takes away what 'imas apply' wrote",
        ));
    }
    Ok(candidate)
}

/// The variables that differ from those inherited when a program is started in production under the
/// candidate, in the order of their names.
pub(crate) fn changes(
    libraries: &Libraries,
    candidate: &CatalogueCandidate,
    follow: bool,
    inherited: &Variables,
) -> Result<Vec<(String, String)>, UnusablePath> {
    let reach = if follow { Reach::Children } else { Reach::Program };
    let injection = Injection { candidate, mode: Mode::Production, reach, page: None };
    let wanted = injection.variables(inherited, libraries)?;
    let changed = wanted.iter().filter(|(name, value)| inherited.get(name) != Some(value));
    let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let mut changed: Vec<_> = changed.map(|(name, value)| (text(name), text(value))).collect();
    changed.sort();
    Ok(changed)
}

/// Files that have to be there for those variables to work: the guard, what gives pages back, the allocator, and what the
/// distribution brings.
pub(crate) fn files<'a>(
    context: &'a Context,
    candidate: &'a CatalogueCandidate,
) -> impl Iterator<Item = &'a Path> {
    let ours = Some(context.libraries.guard.as_path());
    let give_back = candidate.give_back.then_some(context.libraries.give_back.as_path());
    [ours, give_back, candidate.library.as_deref(), candidate.needs.as_deref()].into_iter().flatten()
}
