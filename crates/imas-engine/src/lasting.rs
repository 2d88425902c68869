// SPDX-License-Identifier: Apache-2.0
//! A candidate for something that lasts: a service, a container, the pods of a workload.

use std::path::Path;

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{
    Injection, Libraries, Mode, Reach, UnusablePath, Variables, has_hidden_settings,
};
use imas_linux::{elf, host};

use crate::context::Context;
use crate::inline_candidate::{has_settings, inline_candidate};

/// The candidate of that name, from the catalogue or with settings (`jemalloc?narenas:1`), if it can be used
/// here and changes anything.
///
/// # Errors
/// If there is no such candidate, if it cannot be used here, or if it is `system`.
pub fn usable(context: &Context, name: &str) -> Result<CatalogueCandidate> {
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
    if candidate.is_system() {
        return Err(Hinted::error(
            "system is the program as it is: there is nothing to set",
            "'imas unapply UNIT' takes away what 'imas apply' wrote",
        ));
    }
    Ok(candidate)
}

/// The variables that differ from those inherited when a program is started in production under the
/// candidate, in the order of their names. `reach`: the processes that they are for. Which of the processes of a service or a container
/// holds the memory is not known, so that is all of them, but for settings of a runtime (docs/decisions/0051).
///
/// # Errors
/// If one of the libraries lies at a path that `LD_PRELOAD` cannot express.
pub fn changes(
    libraries: &Libraries,
    candidate: &CatalogueCandidate,
    reach: Reach,
    inherited: &Variables,
) -> Result<Vec<(String, String)>, UnusablePath> {
    let injection = Injection { candidate, mode: Mode::Production, reach, page: None };
    let wanted = injection.variables(inherited, libraries)?;
    let changed = wanted.iter().filter(|(name, value)| inherited.get(name) != Some(value));
    let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let mut changed: Vec<_> = changed.map(|(name, value)| (text(name), text(value))).collect();
    changed.sort();
    Ok(changed)
}

/// The candidate with the paths of a folder that will be found at `at`.
#[must_use]
pub fn moved(candidate: &CatalogueCandidate, at: &Path) -> CatalogueCandidate {
    let library = candidate.library.as_ref().and_then(|library| Some(at.join(library.file_name()?)));
    CatalogueCandidate { library, ..candidate.clone() }
}

/// Files that have to be there for those variables to work: the guard, what gives pages back, what answers a runtime, the
/// allocator, and what the distribution brings. None where nothing is loaded.
pub fn files<'a>(context: &'a Context, candidate: &'a CatalogueCandidate) -> impl Iterator<Item = &'a Path> {
    let is_bare = candidate.runtime.as_ref().is_some_and(|settings| settings.is_bare);
    let ours = (!is_bare).then_some(context.libraries.guard.as_path());
    let answers = has_hidden_settings(candidate).then_some(context.libraries.settings.as_path());
    let give_back = candidate.give_back.then_some(context.libraries.give_back.as_path());
    let own = [ours, give_back, answers];
    own.into_iter().chain([candidate.library.as_deref(), candidate.needs.as_deref()]).flatten()
}

/// Oldest C library with which these files work, such as `glibc 2.17`, after libstdc++ if they need that; this
/// machine's where that cannot be read.
pub fn oldest_libc<'a>(files: impl IntoIterator<Item = &'a Path>) -> String {
    let files: Vec<&Path> = files.into_iter().collect();
    let asked: Result<Vec<_>, _> = files.iter().map(|file| elf::glibc_asked(file)).collect();
    let libc = match asked.ok().and_then(|versions| versions.into_iter().flatten().max()) {
        Some((major, minor)) => format!("glibc {major}.{minor}"),
        None => host::libc_version(),
    };
    let is_cxx = files.iter().any(|file| elf::asks_for_libstdcxx(file).unwrap_or(false));
    if is_cxx { format!("libstdc++ and {libc}") } else { libc }
}

/// An error if the candidate's library belongs to a distribution, and cannot be taken along.
///
/// # Errors
/// If it does.
pub fn can_be_taken(candidate: &CatalogueCandidate) -> Result<()> {
    if candidate.needs.is_none() {
        return Ok(());
    }
    let name = &candidate.name;
    Err(Hinted::error(
        format!("{name}: its library belongs to the distribution and cannot be taken along"),
        format!("name the allocator that IMAS builds: '{}'", name.trim_start_matches("distro-")),
    ))
}
